"""Shows submitted job scripts and reports on jobs on a terminal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from notebook_launcher.core import events
from notebook_launcher.core.quantities import amount, counted, gigabytes, stopwatch, three_digits
from notebook_launcher.core.text import listed, printable

if TYPE_CHECKING:
    from rich.console import Console


_VALUE = 24  # columns of a value with an explanation beside it

BatchEvent = (
    events.ScriptPrepared
    | events.ScriptFinished
    | events.TemplatesListed
    | events.TemplateFilled
    | events.TemplateSaved
    | events.JobReport
)


def show_batch(console: Console, event: BatchEvent) -> None:
    """Show one of these events."""
    if isinstance(event, events.ScriptPrepared):
        _line(console, script_text(event))
    elif isinstance(event, events.ScriptFinished):
        sentence, folder = finished_lines(event)
        _line(console, sentence, style="green")
        console.print(printable(folder), highlight=False, markup=False, soft_wrap=True)
        if event.copy_command:
            copied = printable(f"To copy that here:\n  {event.copy_command}")
            console.print(copied, highlight=False, markup=False, soft_wrap=True)
    elif isinstance(event, events.TemplatesListed):
        show_templates(console, event)
    elif isinstance(event, events.TemplateFilled):  # may go into a file: never folded
        console.file.write(printable(event.text))
    elif isinstance(event, events.TemplateSaved):
        sentences, commands = saved_text(event)
        for sentence in sentences:
            _line(console, sentence)
        for command in commands:
            console.print(printable(command), highlight=False, markup=False, soft_wrap=True)
    else:
        show_report(console, event)


def script_text(event: events.ScriptPrepared) -> str:
    """Return a sentence on what is sent to the cluster."""
    asks = f", which asks for {event.flags}" if event.flags else ""
    sent = _names(event.files)
    more = f"; {listed(sent)} {'goes' if len(sent) == 1 else 'go'} with it" if sent else ""
    return f"Script {event.script}{asks}{more}"


def _names(files: Sequence[str]) -> list[str]:
    """Return the names of files, and instead of files in folders the folders' names."""
    parts = (name.partition("/") for name in files)
    return list(dict.fromkeys(f"{first}/" if rest else first for first, _, rest in parts))


def step_text(step: events.StepUsed) -> str:
    """Return a sentence on what a step of a running job uses."""
    name = "The script itself" if step.step == "batch" else f"Step {step.step}"
    tasks = f", {counted(step.tasks, 'task')} on {step.nodes}" if step.tasks and step.nodes else ""
    each = " each" if (step.tasks or 1) > 1 else ""
    parts = []
    if step.cores is not None:
        parts.append(f"{step.cores:.1f} cores{each}")
    elif step.cpu_seconds is not None:
        parts.append(f"{stopwatch(step.cpu_seconds)} of CPU time{each}")
    if step.gpu_percent is not None:
        parts.append(f"GPU {step.gpu_percent:.0f} %")
    if step.memory_mib is not None:
        whose = f" (task {step.memory_task} on {step.memory_node})" if each and step.memory_node else ""
        few = step.memory_mib < 0.1 * 1024
        memory = f"{step.memory_mib:.0f} MiB" if few else f"{gigabytes(step.memory_mib)} GiB"
        parts.append(f"{memory} at most{whose}")
    text = f"{name}{tasks}: {', '.join(parts) or 'nothing is reported yet'}"
    if step.slowest_share is None:
        return text
    return (
        f"{text}. Task {step.slowest_task} on {step.slowest_node} has computed much less than the others: "
        f"{step.slowest_share:.0f} % of the mean"
    )


def task_text(event: events.TaskStarted | events.TaskEnded) -> str:
    """Return a sentence on where a task of a job array runs, or how it ended."""
    if isinstance(event, events.TaskStarted):
        return f"Task {event.task} runs on {event.node}."
    after = f" after {stopwatch(event.seconds)}" if event.seconds is not None else ""
    where = f" on {event.node}" if event.node else ""
    if event.cause == "finished":
        return f"Task {event.task} finished{after}."
    if event.cause == "stopped":
        how = "was cancelled" if event.state == "cancelled" else "reached its walltime"
        return f"Task {event.task}{where} {how}{after}."
    how = f"with exit code {event.exit_code}" if event.exit_code is not None else f"({event.cause.replace('-', ' ')})"
    return f"Task {event.task}{where} failed{after}, {how}."


def tasks_parts(event: events.TasksProgress) -> list[str]:
    """Return the number of a job array's tasks in each state: ``2 of 8 tasks done``, ``3 running``."""
    parts = [f"{event.finished + event.failed + event.cancelled} of {counted(event.tasks, 'task')} done"]
    ended = ((event.failed, "failed"), (event.cancelled, "cancelled"))
    counts = (*ended, (event.running, "running"), (event.waiting, "waiting"))
    return parts + [f"{count} {state}" for count, state in counts if count]


def counts_text(counts: events.TaskCounts) -> str:
    """Return how many tasks a job array has, and how many are in each state: ``4 tasks: 3 running, 1 failed``."""
    ended = ((counts.finished, "completed"), (counts.failed, "failed"), (counts.cancelled, "cancelled"))
    states = ((counts.waiting, "waiting"), (counts.running, "running"), *ended)
    return f"{counted(counts.tasks, 'task')}: {', '.join(f'{count} {state}' for count, state in states if count)}"


