"""Makes a plan and a notebook for every combination of a matrix, ready to submit. No host is contacted."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import re
from collections.abc import Container
from pathlib import PurePosixPath
from typing import Any

from notebook_launcher.bench.journal import FILE, RESULTS, RUNS
from notebook_launcher.bench.matrix import Combination, Matrix
from notebook_launcher.bench.request import BenchRequest
from notebook_launcher.core.errors import NotebookInvalid
from notebook_launcher.core.frozen import Frozen
from notebook_launcher.core.text import joined, listed
from notebook_launcher.notebook.prepare import Prepared, prepare
from notebook_launcher.planning.plan import Plan, make_plan
from notebook_launcher.planning.target import LaunchOptions, LaunchTarget, LocalMachine, find_target
from notebook_launcher.session.record import json_object

#: in code that records results: with timing.py, or by itself as docs/timing.md describes
_RECORDS = re.compile(r"\btiming\b|NBL_RESULTS|results\.jsonl")


class ReadyCombination(Frozen):
    """One combination, ready to submit."""

    combination: Combination
    plan: Plan
    prepared: Prepared


def make_ready(
    matrix: Matrix, options: LaunchOptions, here: LocalMachine, request: BenchRequest, prepared_notebook: Prepared
) -> dict[str, ReadyCombination]:
    """Return all combinations by name. Raises if any of them is invalid."""
    places: dict[
        str | None, LaunchTarget
    ] = {}  # by begin time, because a course may use a different reservation on each day
    ready = {}
    for one in matrix.combinations():
        environment = one.value("env")
        words = ((environment,) if environment else ()) if environment is not None else options.arguments
        own = dataclasses.replace(options, flags={**options.flags, **one.flags()}, arguments=words)
        begin = own.flags.get("begin")
        if begin not in places:
            places[begin] = find_target(own, here)
        plan = make_plan(own, here, places[begin])
        try:
            prepared = prepare(request.notebook, one.pairs())
        except NotebookInvalid as error:
            raise _with_axes(error, one) from None
        # each in a folder of its own, even if the notebook's folder is visible there: several run at once
        prepared = dataclasses.replace(prepared, folder=None, dependencies=prepared_notebook.dependencies)
        plan = dataclasses.replace(plan, command=f"bench {request.command}".strip())
        ready[one.name] = ReadyCombination(one, plan, prepared)
    return ready


def _with_axes(error: NotebookInvalid, combination: Combination) -> NotebookInvalid:
    """Add to an error what else the name of an axis could have meant."""
    if combination.pairs():
        error.why = joined(error.why, "The other axes of a matrix are env, cores, gpus and long flags of sbatch.")
    return error


def prepare_notebook(request: BenchRequest) -> Prepared:
    """Return the notebook with its dependencies, but without results and bench folders of earlier runs.

    A run would take old results for its own, and a bench's files would change the notebook's digest each time.
    """
    prepared_notebook = prepare(request.notebook, (), request.dependencies)
    if not request.dependencies:
        return prepared_notebook
    imported = prepare(request.notebook, ()).dependencies
    names = prepared_notebook.dependencies
    skipped = [name for name in names if name not in imported and _is_made_by_a_run(name, names)]
    if not skipped:
        return prepared_notebook
    note = f"Not sent with the notebook, as earlier runs have made it: {listed(skipped)}. Rename it to have it sent."
    kept = {name: content for name, content in names.items() if name not in skipped}
    return dataclasses.replace(prepared_notebook, dependencies=kept, notes=(*prepared_notebook.notes, note))


def _is_made_by_a_run(name: str, all_names: Container[str]) -> bool:
    path = PurePosixPath(name)
    above = [folder.as_posix() for folder in path.parents][:-1]  # the last one is the notebook's own folder
    is_in_runs = bool(above) and (above[-1] == RUNS or above[-1].startswith("bench-"))
    return path.name == RESULTS or is_in_runs or any(f"{folder}/{FILE}" in all_names for folder in above)


def records_times(prepared: Prepared) -> bool:
    """Whether a notebook, or a file that goes with it, names what records times. What it imports there is not known."""
    code = [
        "".join(source) if isinstance(source := cell.get("source"), list) else str(source)
        for cell in _cells(prepared)
        if cell.get("cell_type") == "code"
    ]
    own = (content.decode(errors="replace") for content in prepared.dependencies.values())
    return any(_RECORDS.search(text) for text in (*code, *own))


def _cells(prepared: Prepared) -> list[dict[str, Any]]:
    cells = json_object(prepared.content).get("cells")
    return [cell for cell in (cells if isinstance(cells, list) else []) if isinstance(cell, dict)]


def digest_of(prepared: Prepared) -> str:
    """Return the SHA-256 of what a notebook does: its cells' sources, and its dependencies; without outputs."""
    sources = [[cell.get("cell_type"), cell.get("source")] for cell in _cells(prepared)]
    hashed = hashlib.sha256(json.dumps(sources).encode())
    for name, content in sorted(prepared.dependencies.items()):
        hashed.update(f"\0{name}\0{len(content)}\0".encode())
        hashed.update(content)
    return hashed.hexdigest()
