"""What a run has made comes here: the notebook with its outputs, what it wrote, and what the job noted of itself.

Names and sizes come from another machine, and are not believed to.
"""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import hashlib
import json
import os
import re
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from notebook_launcher import __version__
from notebook_launcher.core import events
from notebook_launcher.core.errors import ConnectionLost, CopyFailed, Interrupted
from notebook_launcher.core.local_state import lock_file
from notebook_launcher.core.quantities import file_size
from notebook_launcher.core.text import finite
from notebook_launcher.notebook.manifest import CopiedFile, copied_files, may_write, name_beside, state_of
from notebook_launcher.session.context import Context
from notebook_launcher.session.record import Session, json_object
from notebook_launcher.transfer.data import MOST_REST, NO_TAR, Incoming, sweep
from notebook_launcher.transfer.endpoints import broke_off
from notebook_launcher.transfer.paths import LONGEST_NAME, is_safe
from notebook_launcher.transfer.protocol import PIECE, Wire, ask, names
from notebook_launcher.transfer.remote_endpoint import RemoteEndpoint, hashes_of, is_size

MOST_FILES = 1000  # that a run may have written, to be fetched
MOST_BYTES = 64 * 1024 * 1024  # of one file; larger ones are the copy command's
MOST_ALL = 1024 * 1024 * 1024  # bytes of all of them
ATTEMPTS = 3  # where the connection breaks meanwhile
WAIT = 600.0  # seconds for another launcher that fetches into the same folder
LARGE = 16 * 1024 * 1024  # bytes from which on it is said how far it is
SAY_EVERY = 5.0  # seconds
RECORD = "run.json"
USAGE = "usage.csv"
SENT = "sent.json"
_NOTES = ("exit.json", "started.json", "image.json", "progress.json", SENT)
_MOST_NOTED = 1024 * 1024  # bytes of each
_ODD = re.compile(r"[^\w.-]+")
_CONTROLS = re.compile(r"[\x00-\x1f\x7f\ud800-\udfff]")


def results_folder(session: Session, output: Path = Path("runs")) -> Path:
    """Return the folder below ``output`` in which a run's results are kept: ``train-20261122-101500-abcd``."""
    stem = _ODD.sub("_", Path(session.record.notebook or "notebook").stem).lstrip(".") or "notebook"
    stem = stem.encode()[:200].decode(errors="ignore")  # the folder's name may have 255 bytes
    return output / f"{stem}-{session.id}"


def fetch_results(context: Context, session: Session, folder: Path) -> events.ResultsFetched:
    """Fetch what a run has made so far into ``folder`` (made if need be), and return what is there then.

    To be called again at any time: only what is new comes, and a file that was changed here since is left as it is;
    the new one is put beside it. Shows how far it is where that takes long, and nothing else. A connection that breaks
    meanwhile is made anew. Raises ``ConnectionLost``; ``CopyFailed`` where something cannot be kept here;
    ``Interrupted`` after a Ctrl-C that comes meanwhile. What has come by then is kept.
    """
    attempt, exit_requests = 1, context.interrupts.exit_requests
    while True:
        try:
            if not context.host.alive:
                context.host.reconnect()
            return _Fetching(context, session, folder, exit_requests).run()
        except ConnectionLost:
            if attempt == ATTEMPTS:
                raise
            attempt += 1


@dataclass(frozen=True)
class _Found:
    """A file on the cluster: its size, and its time as it was told."""

    size: int
    time: str


