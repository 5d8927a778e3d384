"""Fetches the results of a run: the notebook with its outputs, the files that it wrote, and the job's records.

Names and sizes come from another machine, and are not trusted.
"""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import hashlib
import json
import math
import os
import re
import shlex
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import IO

from notebook_launcher import __version__
from notebook_launcher.core import events
from notebook_launcher.core.errors import ConnectionLost, CopyFailed, Interrupted
from notebook_launcher.core.frozen import Frozen
from notebook_launcher.core.local_state import lock_file
from notebook_launcher.core.quantities import file_size
from notebook_launcher.core.text import finite
from notebook_launcher.notebook.manifest import CopiedFile, copied_files, may_write, name_beside, state_of
from notebook_launcher.session.context import Context
from notebook_launcher.session.record import Session, json_object
from notebook_launcher.transfer.data import MOST_OVERHEAD, NO_TAR, TarReader, remove_stale
from notebook_launcher.transfer.endpoints import tool_failed
from notebook_launcher.transfer.paths import LONGEST_NAME, is_safe
from notebook_launcher.transfer.protocol import CHUNK, Wire, call_polling, call_verb, names
from notebook_launcher.transfer.remote_endpoint import RemoteEndpoint, hashes_of, is_size

MOST_FILES = 1000  # written by a run, at most, to be fetched
MOST_BYTES = 64 * 1024 * 1024  # of one file; the copy command can fetch larger ones
MOST_ALL = 1024 * 1024 * 1024  # bytes of all of them
MOST_EARLY, EARLY_WITHIN = 8 * 1024 * 1024, 10.0  # bytes and seconds: limits of ``fetch_notebook``
ATTEMPTS = 3  # to fetch, if the connection breaks
WAIT = 600.0  # seconds to wait for another launcher that fetches into the same folder
LARGE = 16 * 1024 * 1024  # bytes: progress is shown if there are at least as many
REPORT_EVERY = 5.0  # seconds
RECORD = "run.json"
USAGE = "usage.csv"
SENT = "sent.json"
_NOTES = ("exit.json", "started.json", "image.json", "progress.json", SENT)
_MOST_RECORD_BYTES = 1024 * 1024  # bytes of each
_ODD = re.compile(r"[^\w.-]+")
_CONTROLS = re.compile(r"[\x00-\x1f\x7f\ud800-\udfff]")


def results_folder(session: Session, output: Path = Path("runs")) -> Path:
    """Return the folder below ``output`` for a run's results: ``train-20261122-101500-abcd``."""
    stem = _ODD.sub("_", Path(session.record.notebook or "notebook").stem).lstrip(".") or "notebook"
    stem = stem.encode()[:200].decode(errors="ignore")  # the folder's name may have 255 bytes
    return output / f"{stem}-{session.id}"


def fetch_results(context: Context, session: Session, folder: Path) -> events.ResultsFetched:
    """Fetch a run's results so far into ``folder`` (created if necessary), and return what it then contains.

    May be called again at any time: only what is new is fetched; a file that was changed here stays, and the new
    version is put beside it. Shows nothing but the progress of a large fetch. Reconnects if the connection breaks.
    Raises ``ConnectionLost``; ``CopyFailed`` if something cannot be stored here; ``Interrupted`` after Ctrl-C or once
    the terminal is closed, even if the network hangs. Files fetched by then are kept.
    """
    attempt, exit_requests = 1, context.interrupts.exit_requests
    while True:
        fetching = _Fetching(context, session, folder, exit_requests)
        try:
            return fetching.run()
        except ConnectionLost:
            fetching.refuse_if_interrupted()
            if attempt == ATTEMPTS:
                raise
            attempt += 1


def fetch_notebook(context: Context, session: Session, folder: Path) -> bool:
    """Fetch only a run's notebook if that is quick, and return whether ``folder`` now has the cluster's version.

    ``fetch_results`` fetches the rest later. The caller is blocked, so this takes at most ``EARLY_WITHIN`` seconds,
    does not wait for another launcher, and does not reconnect. Raises what ``fetch_results`` raises.
    """
    return _Fetching(context, session, folder, context.interrupts.exit_requests).run_early()


class _RemoteFile(Frozen):
    """A file on the cluster: its size, and its modification time as reported."""

    size: int
    time: str


