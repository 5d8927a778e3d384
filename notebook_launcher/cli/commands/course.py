"""The commands for saved courses: list, show, update and forget them; and a course's digest."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from notebook_launcher.cli.completion import complete_kept_course

if TYPE_CHECKING:
    from notebook_launcher.cli.prompts import TerminalPrompts
    from notebook_launcher.cli.views.base import BaseView


_json = click.option("--json", "as_json", is_flag=True, help="Print events, one JSON object a line.")
_name = click.argument("name", shell_complete=complete_kept_course)


@contextlib.contextmanager
def _interface(as_json: bool) -> Iterator[tuple[BaseView, TerminalPrompts]]:
    from notebook_launcher.cli.options import Where, user_interface

    with user_interface(Where(as_json=as_json)) as (view, prompts, _):
        yield view, prompts


@click.group("course")
def course() -> None:
    """Saved courses. To save one, name it: launch-notebook --course FILE_OR_URL."""


@course.command("list")
@_json
def list_(*, as_json: bool) -> int:
    """List the saved courses."""
    from notebook_launcher.planning import course_commands

    with _interface(as_json) as (view, _):
        course_commands.list_courses(view)
    return view.exit_code


@course.command()
@_json
@_name
def show(name: str, *, as_json: bool) -> int:
    """Show the settings of a course, and its source."""
    from notebook_launcher.planning import course_commands

    with _interface(as_json) as (view, _):
        course_commands.show_course(name, view)
    return view.exit_code


@course.command()
@_json
@_name
def update(name: str, *, as_json: bool) -> int:
    """Fetch a saved course again from its source, and show what has changed."""
    from notebook_launcher.planning import course_commands

    with _interface(as_json) as (view, prompts):
        course_commands.update_course(name, view, prompts)
    return view.exit_code


@course.command()
@_json
@_name
def forget(name: str, *, as_json: bool) -> int:
    """Forget a course. Notebooks that were copied to the cluster stay there."""
    from notebook_launcher.planning import course_commands

    with _interface(as_json) as (view, _):
        course_commands.forget_course(name, view)
    return view.exit_code


@course.command()
@click.argument("file", type=click.Path())
def digest(file: str) -> int:
    """Print the digest of a course file with all that belongs to it, for the address: URL#sha256=DIGEST."""
    from notebook_launcher.planning import course_commands

    with _interface(False) as (view, _):
        click.echo(course_commands.digest_of(file, view))
    return view.exit_code
