"""Completion on TAB: names that this machine knows. Nothing is contacted."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import click
from click.shell_completion import CompletionItem, get_completion_class

from notebook_launcher.core.errors import UsageError
from notebook_launcher.core.text import printable

SHELLS = ("bash", "zsh", "fish")
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


@click.command(short_help="Print the completion script for your shell.")
@click.argument("shell", type=click.Choice(SHELLS), default="bash")
@click.pass_context
def completion(ctx: click.Context, shell: str) -> int:
    """Print what makes TAB complete commands, flags, sessions, profiles and environments in your shell.

    \b
      bash:  eval "$(launch-notebook completion bash)"            in ~/.bashrc
      zsh:   eval "$(launch-notebook completion zsh)"             in ~/.zshrc
      fish:  launch-notebook completion fish | source             in ~/.config/fish/config.fish
    """  # \b is click's mark for lines to be left alone
    root = ctx.find_root()
    kind = get_completion_class(shell)
    if kind is None:
        raise UsageError(f"There is no completion for {shell}.")
    program = root.info_name or "launch-notebook"
    source = kind(root.command, {}, program, f"_{program.replace('-', '_').upper()}_COMPLETE").source()
    click.echo(source)
    return 0
