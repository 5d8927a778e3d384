"""Chooses the directives of a script that apply on a cluster, and the file that it reads as its standard input."""

from __future__ import annotations

import dataclasses
import shlex
from pathlib import Path, PurePosixPath

from notebook_launcher.core.bsub_directives import MARK, marked_lines, read_bsub_directives
from notebook_launcher.core.errors import NotebookInvalid, ScriptInvalid, UsageError
from notebook_launcher.core.sbatch_directives import Directives, read_directives
from notebook_launcher.notebook.dependencies import LARGEST, read_file
from notebook_launcher.schedulers.make import make_scheduler
from notebook_launcher.scripts.prepare import PreparedScript

_NAMES = {"#BSUB": "LSF", "#PBS": "PBS", "#$": "Grid Engine"}
_TOGETHER = " and "
_LOGS = ("output", "error", "open-mode")  # LSF resolves them relative to another folder


def for_scheduler(script: PreparedScript, scheduler: str, cluster: str | None) -> PreparedScript:
    """Return the script with the flags of the directives that apply. ``scheduler``: ``auto`` if not known yet.

    With LSF, only ``#BSUB`` lines apply if the script has any, as with bsub. Raises ``ScriptInvalid`` if all directives
    are for another scheduler, or for one whose directives cannot be read, and ``UsageError`` for ``#BSUB`` lines that
    cannot be passed on.
    """
    own = script.directives
    if scheduler == "lsf" and MARK in own.others:
        return _with_bsub_directives(script)
    if own.is_marked or not own.others:
        return script
    if MARK in own.others and scheduler in ("auto", "local"):
        return _with_bsub_directives(script)
    if scheduler == "local":
        note = f"The script's {_TOGETHER.join(own.others)} lines have no effect here: there is no scheduler."
        return dataclasses.replace(script, notes=(*script.notes, note))
    raise _for_others(script, scheduler, cluster)


def check_scheduler_found(script: PreparedScript, planned: str, found: str, cluster: str | None) -> None:
    """Raise ``ScriptInvalid`` if all directives are for another scheduler than the one found after login.

    ``planned``: the scheduler assumed before; ``auto``: it was not known, so that ``#BSUB`` lines were read.
    """
    lines = read_directives(script.content.decode(errors="surrogateescape"))
    if planned == "auto" and found not in ("lsf", "local") and MARK in lines.others and not lines.is_marked:
        raise _for_others(script, found, cluster)


def _with_bsub_directives(script: PreparedScript) -> PreparedScript:
    found = read_bsub_directives(script.content.decode(errors="surrogateescape"))
    notes = [*script.notes]
    if found.left_out:
        notes.append(f"Left out of what the #BSUB lines ask for: {', '.join(found.left_out)}.")
    if logs := [value for name in _LOGS[:2] if (value := found.flags.get(name))]:
        notes.append(f"What it prints goes to the session's log, not to {_TOGETHER.join(logs)}: launch-notebook logs")
    flags = {name: value for name, value in found.flags.items() if name not in _LOGS}
    return dataclasses.replace(script, directives=Directives(flags, script.directives.others), notes=tuple(notes))


def _for_others(script: PreparedScript, scheduler: str, cluster: str | None) -> ScriptInvalid:
    """Return the error for a script whose directives are all for another scheduler, or of a kind that is not read."""
    marks = script.directives.others
    known = None if scheduler == "auto" else make_scheduler(scheduler, "")
    where = f"and {cluster or 'this cluster'} has {known.title if known else 'another scheduler'}"
    hint = "write what it needs in #SBATCH lines below its first line, such as:"
    if known and known.directive in marks:  # its own directives, which are not translated
        where = "which are not read here"
        by_hand = known.submit_by_hand(shlex.quote(script.name))
        hint = f"submit it on the login node, with {by_hand}, or {hint}"
    lines = ["#SBATCH --time=1:00:00"]
    if MARK in marks:
        try:
            flags = read_bsub_directives(script.content.decode(errors="surrogateescape")).flags
            lines = list(marked_lines(flags)) or lines
        except UsageError:
            pass
    return ScriptInvalid(
        f"{script.name} asks for what it needs in {_TOGETHER.join(marks)} lines, for "
        f"{_TOGETHER.join(_NAMES[mark] for mark in marks)}, {where}.",
        why="Without these lines it would get the defaults, and perhaps no GPU. Nothing was submitted.",
        hint="\n  ".join([hint, *lines]),
    )


# --- its standard input ----------------------------------------------------------------------------------------


def with_input(script: PreparedScript, name: str | None, *, is_remote: bool) -> PreparedScript:
    """Return the script with the file that it reads as its standard input, which is sent with it if it runs remotely.

    ``name``: as typed after ``--input``; an absolute path is on the cluster, any other is relative to the current
    folder. Raises ``UsageError`` if the file does not exist, or cannot be sent.
    """
    if name is None or name == "/dev/null":
        return script
    if not name or not name.isprintable():
        raise UsageError("--input names no file.", hint="for example: --input data.txt")
    if "%" in name:
        raise UsageError(f"--input={name} has a pattern, which is not replaced here.", hint="name one file")
    files = script.files
    if is_remote and not name.startswith("/"):
        inside = PurePosixPath(name).as_posix()
        if ".." in PurePosixPath(name).parts or inside.startswith("~"):
            raise UsageError(
                f"--input={name} is not in this folder, so it cannot go along.",
                hint="name a file of this folder, or one on the cluster by its whole path, from /",
            )
        files = files if inside in files else {**files, inside: _content(script, inside, name)}
    return dataclasses.replace(script, files=files, stdin=name)


def _content(script: PreparedScript, inside: str, name: str) -> bytes:
    if inside == script.name:
        raise UsageError(f"--input={name} is the script itself.", hint="name another file")
    places = [Path.cwd() / inside, *([script.folder / inside] if script.folder else [])]
    path = next((place for place in places if place.is_file()), None)
    if path is None:
        raise UsageError(
            f"The file {name}, which the script is to read (--input), is not in this folder.",
            why="It goes along with the script.",
            hint="name one of this folder, or one on the cluster by its whole path, from /",
        )
    try:
        return read_file(path, LARGEST - sum(map(len, script.files.values())))
    except NotebookInvalid as error:
        raise UsageError(error.what, why=error.why, hint=error.hint) from None