class _Fetching:
    """Inspects a run's directory once, and fetches from it. Remote paths are relative to the session's directory."""

    def __init__(self, context: Context, session: Session, folder: Path, exit_requests: int) -> None:
        self._context, self._session, self._folder = context, session, folder
        self._exit_requests = exit_requests  # how often Ctrl-C had been pressed at the start
        self._there = RemoteEndpoint(context.host)
        self._notebook = session.record.notebook or "notebook.ipynb"
        self._fetched_before: dict[str, CopiedFile] = {}
        self._kept: dict[str, CopiedFile] = {}
        self._notes: dict[str, Mapping[str, object]] = {}
        self._left_there: list[str] = []
        self._bytes = self._bytes_wanted = 0
        self._reported_at = time.monotonic()
        self._late_at = math.inf

    def run(self) -> events.ResultsFetched:
        """Reconnect if necessary, inspect, fetch what is new, move it to its path, and record it."""
        if not self._there.host.alive:
            self._reconnect()
        found = self._inspect()
        with _local_errors(self._folder):
            _make(self._folder)
            with self._locked() as waited:
                self._fetch(self._inspect() if waited else found)
        return events.ResultsFetched(
            self._session.id,
            self._notebook,
            str(self._folder),
            self._names(),
            tuple(self._left_there),
            self._is_complete,
        )

    def _reconnect(self) -> None:
        """Reconnect; an attempt abandoned after Ctrl-C neither replaces the connection nor asks the user anything."""
        left, ended, prompts = threading.Event(), threading.Event(), self._context.prompts

        def reconnect() -> None:
            try:
                self._there.host.reconnect(replace=lambda: not left.is_set())
            finally:
                ended.set()

        prompts.unwanted = lambda: left.is_set() and not ended.is_set()
        try:
            call_polling(reconnect, self.refuse_if_interrupted)
        finally:
            left.set()
            if not ended.is_set():
                prompts.dismiss()

    def run_early(self) -> bool:
        """Fetch only the notebook, if it is small; return whether the folder has it."""
        self._late_at = time.monotonic() + EARLY_WITHIN
        origin = f"work/{self._notebook}"
        found = {name: file for name, file in self._inspect().items() if name == origin and file.size <= MOST_EARLY}
        if not found:
            return False
        with _local_errors(self._folder):
            _make(self._folder)
            with self._locked(wait=False):
                self._fetch(found)
        return origin in self._kept

    def _fetch(self, found: dict[str, _RemoteFile]) -> None:
        self._fetched_before = copied_files(_read(self._folder).get("fetched"))
        for origin in self._unchanged(found):
            del found[origin]
        wanted = self._wanted(found)
        remove_stale(self._folder, ".part-" + "?" * 8)
        parts = Path(tempfile.mkdtemp(prefix=".part-", dir=self._folder))
        received: list[tuple[str, Path, str]] = []
        try:
            try:
                for one in self._streamed(wanted, found, parts):
                    received.append(one)
            finally:  # whatever failed: files fetched so far are kept
                self._install(received, found, parts / "record")
        finally:
            shutil.rmtree(parts, ignore_errors=True)

    @contextlib.contextmanager
    def _locked(self, *, wait: bool = True) -> Iterator[bool]:
        """Lock the folder against other launchers, and yield whether it had to wait for one.

        Raises ``CopyFailed`` after ``WAIT``, or at once without ``wait``.
        """
        from filelock import FileLock, Timeout

        lock, began, waited = None, time.monotonic(), False
        while True:
            try:
                lock = lock or FileLock(lock_file("fetching", str(self._folder.resolve())), timeout=0, mode=0o600)
                lock.acquire()
                break
            except Timeout:
                if wait and not waited:
                    self._context.view.show(events.Querying("another launch-notebook fetches into the same folder"))
                waited = True
            except (OSError, NotImplementedError):  # a file system without locks, or a read-only home
                lock = None
                break
            self.refuse_if_interrupted()
            if not wait or time.monotonic() - began > WAIT:
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

    def refuse_if_interrupted(self) -> None:
        """Raise ``Interrupted`` after Ctrl-C or a hang-up, ``CopyFailed`` once ``run_early`` has taken too long.

        An earlier hang-up counts as well, because nobody waits for the files any more.
        """
        interrupts = self._context.interrupts
        if interrupts.hung_up or interrupts.exit_requests > self._exit_requests:
            rest = shlex.join(["launch-notebook", "results", *self._context.target.arguments(), self._session.id])
            raise Interrupted("Interrupted: not all of the results were fetched.", hint=f"fetch the rest with: {rest}")
        if time.monotonic() > self._late_at:
            raise CopyFailed("The notebook takes long to fetch.", hint="fetch it with the other results")

    def _report_progress(self, count: int) -> None:
        """Count received bytes; for a large fetch, show the progress every ``REPORT_EVERY`` seconds."""
        self._bytes += count
        if self._bytes_wanted >= LARGE and time.monotonic() - self._reported_at >= REPORT_EVERY:
            self._reported_at = time.monotonic()
            far = f"{self._bytes >> 20} of {self._bytes_wanted >> 20} MiB"
            self._context.view.show(events.Querying(f"fetching the results: {far}"))

    @property
    def _is_complete(self) -> bool:
        return self._notes.get("exit.json", {}).get("cause") == "finished"

    def _names(self) -> tuple[str, ...]:
        """Return the names of the fetched files, the notebook first."""
        first = f"work/{self._notebook}"
        kept = sorted(self._kept, key=lambda origin: (origin != first, self._kept[origin].name))
        return tuple(self._kept[origin].name for origin in kept)

    # --- inspecting

    def _inspect(self) -> dict[str, _RemoteFile]:
        stem = self._notebook.removesuffix(".ipynb")
        first = [f"work/{name}" for name in (self._notebook, f"{stem}.py", f"{stem}.out", "results.jsonl")]
        most = MOST_FILES + len(self._session.record.sent) + 1
        arguments = [self._session.directory, str(most), USAGE, *_NOTES, *first]
        reply = call_verb(self._there.host, "results", *arguments, meanwhile=self.refuse_if_interrupted)
        if reply.code:
            raise tool_failed(self._there.label, reply.stderr)
        fields = reply.fields()
        found: dict[str, _RemoteFile] = {}
        for size, moment, name in zip(fields[::3], fields[1::3], fields[2::3], strict=False):
            if is_size(size):
                found.setdefault(name, _RemoteFile(int(size), moment))
        return found

    def _unchanged(self, found: Mapping[str, _RemoteFile]) -> list[str]:
        """Return the files that were sent and have not changed on the cluster, and so need not be fetched."""
        sent = [
            origin
            for name in self._session.record.sent
            if (origin := f"work/{name}") in found and found[origin].size <= MOST_BYTES
        ]
        if not sent:
            return []
        directory = self._session.directory
        note = call_polling(lambda: self._there.host.read_file(f"{directory}/{SENT}"), self.refuse_if_interrupted)
        recorded = json_object(note or b"").get("files")
        digests = recorded if isinstance(recorded, dict) else {}
        paths, size = names([f"{directory}/{origin}" for origin in sent]), sum(found[one].size for one in sent)
        # the exit code does not matter: a file that was deleted meanwhile has no hash
        reply = call_verb(self._there.host, "hashes", data=paths, reads=size, meanwhile=self.refuse_if_interrupted)
        now = hashes_of(reply)
        return [one for one in sent if now.get(f"{directory}/{one}", "") == digests.get(one.removeprefix("work/"))]

    def _wanted(self, found: Mapping[str, _RemoteFile]) -> list[str]:
        """Return what to fetch now; record files that are too large, or whose names are not possible here."""
        wanted, count, total = [], 0, 0
        for origin, remote in found.items():
            if origin in _NOTES:
                if remote.size <= _MOST_RECORD_BYTES:
                    wanted.append(origin)
                continue
            name = _name(origin)
            if name is None or remote.size > MOST_BYTES or total + remote.size > MOST_ALL:
                self._leave_there(origin, remote.size)
                continue
            total, count = total + remote.size, count + 1
            if count > MOST_FILES:
                self._left_there.append(f"{self._session.directory}/work (more than {MOST_FILES} files)")
                break
            if (kept := self._fetched_before.get(origin)) and self._is_the_same(kept, remote):
                self._kept[origin] = kept
            else:
                wanted.append(origin)
                self._bytes_wanted += remote.size
        return wanted

    def _leave_there(self, origin: str, size: int) -> None:
        """Record a file that is not fetched; unprintable characters in its name are escaped with a backslash."""
        path = f"{self._session.directory}/{origin}"
        shown = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in path)
        self._left_there.append(f"{shown} ({file_size(size)})")

    def _is_the_same(self, kept: CopiedFile, remote: _RemoteFile) -> bool:
        """Whether the remote file was fetched before and is here, even if the user has changed it since."""
        if kept.before is not None:
            return False
        return (kept.bytes, kept.time) == (remote.size, remote.time) and os.path.lexists(self._folder / kept.name)

    # --- fetching

    def _streamed(
        self, wanted: list[str], found: Mapping[str, _RemoteFile], parts: Path
    ) -> Iterator[tuple[str, Path, str]]:
        """Yield each requested file, written to a temporary file, with its hash; records are kept in memory."""
        expected = {f".{self._session.directory}/{origin}": origin for origin in wanted}
        count = 0
        with Wire(self._there.host, "pack", [], meanwhile=self.refuse_if_interrupted) as wire:
            with contextlib.suppress(BrokenPipeError):  # the remote command's reply says why
                wire.send(names(list(expected)))
            wire.end_data()
            incoming = TarReader(wire, self._there.label, 2 * MOST_ALL)
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
                            self._notes[origin] = json_object(file.read(_MOST_RECORD_BYTES))
                        else:
                            count += 1
                            path = parts / str(count)
                            yield origin, path, _written(file, path, self._report_progress)
                        del expected[entry.name]
            except NO_TAR:
                wire.reply(incoming.left + MOST_OVERHEAD)  # raises if the connection broke
                raise CopyFailed(
                    f"The results of session {self._session.id} were not fetched completely.",
                    hint="type the same command to fetch the rest",
                ) from None
            reply = wire.reply(MOST_OVERHEAD)
        if reply.code and wanted and len(expected) == len(wanted):  # else a file only vanished or grew
            raise tool_failed(self._there.label, reply.stderr)
        for origin in expected.values():
            if origin not in _NOTES:
                self._leave_there(origin, found[origin].size)

    def _install(self, received: list[tuple[str, Path, str]], found: Mapping[str, _RemoteFile], record: Path) -> None:
        """Move each temporary file to its path. A replacement is recorded first, because it may be interrupted."""
        placed = [
            (origin, part, kept)
            for origin, part, digest in received
            if (kept := self._choose_name(origin, digest, found[origin]))
        ]
        if placed:
            self._write_record(record)
        for origin, part, kept in placed:
            _make((self._folder / kept.name).parent)
            part.replace(self._folder / kept.name)
            self._kept[origin] = dataclasses.replace(kept, before=None)
        self._write_record(record)

    def _choose_name(self, origin: str, digest: str, remote: _RemoteFile) -> CopiedFile | None:
        """Choose a file's path: it may replace a fetched file, but never one that the user has made or changed."""
        others = {**self._fetched_before, **self._kept}
        before = others.pop(origin, None)
        used = {kept.name for kept in others.values()} | {RECORD, USAGE} - {origin}
        for candidate in _candidates(_name(origin) or "file"):
            if candidate in used:
                continue
            there = state_of(self._folder, candidate)
            copied = (before.sha256, before.before) if before and before.name == candidate else ()
            if may_write(there, digest, copied):
                kept = CopiedFile(candidate, digest, remote.size, remote.time, before=there)
                self._kept[origin] = kept
                return kept
        self._leave_there(origin, remote.size)
        return None

    # --- recording

    def _write_record(self, part: Path) -> None:
        """Write ``run.json``: what was run, where, how it ended, and what was fetched, now or before."""
        summary = _summary(self._session, self._notes)
        if not self._notes:  # none was fetched now: use those of an earlier fetch
            summary = {**summary, **_read(self._folder)}
        fetched = {origin: kept.as_record() for origin, kept in sorted({**self._fetched_before, **self._kept}.items())}
        try:
            text = _as_json({**summary, "fetched": fetched})
        except RecursionError:  # a maliciously nested record
            text = _as_json({**_summary(self._session, {}), "fetched": fetched})
        with open(_new(part), "w", encoding="utf-8", errors="backslashreplace") as file:
            file.write(f"{text}\n")
        part.replace(self._folder / RECORD)


