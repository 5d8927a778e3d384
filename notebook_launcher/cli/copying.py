"""The command ``copy``: files to and from the cluster."""

from __future__ import annotations

import click

COMMANDS: tuple[click.Command, ...] = ()
