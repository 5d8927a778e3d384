"""The commands for a lab of many students: ``handout``, ``check``, ``watch``, ``collect`` and ``end``."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from notebook_launcher.cli.options import NumberUpTo, Where, target_options, user_interface

if TYPE_CHECKING:
    from notebook_launcher.classroom.roster import Student


@click.group("classroom")
def classroom() -> None:
    """A lab of many students: check it, watch it, collect its results, end it. See docs/classroom.md.

    STUDENTS.csv is the list of students, with a line for each: the user name on the cluster, or user,name.
    """


def _whose(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command the options that say who is in the class if the course does not."""
    for option in (
        click.option("--reservation", metavar="NAME", help="The reservation of the class, in place of the course's."),
        click.option("--account", "-A", metavar="NAME", help="The account of the class, in place of the course's."),
    ):
        command = option(command)
    return command


def _roster(*, required: bool) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    metavar = "STUDENTS.csv" if required else "[STUDENTS.csv]"
    return click.argument("roster", metavar=metavar, type=click.Path(path_type=Path), required=required)


def _students(roster: Path | None) -> tuple[Student, ...]:
    from notebook_launcher.classroom.roster import read_roster

    return read_roster(roster) if roster else ()


@classroom.command()
@target_options
@_whose
@click.option("--every", type=int, default=30, metavar="SECONDS", help="Seconds between two updates: 30, at least 10.")
@click.option("--once", is_flag=True, help="Show the table once, and exit.")
@click.option("--html", type=click.Path(path_type=Path), metavar="FILE", help="Also write an HTML page at each update.")
@click.option("--page", is_flag=True, help="Also serve the page here, for your own browser; it refreshes itself.")
@click.option("--anonymous", is_flag=True, help="On the page, show numbers, not names: for the projector.")
@_roster(required=False)
def watch(
    roster: Path | None,
    *,
    where: Where,
    reservation: str | None,
    account: str | None,
    every: int,
    once: bool,
    html: Path | None,
    page: bool,
    anonymous: bool,
) -> int:
    """Show whose session has not started, is pending, running or idle, or has failed, until Ctrl-C.

    \b
      launch-notebook classroom watch students.csv             the default course
      launch-notebook classroom watch students.csv --page      and a page for the projector
      launch-notebook classroom watch --reservation lab1       whoever has a job in it

    Each update is one query of the scheduler, for all students together.
    """
    from notebook_launcher.classroom.watch import WatchOptions
    from notebook_launcher.classroom.watch import watch as watch_class

    options = WatchOptions(every, once, html, page and not once, anonymous, reservation, account)
    students, target = _students(roster), where.target()
    with user_interface(where) as (view, prompts, interrupts):
        watch_class(target, students, options, view, prompts, interrupts)
    return view.exit_code


@classroom.command()
@target_options
@click.option("--out", type=click.Path(path_type=Path), metavar="PATH", help="The path, without the ending.")
@click.option("--install", metavar="COMMAND", help="How students install the launcher.")
@click.option("--portal", default="", metavar="URL", help="The web portal of the cluster, if there is one.")
@click.option("--thinlinc", default="", metavar="HOST", help="The ThinLinc server of the cluster, if there is one.")
@click.option("--pdf", is_flag=True, help="Fail if no browser on this machine can print the PDF.")
@click.option("--force", is_flag=True, help="Replace existing files.")
def handout(
    *, where: Where, out: Path | None, install: str | None, portal: str, thinlinc: str, pdf: bool, force: bool
) -> int:
    """Write the one-page instruction for the students of a course: Markdown, HTML and PDF.

    \b
      launch-notebook classroom handout --course gpulab2026 --install 'pipx install PACKAGE'

    The PDF needs Chromium, Chrome or Edge on this machine.
    """
    from notebook_launcher.classroom.handout import INSTALL, HandoutOptions, write_handout

    options = HandoutOptions(out, install or INSTALL, portal, thinlinc, pdf, force)
    target = where.target()
    with user_interface(where) as (view, _, _):
        write_handout(target, options, view)
    return view.exit_code