class _Fetching:
    """One look at a run's directory, and what is fetched then. Paths there are below the session's directory."""

    def __init__(self, context: Context, session: Session, folder: Path, exit_requests: int) -> None:
        self._context, self._session, self._folder = context, session, folder
        self._exit_requests = exit_requests  # to end, before anything was fetched
        self._there = RemoteEndpoint(context.host)
        self._notebook = session.record.notebook or "notebook.ipynb"
        self._known: dict[str, CopiedFile] = {}
        self._kept: dict[str, CopiedFile] = {}
        self._notes: dict[str, Mapping[str, object]] = {}
        self._left: list[str] = []
        self._bytes = self._bytes_wanted = 0
        self._reported_at = time.monotonic()

    def run(self) -> events.ResultsFetched:
        """Look, fetch what is new, put it in its place, and note it down."""
        found = self._inspect()
        with _kept_here(self._folder):
            _make(self._folder)
            with self._alone() as waited:
                self._fetch(self._inspect() if waited else found)
        return events.ResultsFetched(
            self._session.id, self._notebook, str(self._folder), self._names(), tuple(self._left), self._is_whole
        )

    def _fetch(self, found: dict[str, _Found]) -> None:
        self._known = copied_files(_read(self._folder).get("fetched"))
        for origin in self._unchanged(found):
            del found[origin]
        wanted = self._wanted(found)
        sweep(self._folder, ".part-" + "?" * 8)
        parts = Path(tempfile.mkdtemp(prefix=".part-", dir=self._folder))
        came: list[tuple[str, Path, str]] = []
        try:
            try:
                for one in self._streamed(wanted, found, parts):
                    came.append(one)
            finally:  # whatever broke: what has come is kept
                self._settle(came, found, parts / "record")
        finally:
            shutil.rmtree(parts, ignore_errors=True)

    @contextlib.contextmanager
    def _alone(self) -> Iterator[bool]:
        """Keep other launchers from this folder; yields whether one had to be waited for."""
        from filelock import FileLock, Timeout

        lock, began, waited = None, time.monotonic(), False
        while True:
            try:
                lock = lock or FileLock(lock_file("fetching", str(self._folder.resolve())), timeout=0, mode=0o600)
                lock.acquire()
                break
            except Timeout:
                if not waited:
                    self._context.view.show(events.Querying("another launch-notebook fetches into the same folder"))
                waited = True
            except (OSError, NotImplementedError):  # a file system without locks, or a home that is read-only
                lock = None
                break
            self._refuse_if_interrupted()
            if time.monotonic() - began > WAIT:
                raise CopyFailed(
                    f"Another launch-notebook fetches into {self._folder}.",
                    hint="wait for it, or take another folder with --output",
                )
            time.sleep(0.2)
        try:
            yield waited
        finally:
            if lock is not None:
                lock.release()

    def _refuse_if_interrupted(self) -> None:
        if self._context.interrupts.exit_requests > self._exit_requests:
            raise Interrupted(
                "Interrupted: not all of the results were fetched.",
                hint=f"fetch the rest with: launch-notebook results {self._session.id}",
            )

    def _say_how_far(self, count: int) -> None:
        """Count bytes that have come, and say now and then how many of a large fetch there are."""
        self._bytes += count
        if self._bytes_wanted >= LARGE and time.monotonic() - self._reported_at >= SAY_EVERY:
            self._reported_at = time.monotonic()
            far = f"{self._bytes >> 20} of {self._bytes_wanted >> 20} MiB"
            self._context.view.show(events.Querying(f"fetching what the notebook has made: {far}"))

    @property
    def _is_whole(self) -> bool:
        return self._notes.get("exit.json", {}).get("cause") == "finished"

    def _names(self) -> tuple[str, ...]:
        """Return what is here, the notebook first."""
        first = f"work/{self._notebook}"
        kept = sorted(self._kept, key=lambda origin: (origin != first, self._kept[origin].name))
        return tuple(self._kept[origin].name for origin in kept)

    # --- what is there

    def _inspect(self) -> dict[str, _Found]:
        stem = self._notebook.removesuffix(".ipynb")
        first = [f"work/{name}" for name in (self._notebook, f"{stem}.py", f"{stem}.out", "results.jsonl")]
        most = MOST_FILES + len(self._session.record.sent) + 1
        arguments = [self._session.directory, str(most), USAGE, *_NOTES, *first]
        reply = ask(self._there.host, "results", *arguments, meanwhile=self._refuse_if_interrupted)
        if reply.code:
            raise broke_off(self._there.label, reply.stderr)
        fields = reply.fields()
        found: dict[str, _Found] = {}
        for size, moment, name in zip(fields[::3], fields[1::3], fields[2::3], strict=False):
            if is_size(size):
                found.setdefault(name, _Found(int(size), moment))
        return found

    def _unchanged(self, found: Mapping[str, _Found]) -> list[str]:
        """Return what was sent there and is as it was: it is here already."""
        sent = [
            origin
            for name in self._session.record.sent
            if (origin := f"work/{name}") in found and found[origin].size <= MOST_BYTES
        ]
        if not sent:
            return []
        directory = self._session.directory
        recorded = json_object(self._there.host.read_file(f"{directory}/{SENT}") or b"").get("files")
        digests = recorded if isinstance(recorded, dict) else {}
        paths, size = names([f"{directory}/{origin}" for origin in sent]), sum(found[one].size for one in sent)
        # whatever its exit code: a file that has gone meanwhile has no hash
        reply = ask(self._there.host, "hashes", data=paths, reads=size, meanwhile=self._refuse_if_interrupted)
        now = hashes_of(reply)
        return [one for one in sent if now.get(f"{directory}/{one}", "") == digests.get(one.removeprefix("work/"))]

    def _wanted(self, found: Mapping[str, _Found]) -> list[str]:
        """Return what is to be fetched now; what is too much, or has a name that cannot be kept here, is told."""
        wanted, count, total = [], 0, 0
        for origin, remote in found.items():
            if origin in _NOTES:
                if remote.size <= _MOST_NOTED:
                    wanted.append(origin)
                continue
            name = _name(origin)
            if name is None or remote.size > MOST_BYTES or total + remote.size > MOST_ALL:
                self._leave(origin, remote.size)
                continue
            total, count = total + remote.size, count + 1
            if count > MOST_FILES:
                self._left.append(f"{self._session.directory}/work (more than {MOST_FILES} files)")
                break
            if (kept := self._known.get(origin)) and self._is_the_same(kept, remote):
                self._kept[origin] = kept
            else:
                wanted.append(origin)
                self._bytes_wanted += remote.size
        return wanted

    def _leave(self, origin: str, size: int) -> None:
        """Tell what stays there. What is odd in its name stands as an escape: with a backslash, that is."""
        path = f"{self._session.directory}/{origin}"
        shown = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in path)
        self._left.append(f"{shown} ({file_size(size)})")

    def _is_the_same(self, kept: CopiedFile, remote: _Found) -> bool:
        """Whether it is what was fetched before, and is here, whatever the user has made of it since."""
        if kept.before is not None:
            return False
        return (kept.bytes, kept.time) == (remote.size, remote.time) and os.path.lexists(self._folder / kept.name)

    # --- what comes

    def _streamed(self, wanted: list[str], found: Mapping[str, _Found], parts: Path) -> Iterator[tuple[str, Path, str]]:
        """Yield each file that was asked for, written to a part of its own, with its hash; notes are kept in memory."""
        expected = {f".{self._session.directory}/{origin}": origin for origin in wanted}
        count = 0
        with Wire(self._there.host, "pack", [], meanwhile=self._refuse_if_interrupted) as wire:
            with contextlib.suppress(BrokenPipeError):  # its answer tells why
                wire.send(names(list(expected)))
            wire.end_data()
            incoming = Incoming(wire, self._there.label, 2 * MOST_ALL)
            try:
                with incoming.opened() as archive:
                    for entry in incoming.entries(archive, len(wanted)):
                        origin = expected.get(entry.name)
                        if origin is None or not entry.isreg() or entry.issparse() or entry.size > MOST_BYTES:
                            continue
                        file = archive.extractfile(entry)
                        if file is None:
                            continue
                        if origin in _NOTES:
                            self._notes[origin] = json_object(file.read(_MOST_NOTED))
                        else:
                            count += 1
                            path = parts / str(count)
                            yield origin, path, _written(file, path, self._say_how_far)
                        del expected[entry.name]
            except NO_TAR:
                wire.reply(incoming.left + MOST_REST)  # raises, where the connection broke
                raise CopyFailed(
                    f"The results of session {self._session.id} were not fetched completely.",
                    hint="type the same command to fetch the rest",
                ) from None
            reply = wire.reply(MOST_REST)
        if reply.code and wanted and len(expected) == len(wanted):  # else a file has only vanished, or grown, meanwhile
            raise broke_off(self._there.label, reply.stderr)
        for origin in expected.values():
            if origin not in _NOTES:
                self._leave(origin, found[origin].size)

    def _settle(self, came: list[tuple[str, Path, str]], found: Mapping[str, _Found], record: Path) -> None:
        """Give each part its place. What is about to be replaced is noted before: that may be cut off, too."""
        placed = [
            (origin, part, kept)
            for origin, part, digest in came
            if (kept := self._placed(origin, digest, found[origin]))
        ]
        if placed:
            self._note_down(record)
        for origin, part, kept in placed:
            _make((self._folder / kept.name).parent)
            part.replace(self._folder / kept.name)
            self._kept[origin] = dataclasses.replace(kept, before=None)
        self._note_down(record)

    def _placed(self, origin: str, digest: str, remote: _Found) -> CopiedFile | None:
        """Find a file its place: over what was fetched before, but never over what the user has made."""
        others = {**self._known, **self._kept}
        before = others.pop(origin, None)
        taken = {kept.name for kept in others.values()} | {RECORD, USAGE} - {origin}
        for candidate in _candidates(_name(origin) or "file"):
            if candidate in taken:
                continue
            there = state_of(self._folder, candidate)
            copied = (before.sha256, before.before) if before and before.name == candidate else ()
            if may_write(there, digest, copied):
                kept = CopiedFile(candidate, digest, remote.size, remote.time, before=there)
                self._kept[origin] = kept
                return kept
        self._leave(origin, remote.size)
        return None

    # --- what is noted down

    def _note_down(self, part: Path) -> None:
        """Write ``run.json``: what was run, where, how it ended, and what was fetched of it, now or before."""
        summary = _summary(self._session, self._notes)
        if not self._notes:  # none has come: those of an earlier look count
            summary = {**summary, **_read(self._folder)}
        fetched = {origin: kept.as_noted() for origin, kept in sorted({**self._known, **self._kept}.items())}
        try:
            text = _as_json({**summary, "fetched": fetched})
        except RecursionError:  # a note that was made to be so
            text = _as_json({**_summary(self._session, {}), "fetched": fetched})
        with open(_new(part), "w", encoding="utf-8", errors="backslashreplace") as file:
            file.write(f"{text}\n")
        part.replace(self._folder / RECORD)


