"""The cache of build artefacts, whose names depend on what they are built from.

An artefact's name ends in the hash of its recipe and of its input artefacts. So only artefacts whose recipe has changed
are built again, and an incomplete artefact never has its final name.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from . import processes
from .errors import ClusterError, MirrorError
from .progress import say


@dataclass(frozen=True)
class Artefact:
    """A directory in the cache, and how to make it.

    `recipe` is text that represents everything that determines the content. `inputs` are artefacts that affect the
    content, so their keys are part of this one's; `tools` only have to exist before.
    """

    kind: str
    recipe: str
    make: Callable[[Path], None]
    inputs: tuple[Artefact, ...] = ()
    tools: tuple[Artefact, ...] = field(default=())

    @cached_property
    def key(self) -> str:
        """The first 12 digits of the hash of the recipe and of the inputs' keys."""
        text = "\0".join([self.recipe, *(part.key for part in self.inputs)])
        return hashlib.sha256(text.encode()).hexdigest()[:12]

    @property
    def path(self) -> Path:
        """The path of the artefact once it is built."""
        return cache_directory() / f"{self.kind}-{self.key}"

    def __hash__(self) -> int:
        return hash((self.kind, self.key))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Artefact) and (self.kind, self.key) == (other.kind, other.key)


class _NotTriedError(ClusterError):
    """Raised for a build that was not tried because an artefact that it needs has failed."""


def cache_directory() -> Path:
    """Return the directory of all artefacts; deleting it is always safe while no cluster is up."""
    base = os.environ.get("XDG_CACHE_HOME") or Path("~/.cache").expanduser()
    return Path(base) / "notebook-launcher" / "practice-cluster"


def log_file(kind: str) -> Path:
    """Return the log file for building `kind`."""
    directory = cache_directory() / "logs"
    directory.mkdir(parents=True, exist_ok=True)
    return directory / f"{kind}.log"


@contextlib.contextmanager
def locked(path: Path, what: str) -> Iterator[None]:
    """Hold a lock on the file `path`; print that it waits for `what` if another process has it.

    The kernel releases the lock when its holder ends, in whatever way.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say(f"Waiting: somebody else {what}.")
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def provide(wanted: Sequence[Artefact], in_use: Sequence[Path]) -> None:
    """Build missing artefacts of `wanted` and those that they need, several at a time, and remove outdated ones.

    Paths `in_use` stay, even if they are outdated. Raises the first error of a build.
    """
    with locked(cache_directory() / "lock", "builds parts of a practice cluster"):
        for leftover in cache_directory().glob(".building-*"):
            processes.end_all(leftover)
            shutil.rmtree(leftover, ignore_errors=True)
        _build_all(wanted)
        for artefact in _below(wanted):
            _drop_older(artefact, in_use)


def _below(wanted: Sequence[Artefact], *, missing_only: bool = False) -> list[Artefact]:
    """Return `wanted` and all their inputs and tools, the latter first, without repetition.

    With `missing_only`, existing artefacts are left out, and also those needed only for existing ones.
    """
    found: dict[Artefact, None] = {}

    def visit(artefact: Artefact) -> None:
        if artefact in found or (missing_only and artefact.path.exists()):
            return
        for part in (*artefact.inputs, *artefact.tools):
            visit(part)
        found[artefact] = None

    for artefact in wanted:
        visit(artefact)
    return list(found)


def _build_all(wanted: Sequence[Artefact]) -> None:
    artefacts = _below(wanted, missing_only=True)
    if not artefacts:
        return
    say(f"building {', '.join(artefact.kind for artefact in artefacts)}")
    futures: dict[Artefact, Future[None]] = {}
    # A thread for each, because most of them only wait for another one's result.
    with ThreadPoolExecutor(max_workers=len(artefacts)) as pool:
        for artefact in artefacts:
            before = [futures[part] for part in (*artefact.inputs, *artefact.tools) if part in futures]
            futures[artefact] = pool.submit(_build, artefact, before)
    errors = [error for future in futures.values() if (error := future.exception()) is not None]
    # Failures come before builds that were not tried because of them, and local problems before those of a mirror.
    for error in sorted(
        errors, key=lambda error: isinstance(error, _NotTriedError) * 2 + isinstance(error, MirrorError)
    ):
        raise error


def _build(artefact: Artefact, before: Sequence[Future[None]]) -> None:
    for future in before:
        if future.exception() is not None:
            raise _NotTriedError(f"{artefact.kind} was not built, because something it needs was not.")
    unfinished = Path(tempfile.mkdtemp(prefix=".building-", dir=cache_directory()))
    unfinished.chmod(0o755)
    log_file(artefact.kind).unlink(missing_ok=True)
    artefact.make(unfinished)
    unfinished.rename(artefact.path)
    say(f"built {artefact.kind}")


def _drop_older(artefact: Artefact, in_use: Sequence[Path]) -> None:
    for path in artefact.path.parent.glob(f"{artefact.kind}-{'[0-9a-f]' * 12}"):
        if path != artefact.path and path not in in_use:
            remove(path)


def remove(path: Path) -> None:
    """Delete a file or a directory tree, if it exists."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
