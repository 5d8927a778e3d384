"""Completion on TAB: names that this machine knows. Nothing is contacted."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import click
from click.shell_completion import CompletionItem

from notebook_launcher.core.text import printable

TYPED = "notebook_launcher.typed"  # key in click's meta: all words before the one to complete


def complete_session(ctx: click.Context, _parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Complete recently listed sessions, the newest first; after two dashes, environments."""
    from notebook_launcher.core.local_state import known_sessions

    if isinstance(ctx.command, TakesEnvironment) and "--" in ctx.meta.get(TYPED, ()):
        return _environments(ctx.params, incomplete)
    return _offered(known_sessions(), incomplete)


def complete_cluster(_ctx: click.Context, _parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Complete the cluster profiles."""
    from notebook_launcher.profiles.store import profile_names

    return _offered([(name, "") for name in profile_names()], incomplete)


def complete_course(_ctx: click.Context, _parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Complete the saved courses, or else files."""
    return complete_kept_course(_ctx, _parameter, incomplete) or [CompletionItem(incomplete, type="file")]


def complete_kept_course(_ctx: click.Context, _parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Complete the saved courses."""
    from notebook_launcher.profiles.courses import saved_courses

    return _offered([(name, "") for name in saved_courses()], incomplete)


class TakesEnvironment(click.Command):
    """A command that takes an environment after two dashes."""

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Complete the options; after the two dashes the profile's environments."""
        if "--" in ctx.meta.get(TYPED, ()):
            return _environments(ctx.params, incomplete)
        return super().shell_complete(ctx, incomplete)


def _environments(typed: Mapping[str, Any], incomplete: str) -> list[CompletionItem]:
    from notebook_launcher.core.errors import LauncherError
    from notebook_launcher.planning.plan import LaunchOptions, LocalMachine, resolve_target

    try:
        options = LaunchOptions(cluster=typed.get("cluster"), host=typed.get("host"), course=typed.get("course"))
        environments = resolve_target(options, LocalMachine.detect()).profile.environments
    except LauncherError:  # a launch reports the mistake
        return []
    return _offered([(name, environment.description) for name, environment in environments.items()], incomplete)


def _offered(named: Iterable[tuple[str, str | None]], incomplete: str) -> list[CompletionItem]:
    """Offer names, each with what it is; that may come from a course or a cluster, and the shell shows it as it is."""
    return [
        CompletionItem(name, help=" ".join(printable(about or "").split()) or None)
        for name, about in named
        if name.startswith(incomplete) and name.isprintable()
    ]