def _summary(session: Session, notes: Mapping[str, Mapping[str, object]]) -> dict[str, object]:
    """Return what is known of a run, from its record and its job's own words."""
    record, ended, started = session.record, notes.get("exit.json", {}), notes.get("started.json", {})
    sent, progress = notes.get(SENT, {}), notes.get("progress.json", {})
    return {
        "version": 1,
        "launcher": __version__,
        "session": session.id,
        "job": str(session.job) if session.job else None,
        "cluster": record.cluster,
        "host": record.host,
        "notebook": record.notebook,
        "parameters": sent.get("parameters"),
        "to": sent.get("to"),
        "environment": record.environment,
        "image": notes.get("image.json") or None,
        "flags": record.flags,
        "node": started.get("node"),
        "started": started.get("started"),
        "ended": ended.get("ended"),
        "cause": ended.get("cause"),
        "message": ended.get("message"),
        "exit_code": ended.get("exit_code"),
        "cells": progress.get("cells") or sent.get("cells"),
        "done": progress.get("done"),
        "directory": session.directory,
    }


def _as_json(record: Mapping[str, object]) -> str:
    return json.dumps(finite(record), indent=1, ensure_ascii=False, allow_nan=False)


def _read(folder: Path) -> Mapping[str, object]:
    try:
        return json_object((folder / RECORD).read_bytes())
    except OSError:
        return {}


