"""The journal of a bench: its combinations, the session of each, and its state.

One small file in the bench's folder, replaced atomically at each change. A session is recorded before its job is
submitted, so that a launcher that is killed at any time, and started again, finds every job. The file contains its own
checksum: an edited journal could attribute results to the wrong combination.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import secrets
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Annotated, Literal

from pydantic import ConfigDict, Field, ValidationError, model_validator

from notebook_launcher.bench.compare import CombinationRun, Recording, read_recording
from notebook_launcher.bench.matrix import Combination
from notebook_launcher.bench.run_usage import RunUsage
from notebook_launcher.bench.usage import read_usage
from notebook_launcher.core import events
from notebook_launcher.core.bounded_read import open_regular, read_at_most
from notebook_launcher.core.errors import UsageError
from notebook_launcher.core.file_model import FileModel
from notebook_launcher.core.text import printable
from notebook_launcher.session.record import SESSION_ID, json_object

FILE, LOCK, RUNS, RESULTS = "bench.json", ".lock", "runs", "results.jsonl"
_PREFIX = f".{FILE}."  # prefix of the temporary files that replace the journal
LARGEST = 64 * 1024 * 1024  # bytes read of a results file or a journal
_LONGEST_WHY = 200  # characters

State = Literal["planned", "queued", "done", "failed"]
SessionId = Annotated[str, Field(pattern=rf"^{SESSION_ID.pattern}$")]


class JournalEntry(FileModel):
    """One combination. ``session``: the session that runs or ran it, recorded before its job is submitted.

    ``queued`` and ``started``: when its job was. ``earlier``: sessions of runs that no longer count. ``why`` and
    ``kind``: how it failed, in a sentence, and the error's name; if it is queued, why its results could not be fetched.
    ``in_queue``: seconds. ``image``: the digest of its image. ``number``: the number of its results folder, from 1;
    ``None``: one more than the number of earlier sessions.
    """

    model_config = ConfigDict(extra="ignore")

    name: str
    values: tuple[tuple[str, str], ...]
    folder: str
    state: State = "planned"
    session: SessionId | None = None
    job: str | None = None
    queued: str | None = None
    started: str | None = None
    why: str = ""
    kind: str = ""
    in_queue: Annotated[float, Field(ge=0, allow_inf_nan=False)] | None = None
    image: str = ""
    earlier: tuple[SessionId, ...] = ()
    number: Annotated[int, Field(ge=1, lt=10**6)] | None = None

    @model_validator(mode="after")
    def _is_consistent(self) -> JournalEntry:
        """Check that the name and the folder are those that follow from the values, and so lead nowhere else."""
        one = Combination(self.values, ())
        if (self.name, self.folder) != (one.name, one.folder):
            raise ValueError("a name or a folder is not that of its values")
        if self.session is None and self.state in ("queued", "done"):
            raise ValueError(f"what is {self.state} has no session")
        return self


class Journal(FileModel):
    """All combinations of the folder, in the order in which they were added. ``digest``: of what the notebook does.

    ``place``: the target's name. ``asked``: the options besides the matrix (``matrix.beside``), ``None`` if not known.
    ``matrix`` and ``command``: as last typed. ``check``: the checksum of everything else; ``None`` in a journal of an
    older version, which wrote none.
    """

    model_config = ConfigDict(extra="ignore")

    version: Literal[1] = 1
    id: str
    notebook: str
    digest: str
    place: str
    asked: str | None = None
    created: datetime
    matrix: str = ""
    command: str = ""
    entries: tuple[JournalEntry, ...] = ()
    check: str | None = None

    @model_validator(mode="after")
    def _has_nothing_twice(self) -> Journal:
        """Check that no combination occurs twice, and that no session belongs to two of them."""
        sessions = [name for one in self.entries for name in (one.session, *one.earlier) if name]
        if len({one.name for one in self.entries}) < len(self.entries) or len(set(sessions)) < len(sessions):
            raise ValueError("a combination or a session is in it twice")
        return self


class BenchFolder:
    """A bench's folder whose lock we hold; see ``lock_folder``."""

    def __init__(self, folder: Path, journal: Journal) -> None:
        self.folder = folder
        self.journal = journal

    def __getitem__(self, name: str) -> JournalEntry:
        return next(entry for entry in self.journal.entries if entry.name == name)

    def names(self, *states: State) -> list[str]:
        """Return the combinations in these states, in order."""
        return [entry.name for entry in self.journal.entries if entry.state in states]

    def change(self, name: str, **what: object) -> JournalEntry:
        """Change an entry, and save the journal."""
        changed = self[name].model_copy(update=_writable(what))
        entries = tuple(changed if entry.name == name else entry for entry in self.journal.entries)
        self._keep(entries=entries)
        return changed

    def add(self, combinations: Sequence[Combination], *, matrix: str, command: str) -> None:
        """Add the new combinations, and save what was typed."""
        known = {entry.name for entry in self.journal.entries}
        new = [JournalEntry(name=one.name, values=one.values, folder=one.folder) for one in combinations]
        entries = (*self.journal.entries, *(entry for entry in new if entry.name not in known))
        self._keep(entries=entries, matrix=matrix, command=command)

    def update_settings(self, *, notebook: str, digest: str, place: str, asked: str) -> bool:
        """Accept settings that ``check_same`` allows, and return whether failed combinations are to be run again."""
        now = {"notebook": notebook, "digest": digest, "place": place, "asked": asked}
        if all(getattr(self.journal, name) in (None, value) for name, value in now.items()):
            return False
        failed = self.names("failed")
        for name in failed:
            self.put_back(name)
        self._keep(**now)
        return bool(failed)

    def put_back(self, name: str) -> None:
        """Mark a combination to be run again; its session is kept as an earlier one."""
        entry = self[name]
        number = self._number(entry) + self.runs_folder(name).exists()  # results that were already fetched stay
        earlier = (*entry.earlier, *([entry.session] if entry.session else []))
        nothing = {
            "session": None,
            "job": None,
            "queued": None,
            "started": None,
            "why": "",
            "kind": "",
            "in_queue": None,
        }
        self.change(name, state="planned", earlier=earlier, number=number, **nothing)

    def progress(self, text: str) -> events.BenchProgress:
        """Return the state of the bench, with the latest event."""
        queued = [self[name] for name in self.names("queued")]
        running = tuple(entry.name for entry in queued if entry.started)
        waiting = tuple(name for name in self.names("planned", "queued") if name not in running)
        done, failed = tuple(self.names("done")), tuple(self.names("failed"))
        return events.BenchProgress(str(self.folder), text, waiting, running, done, failed)

    def runs_folder(self, name: str) -> Path:
        """Return the folder for the results of a combination's current session."""
        entry = self[name]
        number = self._number(entry)
        return self.folder / RUNS / (entry.folder if number == 1 else f"{entry.folder}-{number}")

    def _number(self, entry: JournalEntry) -> int:
        return entry.number or len(entry.earlier) + 1

    def runs(self) -> list[CombinationRun]:
        """Return all combinations with their results, for a report."""
        return [
            CombinationRun(
                entry.name,
                entry.values,
                _report_state(entry),
                self._recording(entry),
                entry.why,
                entry.in_queue,
                entry.image,
                entry.session or "",
                entry.job or "",
                use=self._use(entry),
            )
            for entry in self.journal.entries
        ]

    def _use(self, entry: JournalEntry) -> RunUsage:
        return read_usage(self.runs_folder(entry.name)) if entry.state in ("done", "failed") else RunUsage()

    def _recording(self, entry: JournalEntry) -> Recording:
        if entry.state not in ("done", "failed"):
            return Recording()
        with contextlib.suppress(OSError), open_regular(self.runs_folder(entry.name) / RESULTS) as file:
            return read_recording(file.read(LARGEST).decode(errors="replace"))
        return Recording()

    def _keep(self, **what: object) -> None:
        self.journal = self.journal.model_copy(update=_writable(what))
        data = json.loads(self.journal.model_dump_json(exclude={"check"}))
        text = json.dumps({**data, "check": _sum(data)}, indent=1, ensure_ascii=False)
        write_atomically(self.folder / FILE, f"{text}\n".encode())


