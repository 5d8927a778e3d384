"""The command ``shell``: a terminal on a compute node."""

from __future__ import annotations

import click

COMMANDS: tuple[click.Command, ...] = ()
