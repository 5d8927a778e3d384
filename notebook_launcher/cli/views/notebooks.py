"""How the bundled notebooks are listed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from notebook_launcher.core import events
from notebook_launcher.core.text import printable

if TYPE_CHECKING:
    from rich.console import Console


def show_notebooks(console: Console, event: events.BundledNotebooks) -> None:
    """Print the notebooks, the sentences beside the names."""
    from rich.table import Table
    from rich.text import Text

    table = Table.grid(padding=(0, 3, 0, 0))
    for name, sentence in event.notebooks:
        table.add_row(Text(printable(name), style="bold", no_wrap=True), Text(printable(sentence)))
    console.print(table)