def _name(origin: str) -> str | None:
    """Return the name here of a file there; ``None`` for one that must not, or cannot, have its name here."""
    name = origin.removeprefix("work/")
    parts = name.split("/")
    if not is_safe(name) or _CONTROLS.search(name) or parts[0].startswith(".part-"):
        return None
    return None if any(len(os.fsencode(part)) > LONGEST_NAME - 20 for part in parts) else name


def _candidates(name: str) -> Iterator[str]:
    """Yield a name, and those beside it: ``train.fetched.ipynb``, ``train.fetched-2.ipynb``."""
    yield name
    for number in range(1, 100):
        yield name_beside(name, "fetched" if number == 1 else f"fetched-{number}")


def _written(file: IO[bytes], path: Path, on_bytes: Callable[[int], None]) -> str:
    """Write a file of a tar to a new one that is this user's alone, and return its hash."""
    hasher = hashlib.sha256()
    with open(_new(path), "wb") as out:
        while data := file.read(PIECE):
            hasher.update(data)
            out.write(data)
            on_bytes(len(data))
    return hasher.hexdigest()


def _make(folder: Path) -> None:
    """Make a folder, with those above it that are missing, for this user alone."""
    if not folder.is_dir():
        _make(folder.parent)
        folder.mkdir(mode=0o700, exist_ok=True)


def _new(path: Path) -> int:
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0), 0o600)


@contextlib.contextmanager
def _kept_here(folder: Path) -> Iterator[None]:
    """Tell what the system says of files here as a ``CopyFailed``."""
    try:
        yield
    except OSError as error:
        full = error.errno in (errno.ENOSPC, getattr(errno, "EDQUOT", errno.ENOSPC))
        raise CopyFailed(
            f"The results cannot be kept in {folder} on this machine.",
            why=error.strerror or str(error),
            hint=f"{'make room here' if full else 'take another folder with --output'}; then fetch them once more",
        ) from None
