"""The journal of a bench: which combinations there are, which session ran each, and what came of it.

One small file in the bench's folder, replaced whole at each change. A session is noted in it before its job is queued,
so that a launcher which is killed at any moment, and started again, finds every job.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import tempfile
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from notebook_launcher.bench.compare import Ran, Recording, read_recording
from notebook_launcher.bench.matrix import Combination
from notebook_launcher.core import events
from notebook_launcher.core.errors import UsageError

FILE, LOCK, RUNS, RESULTS = "bench.json", ".lock", "runs", "results.jsonl"
_PARTS = f".{FILE}."  # how the names of files begin that are to become the journal
LARGEST = 64 * 1024 * 1024  # bytes of a file of results that are read

State = Literal["planned", "queued", "done", "failed"]


class JournalEntry(BaseModel):
    """One combination. ``session``: the one that runs it, or ran it; noted before its job is queued.

    ``queued`` and ``started``: when its job was. ``earlier``: sessions of runs that count no more. ``why`` and
    ``kind``: how it failed, in a sentence, and the error's name; of one that is queued, why its results could not be
    fetched. ``in_queue``: seconds. ``image``: the digest of its image. ``number``: of its folder of results, from 1;
    ``None``: one more than there are earlier sessions.
    """

    model_config = ConfigDict(extra="ignore", frozen=True)

    name: str
    values: tuple[tuple[str, str], ...]
    folder: str
    state: State = "planned"
    session: str | None = None
    job: str | None = None
    queued: str | None = None
    started: str | None = None
    why: str = ""
    kind: str = ""
    in_queue: float | None = None
    image: str = ""
    earlier: tuple[str, ...] = ()
    number: int | None = None


class Journal(BaseModel):
    """All combinations that the folder has, in the order in which they came. ``digest``: of what the notebook does.

    ``place``: where they run. ``asked``: what was asked for beside the matrix (``matrix.beside``), ``None`` where that
    is not known. ``matrix`` and ``command``: as they were typed last.
    """

    model_config = ConfigDict(extra="ignore", frozen=True)

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


class BenchFolder:
    """A bench's folder while we hold its lock; see ``lock_folder``."""

    def __init__(self, folder: Path, journal: Journal) -> None:
        self.folder = folder
        self.journal = journal

    def __getitem__(self, name: str) -> JournalEntry:
        return next(entry for entry in self.journal.entries if entry.name == name)

    def names(self, *states: State) -> list[str]:
        """Return the combinations in these states, in their order."""
        return [entry.name for entry in self.journal.entries if entry.state in states]

    def change(self, name: str, **what: object) -> JournalEntry:
        """Change an entry, and keep that."""
        changed = self[name].model_copy(update=what)
        entries = tuple(changed if entry.name == name else entry for entry in self.journal.entries)
        self._keep(entries=entries)
        return changed

    def take(self, combinations: Sequence[Combination], *, matrix: str, command: str) -> None:
        """Add the combinations that are new, and keep what was typed."""
        known = {entry.name for entry in self.journal.entries}
        new = [JournalEntry(name=one.name, values=one.values, folder=one.folder) for one in combinations]
        entries = (*self.journal.entries, *(entry for entry in new if entry.name not in known))
        self._keep(entries=entries, matrix=matrix, command=command)

    def renew(self, *, notebook: str, digest: str, place: str, asked: str) -> bool:
        """Take over what has changed where ``check_same`` lets it; what failed is a gap again then. Return whether."""
        now = {"notebook": notebook, "digest": digest, "place": place, "asked": asked}
        if all(getattr(self.journal, name) in (None, value) for name, value in now.items()):
            return False
        failed = self.names("failed")
        for name in failed:
            self.put_back(name)
        self._keep(**now)
        return bool(failed)

    def put_back(self, name: str) -> None:
        """Let a combination be a gap again; its session is remembered as an earlier one."""
        entry = self[name]
        number = self._number(entry) + self.runs_folder(name).exists()  # what was fetched already stays as it is
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
        """Return where the bench stands, with what has just happened."""
        queued = [self[name] for name in self.names("queued")]
        running = tuple(entry.name for entry in queued if entry.started)
        waiting = tuple(name for name in self.names("planned", "queued") if name not in running)
        done, failed = tuple(self.names("done")), tuple(self.names("failed"))
        return events.BenchProgress(str(self.folder), text, waiting, running, done, failed)

    def runs_folder(self, name: str) -> Path:
        """Return where the results of a combination's present session go."""
        entry = self[name]
        number = self._number(entry)
        return self.folder / RUNS / (entry.folder if number == 1 else f"{entry.folder}-{number}")

    def _number(self, entry: JournalEntry) -> int:
        return entry.number or len(entry.earlier) + 1

    def ran(self) -> list[Ran]:
        """Return all combinations as a report needs them, with what they have recorded."""
        return [
            Ran(
                entry.name,
                entry.values,
                _shown_state(entry),
                self._recording(entry),
                entry.why,
                entry.in_queue,
                entry.image,
                entry.session or "",
                entry.job or "",
            )
            for entry in self.journal.entries
        ]

    def _recording(self, entry: JournalEntry) -> Recording:
        if entry.state not in ("done", "failed"):
            return Recording()
        with contextlib.suppress(OSError), (self.runs_folder(entry.name) / RESULTS).open("rb") as file:
            return read_recording(file.read(LARGEST).decode(errors="replace"))
        return Recording()

    def _keep(self, **what: object) -> None:
        self.journal = self.journal.model_copy(update=what)
        write_whole(self.folder / FILE, (self.journal.model_dump_json(indent=1) + "\n").encode())