def _writable(what: Mapping[str, object]) -> dict[str, object]:
    """Return values whose texts can be encoded in a file: those from jobs and servers may have any character."""
    return {key: printable(value) if isinstance(value, str) else value for key, value in what.items()}


def _sum(data: Mapping[str, object]) -> str:
    """Return the checksum of a journal's data without its ``check``."""
    return hashlib.sha256(json.dumps(data, sort_keys=True).encode()).hexdigest()


def _report_state(entry: JournalEntry) -> str:
    if entry.state == "queued":
        return "not fetched" if entry.why else "running" if entry.started else "waiting"
    return "waiting" if entry.state == "planned" else entry.state


@contextlib.contextmanager
def lock_folder(
    folder: Path,
    *,
    notebook: str,
    digest: str,
    place: str,
    asked: str,
    now: datetime,
    fresh: Callable[[Journal], None] | None = None,
) -> Iterator[BenchFolder]:
    """Lock a bench's folder, created if necessary, and yield it; no other launcher can use it meanwhile.

    ``fresh``: move the existing contents aside first, unless this raises an error. Raises ``UsageError`` if another
    launcher uses the folder, or it does not belong to a bench.
    """
    from filelock import FileLock, Timeout

    folder = folder.absolute()
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        strange = [path.name for path in folder.iterdir() if path.name != LOCK and not path.name.startswith(_PREFIX)]
    except OSError as error:
        raise UsageError(f"{folder} cannot be used as a folder.", why=error.strerror or str(error)) from None
    if strange and not (folder / FILE).is_file():
        raise UsageError(
            f"{folder} is not empty, and is not the folder of a bench.", hint="name another folder with --output"
        )
    lock = FileLock(folder / LOCK, timeout=0, mode=0o600)
    try:
        lock.acquire()
    except Timeout:
        raise UsageError(
            f"Another launch-notebook uses the bench in {folder}.",
            why="Two would queue the same combinations.",
            hint="wait for it, or name another folder with --output",
        ) from None
    except (OSError, NotImplementedError) as error:
        raise UsageError(
            f"{folder} cannot be locked against a second launch-notebook.",
            why=str(error),
            hint="name a folder on a disk of this machine with --output",
        ) from None
    try:
        for part in folder.glob(f"{_PREFIX}*"):  # left by a launcher that was killed while writing
            part.unlink(missing_ok=True)
        if fresh:
            _call_before(fresh, folder)
            _move_aside(folder, now)
        new = Journal(id=secrets.token_hex(4), notebook=notebook, digest=digest, place=place, asked=asked, created=now)
        yield BenchFolder(folder, _read(folder) or new)
    finally:
        lock.release()


