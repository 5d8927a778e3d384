"""Shows the list of bundled notebooks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from notebook_launcher.core import events
from notebook_launcher.core.text import printable

if TYPE_CHECKING:
    from rich.console import Console


def show_notebooks(console: Console, event: events.BundledNotebooks) -> None:
    """Print the notebooks with their descriptions beside them: folded on a terminal, otherwise one line each."""
    if not console.is_terminal:
        width = max((len(name) for name, _ in event.notebooks), default=0)
        for name, sentence in event.notebooks:
            line = f"{printable(name):{width}}   {printable(sentence)}".rstrip()
            console.print(line, soft_wrap=True, highlight=False, markup=False)
        return
    from rich.table import Table
    from rich.text import Text

    table = Table.grid(padding=(0, 3, 0, 0), pad_edge=False)
    for name, sentence in event.notebooks:
        table.add_row(Text(printable(name), style="bold", no_wrap=True), Text(printable(sentence)))
    console.print(table)