def _shown_state(entry: JournalEntry) -> str:
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
    """Lock a bench's folder, made if need be, and yield it; no other launcher can use it meanwhile.

    ``fresh``: what is there is moved aside first, unless this raises something at the sight of it. Raises
    ``UsageError`` where another launcher is at it, or where it is another thing's folder.
    """
    from filelock import FileLock, Timeout

    folder = folder.absolute()
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        strange = [path.name for path in folder.iterdir() if path.name != LOCK and not path.name.startswith(_PARTS)]
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
        for part in folder.glob(f"{_PARTS}*"):  # of a launcher that was killed while it wrote
            part.unlink(missing_ok=True)
        if fresh:
            _call_before(fresh, folder)
            _move_aside(folder, now)
        new = Journal(id=secrets.token_hex(4), notebook=notebook, digest=digest, place=place, asked=asked, created=now)
        yield BenchFolder(folder, _read(folder) or new)
    finally:
        lock.release()


def _read(folder: Path) -> Journal | None:
    """Return what is noted there, ``None`` for a folder that is new. Raises ``UsageError`` for what is damaged."""
    try:
        return Journal.model_validate_json((folder / FILE).read_bytes())
    except FileNotFoundError:
        return None
    except (OSError, ValidationError) as error:
        why = str(error).splitlines()[0]
        raise UsageError(
            f"{folder / FILE} cannot be read.",
            why=why,
            hint="name another folder with --output, or start over with --fresh, which moves it aside",
        ) from None


def _call_before(fresh: Callable[[Journal], None], folder: Path) -> None:
    try:
        there = _read(folder)
    except UsageError:
        return  # what cannot be read tells of no job
    if there is not None:
        fresh(there)


def check_same(journal: Journal, *, notebook: str, digest: str, place: str, asked: str, folder: Path) -> None:
    """See that new results can stand beside those that are there, or are to come. Raises ``UsageError``."""
    is_empty = all(entry.state in ("planned", "failed") for entry in journal.entries)
    if is_empty and journal.notebook == notebook:
        return  # there is nothing yet that they would stand beside
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
    """Move all that is in a bench's folder into one beside it; the lock stays where it is."""
    there = [path for path in folder.iterdir() if path.name != LOCK]
    if not there:
        return
    aside = folder.with_name(f"{folder.name}.{now:%Y%m%d-%H%M%S}")
    try:
        aside.mkdir(mode=0o700)
        # the journal goes first: without it the rest is a bench's no more, and is found moved half at worst
        for path in sorted(there, key=lambda path: path.name != FILE):
            path.rename(aside / path.name)
    except OSError as error:
        raise UsageError(f"The old results could not be moved to {aside}.", why=error.strerror or str(error)) from None


def write_whole(path: Path, content: bytes) -> None:
    """Write a file for its owner alone, whole or not at all, and on the disk when this returns."""
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
    with contextlib.suppress(OSError):  # not every file system keeps a folder when told, nor does Windows
        opened = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(opened)
        finally:
            os.close(opened)
