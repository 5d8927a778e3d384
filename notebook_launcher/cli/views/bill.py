"""Shows a bill on a terminal: a line for each resource used, and what to type next time."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from notebook_launcher.core import events
from notebook_launcher.core.quantities import amount, counted, duration, gigabytes
from notebook_launcher.core.text import printable
from notebook_launcher.core.walltime import Walltime

if TYPE_CHECKING:
    from rich.console import Console


def show_bill(console: Console, bill: events.Bill) -> None:
    """Print a bill: on a terminal folded within its column, otherwise each row on one line."""
    from rich.padding import Padding
    from rich.table import Table
    from rich.text import Text

    console.print(
        printable(title(bill)), style="bold", highlight=False, markup=False, soft_wrap=not console.is_terminal
    )
    if not console.is_terminal:
        for label, text in rows(bill):
            console.print(f"  {label:<11}{printable(text)}", highlight=False, markup=False, soft_wrap=True)
        return
    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for label, text in rows(bill):
        style = {"next time": "bold", "because": "dim", "measured": "dim"}.get(label, "")
        table.add_row(label, Text(printable(text), style=style))
    console.print(Padding(table, (0, 0, 0, 2), expand=False))


def title(bill: events.Bill) -> str:
    """Return the title: which session it is, and how long it ran."""
    where = f" on {bill.node}" if bill.node else ""
    limit = f" of {Walltime(seconds=bill.walltime).as_text()}" if bill.walltime else ""
    return f"Session {bill.session}{where}: {duration(bill.run_time or 0)}{limit}"


def rows(bill: events.Bill) -> Iterator[tuple[str, str]]:
    """Yield the name and the text of each row whose value is known."""
    if bill.cpu_used is not None and bill.run_time:
        yield "CPU", _cpu(bill, bill.cpu_used, bill.run_time)
    elif bill.cores:
        yield "CPU", f"{counted(bill.cores, 'core')}; how much of that was used was not reported"
    if bill.memory_peak is not None:
        of = f" of {gigabytes(bill.memory)}" if bill.memory else ""
        yield "memory", f"{gigabytes(bill.memory_peak)}{of} GiB at most"
    if bill.gpus or bill.gpu_percent is not None:
        yield "GPU", _gpu(bill)
    elif bill.energy:
        yield "energy", f"{amount(bill.energy)} Wh (all of the {bill.energy_of})"
    if bill.cost is not None:
        yield "cost", f"{amount(bill.cost)} {bill.unit}"
    yield "measured", bill.measured_by
    if bill.recommendations:
        yield "next time", " ".join(flags for flags, _ in bill.recommendations)
        yield "because", "; ".join(why for _, why in bill.recommendations)


def _cpu(bill: events.Bill, used: float, wall: int) -> str:
    """Return a text on how many cores were busy; Slurm's CPUTime (time × cores) does not tell that."""
    of = f" of {counted(bill.cores, 'core')}" if bill.cores else " cores"
    busy = used / wall
    if bill.cores and used <= bill.cores * (wall + 1):  # a tolerance, because run times are in whole seconds
        busy = min(busy, float(bill.cores))
    return f"{busy:.{2 if busy < 0.1 else 1}f}{of} busy: {duration(used)} of CPU time"


def _gpu(bill: events.Bill) -> str:
    kind = bill.gpu_type or ("GPU" if bill.gpus == 1 else "GPUs")
    parts = []
    if bill.gpu_percent is not None:
        parts.append(f"busy {bill.gpu_percent:.0f} % of the time")
    if bill.gpu_memory_peak is not None:
        of = f" of {gigabytes(bill.gpu_memory_total)}" if bill.gpu_memory_total else ""
        parts.append(f"{gigabytes(bill.gpu_memory_peak)}{of} GiB at most")
    if bill.energy:
        parts.append(f"{amount(bill.energy)} Wh" + (" (all of the node)" if bill.energy_of == "node" else ""))
    count = f"{bill.gpus} {kind}" if bill.gpus else kind
    return f"{count}: {', '.join(parts) or 'its use was not reported'}"