def _summary(session: Session, notes: Mapping[str, Mapping[str, object]]) -> dict[str, object]:
    """Return the summary of a run, from its session record and the records that its job wrote."""
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
    """Return the local name of a remote file; ``None`` if that name is not allowed, or not possible here."""
    name = origin.removeprefix("work/")
    parts = name.split("/")
    if not is_safe(name) or _CONTROLS.search(name) or parts[0].startswith(".part-"):
        return None
    return None if any(len(os.fsencode(part)) > LONGEST_NAME - 20 for part in parts) else name


def _candidates(name: str) -> Iterator[str]:
    """Yield a name and its alternatives: ``train.fetched.ipynb``, ``train.fetched-2.ipynb``."""
    yield name
    for number in range(1, 100):
        yield name_beside(name, "fetched" if number == 1 else f"fetched-{number}")


def _written(file: IO[bytes], path: Path, on_bytes: Callable[[int], None]) -> str:
    """Write a member of a tar archive to a new file with private permissions, and return its hash."""
    hasher = hashlib.sha256()
    with open(_new(path), "wb") as out:
        while data := file.read(CHUNK):
            hasher.update(data)
            out.write(data)
            on_bytes(len(data))
    return hasher.hexdigest()


def _make(folder: Path) -> None:
    """Create a folder, and its missing parents, with private permissions."""
    if not folder.is_dir():
        _make(folder.parent)
        folder.mkdir(mode=0o700, exist_ok=True)


def _new(path: Path) -> int:
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0), 0o600)


@contextlib.contextmanager
def _local_errors(folder: Path) -> Iterator[None]:
    """Convert an ``OSError`` about local files to ``CopyFailed``."""
    try:
        yield
    except OSError as error:
        full = error.errno in (errno.ENOSPC, getattr(errno, "EDQUOT", errno.ENOSPC))
        raise CopyFailed(
            f"The results cannot be kept in {folder} on this machine.",
            why=error.strerror or str(error),
            hint=f"{'make room here' if full else 'take another folder with --output'}; then fetch them once more",
        ) from None