@classroom.command()
@target_options
@click.option("--at", "begins", metavar="TIME", help="When the lesson begins: 2026-11-24T13:00. Without it: now.")
@click.option(
    "--for", "lasts", metavar="TIME", help="How long it is: 1:30:00 or 90m. Without it: a session's walltime."
)
@click.option("--rehearse", type=NumberUpTo(60), default=0, metavar="N", help="Launch N test sessions.")
@_roster(required=True)
def check(roster: Path, *, where: Where, begins: str | None, lasts: str | None, rehearse: int) -> int:
    """Check beforehand that the lesson will work: one table, with a hint for each problem.

    \b
      launch-notebook classroom check students.csv --at 2026-11-24T13:00 --for 90m
      launch-notebook classroom check students.csv --rehearse 5

    It checks what doctor checks, then the students' accounts, the reservation's hour, the room for all of them, the
    limits that they share, and the class folder. The exit code is 0 if no check finds a fault, otherwise 8.
    """
    from notebook_launcher.classroom.check import Lesson, check_class
    from notebook_launcher.planning.target import LocalMachine

    lesson = Lesson(_students(roster), begins, lasts, rehearse)
    with user_interface(where) as (view, prompts, interrupts):
        check_class(where.launch_options(), LocalMachine.detect(), lesson, view, prompts, interrupts)
    return view.exit_code


@classroom.command()
@target_options
@click.option("--out", type=click.Path(path_type=Path), metavar="PATH", help="The path, without the ending.")
@click.option("--folder", metavar="DIR", help="The class folder on the cluster, in place of the course's.")
@click.option("--anonymous", is_flag=True, help="Show numbers, not names: for the projector.")
@click.option("--force", is_flag=True, help="Replace existing files.")
@_roster(required=False)
def collect(
    roster: Path | None, *, where: Where, out: Path | None, folder: str | None, anonymous: bool, force: bool
) -> int:
    """Make one report of all students' timings: HTML with a plot, and JSON.

    \b
      launch-notebook classroom collect students.csv --anonymous

    Results come from the class folder, to which the sessions of a course with class_folder write them.
    """
    from notebook_launcher.classroom.collect import CollectOptions
    from notebook_launcher.classroom.collect import collect as collect_class

    options = CollectOptions(out, anonymous, folder, force)
    students, target = _students(roster), where.target()
    with user_interface(where) as (view, prompts, interrupts):
        collect_class(target, students, options, view, prompts, interrupts)
    return view.exit_code


@classroom.command()
@target_options
@_whose
@click.option("--in", "minutes", type=int, default=5, metavar="MINUTES", help="From the notice to the end: 5.")
@click.option("--message", metavar="TEXT", help="The message to the students.")
@click.option("--yes", "-y", "sure", is_flag=True, help="Do not ask.")
@_roster(required=False)
def end(
    roster: Path | None,
    *,
    where: Where,
    reservation: str | None,
    account: str | None,
    minutes: int,
    message: str | None,
    sure: bool,
) -> int:
    """Give notice to every session of the class, wait, and end the sessions.

    \b
      launch-notebook classroom end students.csv --in 10 --message 'Submit your notebook.'

    The scheduler ends sessions if you are an operator, or a coordinator of the account. Sessions that report in the
    class folder end themselves. Those that could not be ended are named.
    """
    from notebook_launcher.classroom.end import DEFAULT_MESSAGE, EndOptions, end_class

    options = EndOptions(minutes, message or DEFAULT_MESSAGE, sure, reservation, account)
    students, target = _students(roster), where.target()
    with user_interface(where) as (view, prompts, interrupts):
        end_class(target, students, options, view, prompts, interrupts)
    return view.exit_code
