"""Completion on TAB, with names known on this machine. No host is contacted."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from notebook_launcher.cli.unlisted_flags import TakesSchedulerFlags

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

TYPED = "notebook_launcher.typed"  # key in click's meta: all words before the one to complete


def complete_session(ctx: click.Context, _parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Complete recently listed sessions, the newest first; after two dashes, environments."""
    from notebook_launcher.core.local_state import known_sessions

    if isinstance(ctx.command, TakesEnvironment) and "--" in ctx.meta.get(TYPED, ()):
        return _environments(ctx.params, incomplete)
    return _sessions(known_sessions(), incomplete)


def complete_active_session(_ctx: click.Context, _parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Complete the sessions that were active when last listed, the newest first."""
    from notebook_launcher.core.local_state import known_sessions

    return _sessions(known_sessions(active=True), incomplete)


def _sessions(known: Sequence[tuple[str, str]], incomplete: str) -> list[CompletionItem]:
    """Offer each session by its last four characters; by its full name if the user began that or they are ambiguous."""
    ends = [name[-4:] for name, _ in known]
    by_end = [
        (end if ends.count(end) == 1 and not end.isdecimal() else name, about)
        for end, (name, about) in zip(ends, known, strict=True)
    ]
    return _offered(by_end, incomplete) or _offered(known, incomplete)


def complete_copied(ctx: click.Context, _parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Complete local files, but none after ``login:``. Bash treats the colon as a word of its own."""
    words = [*ctx.meta.get(TYPED, ()), incomplete]
    is_there = ":" in incomplete or words[-2:-1] == [":"]
    return [] if is_there else _files(incomplete)


def complete_notebook(_ctx: click.Context, _parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Complete the bundled notebooks."""
    from notebook_launcher.notebook.prepare import bundled, sentence_of

    return _offered([(name, sentence_of(path)) for name, path in bundled().items()], incomplete)


def complete_run(ctx: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Complete the bundled notebooks, and files."""
    there = complete_notebook(ctx, parameter, incomplete)
    if not there:
        return _files(incomplete)
    return [*there, *_file_words("[!.]*.ipynb", incomplete)]


def _file_words(pattern: str, incomplete: str) -> list[CompletionItem]:
    """Offer files of this folder as plain words: beside files that bash completes itself, it shows no other words."""
    from pathlib import Path

    here = sorted(path.name for path in Path().glob(pattern) if path.name.startswith(incomplete))
    return _offered([(name, "") for name in here], "")


def complete_template(ctx: click.Context, _parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Complete the bundled job scripts; after two dashes, environments."""
    if "--" in ctx.meta.get(TYPED, ()):
        return _environments(ctx.params, incomplete)
    from notebook_launcher.scripts.templates import templates

    return _offered([(one.name, one.sentence) for one in templates()], incomplete)


def complete_script(ctx: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Complete the bundled job scripts, and files."""
    there = complete_template(ctx, parameter, incomplete)
    if not there:
        return _files(incomplete)
    return [*there, *_file_words("[!.]*.sh", incomplete)]


def complete_cluster(_ctx: click.Context, _parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Complete the cluster profiles."""
    from notebook_launcher.profiles.store import profile_names

    return _offered([(name, "") for name in profile_names()], incomplete)


def complete_course(_ctx: click.Context, _parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Complete the saved courses, or files if none matches."""
    return complete_kept_course(_ctx, _parameter, incomplete) or _files(incomplete)


def complete_kept_course(_ctx: click.Context, _parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Complete the saved courses."""
    from notebook_launcher.profiles.courses import saved_courses

    return _offered([(name, "") for name in saved_courses()], incomplete)


def complete_preset(_ctx: click.Context, _parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Complete the saved launches, each with its flags."""
    from notebook_launcher.core.errors import LauncherError
    from notebook_launcher.planning.presets import known_presets
    from notebook_launcher.planning.target import LocalMachine

    try:
        return _offered(known_presets(None, LocalMachine.detect()), incomplete)
    except LauncherError:  # a launch reports the mistake
        return []


class TakesEnvironment(TakesSchedulerFlags):
    """A command that takes an environment after two dashes."""

    def collect_usage_pieces(self, ctx: click.Context) -> list[str]:
        """Return the parts of the usage line, with what comes after the two dashes, which click does not know."""
        return [*super().collect_usage_pieces(ctx), "[-- ENVIRONMENT [IMAGE]]"]

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Complete the options, and after the two dashes the profile's environments."""
        if "--" in ctx.meta.get(TYPED, ()):
            return _environments(ctx.params, incomplete)
        return super().shell_complete(ctx, incomplete)


def _environments(typed: Mapping[str, Any], incomplete: str) -> list[CompletionItem]:
    from notebook_launcher.core.errors import LauncherError
    from notebook_launcher.planning.target import LaunchOptions, LocalMachine, resolve_target

    try:
        options = LaunchOptions(cluster=typed.get("cluster"), host=typed.get("host"), course=typed.get("course"))
        environments = resolve_target(options, LocalMachine.detect()).profile.environments
    except LauncherError:  # a launch reports the mistake
        return []
    return _offered([(name, environment.description) for name, environment in environments.items()], incomplete)


def _files(incomplete: str) -> list[CompletionItem]:
    """Have the shell complete files."""
    from click.shell_completion import CompletionItem

    return [CompletionItem(incomplete, type="file")]


def _offered(named: Iterable[tuple[str, str | None]], incomplete: str) -> list[CompletionItem]:
    """Offer names with descriptions, made printable: some come from a cluster, and the shell shows them unchanged."""
    from click.shell_completion import CompletionItem

    from notebook_launcher.core.text import one_line

    return [
        CompletionItem(name, help=one_line(about or "") or None)
        for name, about in named
        if name.startswith(incomplete) and name.isprintable()
    ]