def _read(folder: Path) -> Journal | None:
    """Return the folder's journal, ``None`` for a new folder. Raises ``UsageError`` for a damaged one."""
    found, unchanged = _parse(folder)
    if not unchanged:
        found = "It was changed since launch-notebook wrote it."
    if isinstance(found, str):
        raise UsageError(
            f"{folder / FILE} cannot be read.",
            why=found,
            hint="name another folder with --output, or start over with --fresh, which moves it aside",
        )
    return found


def _parse(folder: Path) -> tuple[Journal | str | None, bool]:
    """Return the journal, ``None`` for a new folder, or why it is invalid; and whether its checksum is right."""
    try:
        content = read_at_most(folder / FILE, LARGEST)
        if content is None:
            return "It is too large.", True
        found = Journal.model_validate_json(content)
    except FileNotFoundError:
        return None, True
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        return printable(f"{'.'.join(map(str, first['loc']))}: {first['msg']}".removeprefix(": "))[:_LONGEST_WHY], True
    except OSError as error:
        return error.strerror or str(error), True
    data = dict(json_object(content))
    return found, found.check is None or data.pop("check", None) == _sum(data)


def _call_before(fresh: Callable[[Journal], None], folder: Path) -> None:
    there, _ = _parse(folder)  # the jobs in an edited journal may exist nevertheless
    if isinstance(there, Journal):
        fresh(there)


def check_same(journal: Journal, *, notebook: str, digest: str, place: str, asked: str, folder: Path) -> None:
    """Check that new results will be comparable with the existing or expected ones. Raises ``UsageError``."""
    is_empty = all(entry.state in ("planned", "failed") for entry in journal.entries)
    if is_empty and journal.notebook == notebook:
        return  # there are no results yet
    if (journal.notebook, journal.digest) != (notebook, digest):
        what = (
            f"The results in {folder} are of another notebook, {journal.notebook}."
            if journal.notebook != notebook
            else f"{notebook}, or a file that goes with it, was changed since the results in {folder} were made."
        )
        why = "Numbers of different code cannot be compared."
    elif journal.place != place:
        what, why = f"The results in {folder} are of another place, {journal.place}.", f"Now it is {place}."
    elif journal.asked is not None and journal.asked != asked:
        what = f"The results in {folder} were made with other options beside the matrix."
        why = f"Then: {journal.asked or 'none'}. Now: {asked or 'none'}. The results' names would not show that."
    else:
        return
    raise UsageError(
        what,
        why=why,
        hint="name another folder with --output, or start over with --fresh, which moves the old results aside",
    )


def _move_aside(folder: Path, now: datetime) -> None:
    """Move the contents of a bench's folder into a folder beside it; the lock stays."""
    there = [path for path in folder.iterdir() if path.name != LOCK]
    if not there:
        return
    aside = folder.with_name(f"{folder.name}.{now:%Y%m%d-%H%M%S}")
    try:
        aside.mkdir(mode=0o700)
        # the journal first: without it the rest is no longer a bench, even if only half of it is moved
        for path in sorted(there, key=lambda path: path.name != FILE):
            path.rename(aside / path.name)
    except OSError as error:
        raise UsageError(f"The old results could not be moved to {aside}.", why=error.strerror or str(error)) from None


def write_atomically(path: Path, content: bytes) -> None:
    """Write a file atomically with private permissions, and flush it to disk."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    descriptor, beside = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        Path(beside).replace(path)
    except BaseException:
        Path(beside).unlink(missing_ok=True)
        raise
    with contextlib.suppress(OSError):  # Windows and some file systems cannot flush a folder
        opened = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(opened)
        finally:
            os.close(opened)
