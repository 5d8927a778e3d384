"""Events of notebooks, runs and benches."""

from __future__ import annotations

from notebook_launcher.core.events.base import Event


class NotebooksCopied(Event, name="notebooks_copied"):
    """A course's files were copied to the user's folder. ``kept``: those that the user has changed, not overwritten."""

    folder: str
    copied: tuple[str, ...]
    kept: tuple[str, ...]


class NotebookPrepared(Event, name="notebook_prepared"):
    """A notebook is ready to be sent. ``parameters``: those that were set; ``files``: the files sent with it."""

    notebook: str
    cells: int
    parameters: dict[str, object]
    files: tuple[str, ...]


class NotebookProgress(Event, name="notebook_progress"):
    """The progress of a notebook: ``done`` of its ``cells`` code cells have finished.

    ``cell``: the running one, counted from 1. ``heading``: the heading above it. ``seconds``: since the notebook was
    started, before its kernel, by the job's clock.
    """

    session: str
    job: str
    cell: int | None
    done: int
    cells: int
    heading: str
    seconds: float


class ResultsFetched(Event, name="results_fetched"):
    """The results of a run were fetched. ``complete``: whether the notebook had finished by then.

    ``files``: paths in ``folder``; ``not_fetched``: files that were too large, by their path on the cluster.
    """

    session: str
    notebook: str
    folder: str
    files: tuple[str, ...]
    not_fetched: tuple[str, ...]
    complete: bool


class NotebookFinished(Event, name="notebook_finished"):
    """A notebook finished. ``seconds``: from its start, before its kernel's, to the end of its last cell."""

    session: str
    job: str
    notebook: str
    cells: int
    seconds: float


class BundledNotebooks(Event, name="bundled_notebooks"):
    """The notebooks that are part of the package: pairs of a name and a sentence."""

    notebooks: tuple[tuple[str, str], ...]


class BenchProgress(Event, name="bench_progress"):
    """The state of a bench, by the names of its combinations. ``what``: what has just happened, in a sentence."""

    folder: str
    what: str
    waiting: tuple[str, ...]
    running: tuple[str, ...]
    done: tuple[str, ...]
    failed: tuple[str, ...]


class BenchReported(Event, name="bench_report"):
    """The report of a bench is written. ``rows``: how many results are in it; ``failed``: combinations, and why.

    ``conclusion``: what came out, in a few sentences.
    """

    folder: str
    html: str
    markdown: str
    csv: str
    rows: int
    failed: tuple[tuple[str, str], ...]
    conclusion: str = ""
