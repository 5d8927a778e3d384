"""The commands for profiles: list them, show one, change it, and choose the default."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from notebook_launcher.cli.completion import complete_cluster
from notebook_launcher.cli.options import Where, user_interface
from notebook_launcher.core.errors import UsageError

_USE = "launch-notebook clusters use"
_JSON = "clusters.json"  # key in click's meta: whether --json was typed before the command


def _json(command: Callable[..., Any]) -> Callable[..., Any]:
    return click.option("--json", "as_json", is_flag=True, help="Print events, one JSON object a line.")(command)


def _where(ctx: click.Context, as_json: bool) -> Where:
    return Where(as_json=as_json or ctx.meta.get(_JSON, False))


def _name(command: Callable[..., Any]) -> Callable[..., Any]:
    return click.argument("name", shell_complete=complete_cluster)(command)


@click.group(invoke_without_command=True)
@_json
@click.pass_context
def clusters(ctx: click.Context, *, as_json: bool) -> int:
    """List the clusters that are known by name; show a profile, make it the default, change its settings.

    \b
      launch-notebook clusters                           list them
      launch-notebook clusters show NAME --merged        the merged settings, and where each comes from
      launch-notebook clusters edit NAME --account proj1
      launch-notebook clusters use NAME                  make it the default
    """  # \b is click's mark for lines to be left alone
    ctx.meta[_JSON] = as_json
    return _list(Where(as_json=as_json)) if ctx.invoked_subcommand is None else 0


def _list(where: Where) -> int:
    from notebook_launcher.planning.profile_commands import show_clusters

    with user_interface(where) as (view, _prompts, _interrupts):
        show_clusters(view)
    return view.exit_code


@clusters.command("list", short_help="List them (what clusters does by itself).")
@_json
@click.pass_context
def list_(ctx: click.Context, *, as_json: bool) -> int:
    """List the clusters that are known by name, and the saved courses."""
    return _list(_where(ctx, as_json))


@clusters.command(short_help="Show a profile as TOML.")
@_json
@_name
@click.option("--merged", is_flag=True, help="Show the merged settings, each with its file and line.")
@click.pass_context
def show(ctx: click.Context, name: str, *, merged: bool, as_json: bool) -> int:
    """Show the files that a profile is made of, with their comments; the last one takes precedence."""
    from notebook_launcher.planning.profile_commands import show_profile

    with user_interface(_where(ctx, as_json)) as (view, _prompts, _interrupts):
        show_profile(name, view, merged=merged)
    return view.exit_code


@clusters.command(short_help="Set the default cluster.")
@_json
@click.argument("name", required=False, shell_complete=complete_cluster)
@click.option("--unset", is_flag=True, help="Unset the default cluster.")
@click.pass_context
def use(ctx: click.Context, name: str | None, *, unset: bool, as_json: bool) -> int:
    """Set the cluster that is used without --cluster; here means this machine.

    With --unset there is none, so that the next launch asks for it.
    """
    from notebook_launcher.planning.profile_commands import unset_cluster, use_cluster

    if (name is None) is not unset:
        what = "--unset takes no name." if unset else "Which cluster?"
        raise UsageError(what, hint=f"{_USE} NAME   or, to have no default: {_USE} --unset")
    with user_interface(_where(ctx, as_json)) as (view, _prompts, _interrupts):
        if name is None:
            unset_cluster(view)
        else:
            use_cluster(name, view)
    return view.exit_code


@clusters.command(short_help="Change settings of a profile.")
@_json
@_name
@click.option("--host", metavar="[USER@]LOGIN", help="The login node.")
@click.option("--user", metavar="NAME", help="Your name there.")
@click.option("--account", "-A", metavar="NAME", help="The account (project) that pays.")
@click.option("--partition", "-p", metavar="NAME", help="The partition.")
@click.option(
    "--set",
    "others",
    multiple=True,
    metavar="KEY=VALUE",
    help="Any key, dotted: defaults.gpus=1. An empty value removes it (repeatable).",
)
@click.pass_context
def edit(ctx: click.Context, name: str, *, host: str | None, user: str | None, account: str | None,
         partition: str | None, others: tuple[str, ...], as_json: bool) -> int:  # fmt: skip
    """Change settings of a profile: in your editor, or by options. A bundled profile itself is not changed.

    They are saved in clusters/NAME.toml in your configuration folder. A file with a mistake is never accepted.
    """
    from notebook_launcher.planning.profile_commands import change_profile, edit_profile

    given = (
        (("host",), host),
        (("user",), user),
        (("defaults", "account"), account),
        (("defaults", "partition"), partition),
    )
    values = {key_path: value or None for key_path, value in given if value is not None} | dict(map(_setting, others))
    with user_interface(_where(ctx, as_json)) as (view, prompts, _interrupts):
        if values:
            change_profile(name, values, view)
        else:
            edit_profile(name, view, prompts)
    return view.exit_code


def _setting(text: str) -> tuple[tuple[str, ...], Any]:
    """Return the path and the value of ``KEY=VALUE``: TOML if it is valid, otherwise text; "" removes the key."""
    from notebook_launcher.profiles.layers import key_parts, plain_value

    key, equals, value = text.partition("=")
    key_path = key_parts(key.strip())
    if not equals or not key_path:
        raise UsageError(f"--set {text} sets nothing.", hint="for example: --set idle_stop=30m --set defaults.gpus=1")
    return key_path, plain_value(value.strip())
