"""Prints a table, fitted to the terminal, or for a program to read."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console
    from rich.padding import Padding
    from rich.table import Table

_UNFOLDED = 1000  # columns


def print_table(console: Console, table: Table | Padding) -> None:
    """Print a table; if the output is not a terminal, with one line per row and no trailing blanks."""
    if console.is_terminal:
        console.print(table)
        return
    width, console.width = console.width, _UNFOLDED
    with console.capture() as captured:
        console.print(table)
    console.width = width
    for line in captured.get().splitlines():
        console.out(line.rstrip(), highlight=False)