def finished_lines(event: events.ScriptFinished) -> tuple[str, str]:
    """Return a sentence that the script finished, and a line with its folder that must not be folded."""
    took = f"after {stopwatch(event.seconds)}, with exit code 0"
    if event.tasks is not None:
        who = "The only task" if event.tasks == 1 else f"All {event.tasks} tasks"
        return f"{who} of {event.script} finished {took}, in:", f"  {event.folder}"
    sentence = f"The script {event.script} finished {took}. It ran in:"
    return sentence, f"  {event.folder}"


def saved_text(event: events.TemplateSaved) -> tuple[list[str], list[str]]:
    """Return sentences on what was written, and lines that must not be folded: what to type next."""
    written = _names(event.written)
    kept = [name for name in _names(event.unchanged) if name not in written]
    sentences = [f"Written: {_in_folder(event.folder, written)}"] if written else []
    sentences += [f"Already there, and the same: {_in_folder(event.folder, kept)}"] if kept else []
    if not event.command:
        return sentences, [f"To submit it, on the login node:  {event.on_login}"]
    if not event.on_login:
        return sentences, [f"To submit it:  {event.command}"]
    return sentences, [f"To submit it:             {event.command}", f"then, on the login node:  {event.on_login}"]


def _in_folder(folder: str, names: Sequence[str]) -> str:
    return listed([name if folder == "." else f"{folder.rstrip('/')}/{name}" for name in names])


def show_templates(console: Console, event: events.TemplatesListed) -> None:
    """Print the templates' names with their descriptions, and what to type next."""
    if not event.templates:
        console.print("There are no bundled job scripts.")
        return
    _print_table(console, [(name, sentence) for name, sentence in event.templates])
    name = printable(event.templates[0][0])
    for text in (
        f"To submit one:        launch-notebook submit {name}",
        f"To keep and edit one: launch-notebook jobscript {name} --to FOLDER",
    ):
        console.print(text, highlight=False, markup=False, soft_wrap=True)


def show_report(console: Console, event: events.JobReport) -> None:
    """Print a report on a job: on a terminal folded within its columns, otherwise each row on one line."""
    _line(console, _title(event), style="bold")
    if event.columns:
        _print_table(console, [(one.column, one.value, one.meaning) for one in event.columns], dim=2)
    if event.use:
        rows = [(one.of, one.asked, one.used, _share(one.share)) for one in event.use]
        _print_table(console, [("", "asked for", "used", ""), *rows], heading=True)
    if event.tasks is not None:
        tasks = [(one.step, one.state, one.tasks, one.cpu, one.memory) for one in event.steps]
        headings = ("task", "state", "where, how long", "CPU", "memory at most")
        _print_table(console, [headings, *tasks], heading=True)
    elif event.steps and (len(event.steps) > 1 or event.explained):
        steps = [(one.step, one.tasks, one.cpu, one.memory) for one in event.steps]
        _print_table(console, [("step", "tasks", "CPU", "memory at most"), *steps], heading=True)
    if energy := _energy(event):
        _line(console, f"Energy: {energy}", indent=2)
    for text in event.unknown if event.explained else ():
        _line(console, text, style="dim", indent=2)
    for text in event.advice if event.explained else event.advice[:1]:
        _line(console, text, indent=2)


def _title(event: events.JobReport) -> str:
    name = f" ({event.job_name})" if event.job_name else ""
    return f"Job {event.job}{name}: {event.state or 'its state is not known'}"


def _share(share: float | None) -> str:
    return "" if share is None else f"{share:.0f} %"


def _energy(event: events.JobReport) -> str:
    if event.joules is None:
        return ""
    source = "their own sensors" if event.energy_of == "GPUs" else "the scheduler's accounting"
    parts = [f"{amount(event.joules / 3600)} Wh of the {event.energy_of}, by {source}"]
    if event.joules_per_epoch is not None:
        parts.append(f"{amount(event.joules_per_epoch / 3600)} Wh per epoch")
    if event.joules_per_image is not None:
        parts.append(f"{three_digits(event.joules_per_image)} J per image")
    return ", ".join(parts)


def _line(console: Console, text: str, style: str = "", indent: int = 0) -> None:
    from rich.padding import Padding
    from rich.text import Text

    if console.is_terminal and indent:
        console.print(Padding(Text(printable(text), style=style), (0, 0, 0, indent), expand=False))
    else:
        text = " " * indent + printable(text)
        console.print(text, style=style, highlight=False, markup=False, soft_wrap=not console.is_terminal)


def _print_table(
    console: Console, rows: Sequence[Sequence[str]], *, heading: bool = False, dim: int | None = None
) -> None:
    from rich.padding import Padding
    from rich.table import Table
    from rich.text import Text

    rows = [[printable(text) for text in row] for row in rows]
    if not console.is_terminal:
        for text in _plain(rows):
            console.print(text, highlight=False, markup=False, soft_wrap=True)
        return
    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    for place in range(len(rows[0])):
        table.add_column(no_wrap=place == 0, overflow="fold", max_width=_VALUE if place == 1 and dim else None)
    for number, row in enumerate(rows):
        style = "bold" if heading and number == 0 else ""
        table.add_row(*(Text(text, style="dim" if place == dim else style) for place, text in enumerate(row)))
    console.print(Padding(table, (0, 0, 0, 2), expand=False))


def _plain(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Yield rows as lines with aligned columns, not folded."""
    widths = [max(len(row[place]) for row in rows) for place in range(len(rows[0]))]
    for row in rows:
        yield "  " + "  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip()
