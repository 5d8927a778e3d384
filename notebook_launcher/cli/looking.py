"""The commands that look at a session: ``status``, ``usage`` and ``logs``."""

from __future__ import annotations

import click

COMMANDS: tuple[click.Command, ...] = ()
