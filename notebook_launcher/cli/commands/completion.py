"""The command ``completion``: prints the shell code for completion on TAB."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from notebook_launcher.core.errors import UsageError

SHELLS = ("bash", "zsh", "fish")


@click.command()
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
