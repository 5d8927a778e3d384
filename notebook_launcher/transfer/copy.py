"""Copies to or from the cluster: inspects both sides, compares them, refuses early, transfers and reports."""

from __future__ import annotations

import os
import posixpath
import shlex
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TypeVar

from notebook_launcher.core import events
from notebook_launcher.core.errors import ConnectionLost, CopyFailed, CopyRefused, Interrupted, LauncherError
from notebook_launcher.core.frozen import Frozen
from notebook_launcher.core.interrupts import Interrupts
from notebook_launcher.core.local_state import remember, remembered
from notebook_launcher.core.quantities import file_size
from notebook_launcher.core.text import listed, printable
from notebook_launcher.core.view import View
from notebook_launcher.hosts.base import Host, Prompts
from notebook_launcher.hosts.counted_prompts import CountedPrompts
from notebook_launcher.planning.target import LaunchTarget
from notebook_launcher.session.open_context import naming_contact, open_host
from notebook_launcher.transfer.data import CorruptData, fetch_batch, fetch_file, send_batch, send_file
from notebook_launcher.transfer.endpoints import (
    GOES_ON,
    CopyEndpoint,
    Target,
    already_there,
    refuse_missing,
    tool_failed,
)
from notebook_launcher.transfer.local_endpoint import LocalEndpoint
from notebook_launcher.transfer.paths import (
    THERE,
    CopyArguments,
    Item,
    Items,
    Source,
    SourceEntry,
    beside,
    items_of,
    last_name,
    new_batch_name,
    tag,
    typed_name,
)
from notebook_launcher.transfer.progress import Progress
from notebook_launcher.transfer.real_folder import Identity
from notebook_launcher.transfer.remote_endpoint import RemoteEndpoint
from notebook_launcher.tunnel.reconnect import ReconnectSucceeded, reconnect_until

SMALL = 8 * 1024 * 1024  # bytes; larger files are sent one by one, and resumed after a break
BATCH_BYTES, BATCH_FILES = 64 * 1024 * 1024, 2000  # of small files sent together, which a broken connection may cost
RECONNECT_WITHIN = 600.0  # seconds
RENAMED = 200  # how many copies of a folder to a new name are remembered
VAIN_ATTEMPTS = 5  # broken connections in a row, without a verified byte in between, before the copy fails

T = TypeVar("T")


def copy(
    launch_target: LaunchTarget,
    arguments: CopyArguments,
    view: View,
    prompts: Prompts,
    interrupts: Interrupts,
    *,
    force: bool = False,
) -> None:
    """Copy files and folders between this machine and the cluster.

    Raises ``CopyRefused`` before anything is copied, ``CopyFailed`` afterwards, and ``Interrupted`` after Ctrl-C.
    """
    counted = CountedPrompts(prompts)
    try:
        with naming_contact(launch_target), open_host(launch_target, view, counted) as host:
            Copy(host, arguments, view, counted, force=force).run()
    except KeyboardInterrupt:
        raise Interrupted("The copy was interrupted.", why="What was copied so far is kept.", hint=GOES_ON) from None


class Work(Frozen):
    """The work below a base folder: all items of the sources, and those that are missing at the destination."""

    base: str
    items: Items
    files: list[Item]
    folders: list[Item]
    links: list[Item]
    parts: dict[str, int]  # the bytes in each part from an earlier attempt, by its path


class Copy:
    """One copy: from ``source`` to ``destination``, one of which is the cluster."""

    def __init__(
        self, host: Host, arguments: CopyArguments, view: View, prompts: CountedPrompts, *, force: bool = False
    ) -> None:
        self._host, self._arguments, self._view, self._prompts, self._force = host, arguments, view, prompts, force
        self._there, here = RemoteEndpoint(host), LocalEndpoint()
        self._source: CopyEndpoint = here if arguments.up else self._there
        self._destination: CopyEndpoint = self._there if arguments.up else here
        self._progress = Progress(view)
        self._resumed = 0

    def run(self) -> None:
        """Copy, and show the result."""
        began = time.monotonic()
        if not self._host.remote:
            self._view.show(events.Note("login: means this machine here, because no cluster was named."))
        self._view.show(events.Querying("looking at what is to be copied"))
        work = self._with_reconnect(self._inspect)
        self._refuse_without_space(work)
        self._report_left_out(work)
        self._progress.expect(work.items.files, work.files)
        self._make(work)
        self._progress.close()
        count, size = len(work.files) + len(work.links), sum(item.size for item in work.files)
        skipped = len(work.items.files) + len(work.items.links) - count
        self._view.show(events.Copied(*self._typed(), count, skipped, size, self._resumed, time.monotonic() - began))

    def _typed(self) -> tuple[str, str]:
        sources, destination = self._arguments.sources, (self._arguments.destination,)
        ours, theirs = (sources, destination) if self._arguments.up else (destination, sources)
        here = ", ".join(ours)
        there = ", ".join(THERE + ("" if path == "~" else path) for path in theirs)
        return (here, there) if self._arguments.up else (there, here)

    # --- before anything is copied ---------------------------------------------------------------------------

    def _inspect(self) -> Work:
        arguments = self._arguments
        target = self._destination.target(arguments.destination)
        into = target.kind == "folder" or arguments.destination.endswith("/")
        if into and not arguments.up:
            for word in arguments.sources:
                typed_name(word)  # refuses one without a name, before all of a home is listed
        found = refuse_missing(self._source.label, arguments.sources, self._source.find(arguments.sources))
        if problems := [source.problems for source in found if source.problems]:
            raise CopyRefused("Not everything can be read there.", why=listed(problems), hint="nothing was copied")
        base, named = self._destination_names(found, target)
        items = items_of(named)
        if items.unreadable:
            raise CopyRefused(
                f"Not everything may be read on {self._source.label}: {listed(items.unreadable)}",
                why="Nothing was copied.",
                hint="look at its permissions: ls -l",
            )
        if items.left_out and not (items.files or items.folders or items.links):
            raise CopyRefused(
                f"There is nothing to copy: {listed(items.left_out)}",
                why="Pipes, sockets and devices are not copied, nor links out of the folder that lead to no file.",
                hint="name files or folders",
            )
        self._free = target.free
        return self._compare(base, items)

    def _destination_names(self, found: Sequence[Source], target: Target) -> tuple[str, list[tuple[Source, str]]]:
        """Return the folder below which everything is copied, and each source with its name there, as ``cp`` does."""
        word, label = self._arguments.destination, self._destination.label
        slash = word.endswith("/")
        if target.kind == "nowhere":
            raise CopyRefused(f"There is no folder for {target.path} on {label}.", hint=_make_folder(target, label))
        if target.kind == "other" or (
            target.kind == "file" and (slash or len(found) > 1 or any(source.is_folder for source in found))
        ):
            raise CopyRefused(f"{target.path} on {label} is not a folder.", hint="choose another name")
        if target.kind == "missing" and len(found) > 1 and not slash:
            raise CopyRefused(
                f"There is no folder {target.path} on {label} for several sources.",
                hint=f"add a slash to create it: {word}/",
            )
        if not target.writable:
            raise CopyRefused(f"You may not write in the folder of {target.path} on {label}.", hint="take another")
        self._renamed = "" if slash else self._renamed_folder(found, target)
        if target.kind == "folder" and not self._is_its_own(target):
            self._renamed = ""
            base, names = target.path, self._own_names(found)
        else:
            base, name = posixpath.split(target.path.replace(os.sep, "/"))
            names = [posixpath.join(name, own) for own in self._own_names(found)] if slash else [name] * len(found)
        self._refuse_into_itself(found, base, names)
        return base, list(zip(found, names, strict=True))

    def _renamed_folder(self, found: Sequence[Source], target: Target) -> str:
        """Return the name under which the copy of one folder to a new name is remembered, empty for all other copies.

        A folder on the cluster is identified by what was typed, because the cluster could report another one.
        """
        if len(found) > 1 or not found[0].is_folder:
            return ""
        up, word = self._arguments.up, self._arguments.sources[0]
        return tag("up" if up else "down", self._host.label, found[0].path if up else word.rstrip("/"), target.path)

    def _is_its_own(self, target: Target) -> bool:
        """Whether this same copy created the destination before; then the source is not copied into it, as by ``cp``.

        So a copy that broke off, or is repeated, continues. It is remembered here, where the other side cannot write.
        """
        return bool(self._renamed) and remembered("copies", self._renamed) in ("", target.identity)

    def _own_names(self, found: Sequence[Source]) -> list[str]:
        """Return the name that each source has inside a folder.

        Sources on the cluster keep the name that was typed: the cluster could report another one, ``.ssh`` for example,
        and files would be written there.
        """
        if not self._arguments.up:
            return [typed_name(word) for word in self._arguments.sources]
        return [
            "" if posixpath.basename(typed.rstrip("/")) == "." else last_name(source.path)
            for typed, source in zip(self._arguments.sources, found, strict=True)
        ]

    def _refuse_into_itself(self, found: Sequence[Source], base: str, names: Sequence[str]) -> None:
        if self._host.remote:
            return
        for source, name in zip(found, names, strict=True):
            inside = os.path.realpath(source.path) + "/"
            if source.is_folder and f"{posixpath.join(base, name)}/".startswith(inside):
                if os.path.realpath(source.path) == posixpath.join(base, name):
                    raise CopyRefused(f"{source.path} is the same folder.")
                raise CopyRefused(f"{source.path} cannot be copied into itself.")

    def _compare(self, base: str, items: Items) -> Work:
        """Compare with the destination: skip identical files, and refuse different ones, or replace them (``--force``).

        Raises ``CopyRefused``.
        """
        whole = (*items.files, *items.folders, *items.links)
        there = {item.target: posixpath.join(base, item.target) for item in whole}
        parts = {item.target: self._part(base, item) for item in items.files}
        sizes = self._destination.sizes([*there.values(), *parts.values()])
        links = self._destination.links(list(there.values()))  # includes broken links
        blocked = [there[item.target] for item in items.files if sizes.get(there[item.target], ("file",))[0] != "file"]
        blocked += [
            path
            for item in items.folders
            if (path := there[item.target]) in links and sizes.get(path, ("nothing",))[0] != "folder"
        ]
        blocked += [
            path
            for item in items.links
            if links.get(path := there[item.target], "") is None and sizes.get(path, ("file",))[0] != "file"
        ]
        if blocked:
            raise CopyRefused(
                f"On {self._destination.label}, folders are in the place of files, or the reverse: {listed(blocked)}",
                why="Nothing was copied.",
                hint="remove one of the two",
            )
        if linked := [there[item.target] for item in items.folders if links.get(there[item.target]) is not None]:
            raise CopyRefused(
                f"On {self._destination.label}, these are links, and no link is followed: {listed(linked)}",
                why="Nothing was copied.",
                hint="copy into that folder under its real path (realpath there shows it)",
            )
        present = [item for item in items.files if there[item.target] in links]
        equal = self._equal([item for item in present if sizes.get(there[item.target]) == ("file", item.size)], there)
        tied = {item.target for item in items.links if links.get(there[item.target]) == item.seen.link}
        differ = [there[item.target] for item in present if item.target not in equal]
        differ += [path for item in items.links if item.target not in tied and (path := there[item.target]) in links]
        if differ and not self._force:
            raise CopyRefused(
                f"Other files of the same name are on {self._destination.label}: {listed(differ)}",
                why="Nothing was copied.",
                hint="copy to another place, or replace them with --force",
            )
        return Work(
            base,
            items,
            [item for item in items.files if item.target not in equal],
            [item for item in items.folders if there[item.target] not in sizes],
            [item for item in items.links if item.target not in tied],
            {path: sizes[path][1] for path in parts.values() if path in sizes},
        )

    def _equal(self, candidates: Sequence[Item], there: dict[str, str]) -> set[str]:
        """Return which files of equal size are identical, by their checksums."""
        if not candidates:
            return set()
        self._view.show(events.Querying("comparing with what is there"))
        size = sum(item.size for item in candidates)
        ours = self._source.hashes([item.path for item in candidates], size)
        theirs = self._destination.hashes([there[item.target] for item in candidates], size)
        return {
            item.target for item in candidates if ours.get(item.path, "-") == theirs.get(there[item.target], "none")
        }

    def _part(self, base: str, item: Item) -> str:
        mark = tag(
            "up" if self._arguments.up else "down", self._host.label, item.path, posixpath.join(base, item.target)
        )
        return beside(posixpath.join(base, item.target), mark)

    def _refuse_without_space(self, work: Work) -> None:
        wanted = sum(item.size for item in work.files) - sum(work.parts.values())
        if self._free is not None and wanted > self._free:
            raise CopyRefused(
                f"There is no room for {file_size(wanted)} in {work.base} on {self._destination.label}.",
                why=f"It has {file_size(self._free)} free. Nothing was copied.",
                hint="make room (df -h, quota -s), or take another place",
            )

    def _report_left_out(self, work: Work) -> None:
        if work.items.left_out:
            text = "Left out (pipes, sockets, devices, and links out of the folder that lead to no file): "
            self._view.show(events.Note(text + listed(work.items.left_out)))

    # --- the copy itself -------------------------------------------------------------------------------------

    def _make(self, work: Work) -> None:
        modes = {item.target: item.seen.mode for item in _with_parents(work)}
        self._create_folders(work.base, modes)
        alone = [item for item in work.files if item.size > SMALL or len(work.files) == 1]
        big = {item.target for item in alone}
        for batch in _batches([item for item in work.files if item.target not in big]):
            self._move_batch(work, batch)
        for item in alone:
            self._move_file(work, item)
        ties = {item.target: item.seen.link for item in work.links}
        self._with_reconnect(lambda: self._destination.create_links(work.base, ties, force=self._force))
        locked = {name: mode for name, mode in modes.items() if mode & 0o700 != 0o700}
        self._with_reconnect(lambda: self._destination.modes(work.base, locked))

    def _create_folders(self, base: str, modes: Mapping[str, int]) -> None:
        remembers = self._renamed and any("/" not in name for name in modes)
        if remembers:  # by name only until the identity is known, because the copy may break off before that
            remember("copies", self._renamed, "", RENAMED)
        self._with_reconnect(lambda: self._destination.folders(base, modes))
        if remembers:
            which = next(self._destination.created(posixpath.join(base, name)) for name in modes if "/" not in name)
            remember("copies", self._renamed, which, RENAMED)

    def _move_file(self, work: Work, item: Item) -> None:
        part, path = self._part(work.base, item), posixpath.join(work.base, item.target)
        self._progress.begin(item)
        earlier = True
        for attempt in (1, 2):
            try:

                def move(*, fresh: bool = attempt == 2) -> Identity:
                    nonlocal earlier
                    offset = 0 if fresh else self._verified(part, item)
                    self._resumed += offset if earlier else 0
                    earlier = fresh = False
                    self._progress.set_done(offset)
                    transfer = send_file if self._arguments.up else fetch_file
                    return transfer(self._there, item, part, offset, self._progress.add)

                written = self._with_reconnect(move)
                break
            except CorruptData:
                if attempt == 2:
                    raise self._corrupt(item.path) from None
        self._with_reconnect(lambda: self._install(part, path, item, written))
        self._progress.end(item)

    def _install(self, part: str, path: str, item: Item, written: Identity) -> None:
        """Move a complete part to its path; after a broken connection, an earlier attempt may have done so already."""
        sizes = self._destination.sizes([part, path])
        if part in sizes:
            self._destination.install(part, path, item.seen, written, force=self._force)
        elif sizes.get(path) != ("file", item.size) or not self._equal([item], {item.target: path}):
            raise tool_failed(self._destination.label, f"{part} has gone")

    def _verified(self, part: str, item: Item) -> int:
        """Return how many bytes of a part match the source, by checksums on both sides: all of them, or 0."""
        size = self._destination.part(part)
        if not 0 < size <= item.size:
            return 0
        if size > SMALL:
            self._view.show(events.Querying(f"comparing the {file_size(size)} that are there already"))
        return size if self._source.hash_of_first(item.path, size) == self._destination.hash_of_first(part, size) else 0

    def _move_batch(self, work: Work, batch: Sequence[Item]) -> None:
        self._progress.begin(batch[0], len(batch))
        move = self._send_batch if self._arguments.up else self._fetch_batch
        try:
            self._with_reconnect(lambda: move(work, new_batch_name(), batch))
        except CorruptData:
            try:
                self._with_reconnect(lambda: move(work, new_batch_name(), batch))
            except CorruptData:
                raise self._corrupt(batch[0].path) from None
        self._progress.end(*batch)

    def _send_batch(self, work: Work, context: str, batch: Sequence[Item]) -> None:
        batch = self._not_there(work, batch)
        if batch:
            self._progress.set_done(0)
            send_batch(self._there, work.base, context, batch, self._progress.add)
            left = self._there.install_batch(work.base, context, batch, force=self._force)
            equal = self._installed(work, left) if left else set()
            if other := [posixpath.join(work.base, item.target) for item in left if item.target not in equal]:
                raise already_there(other)

    def _not_there(self, work: Work, batch: Sequence[Item]) -> Sequence[Item]:
        """Return the items that an earlier attempt, whose connection broke, has not moved to their paths."""
        return [item for item in batch if item.target not in self._installed(work, batch)] if self._broken else batch

    def _installed(self, work: Work, batch: Sequence[Item]) -> set[str]:
        there = {item.target: posixpath.join(work.base, item.target) for item in batch}
        sizes = self._destination.sizes(list(there.values()))
        return self._equal([item for item in batch if sizes.get(there[item.target]) == ("file", item.size)], there)

    def _fetch_batch(self, work: Work, context: str, batch: Sequence[Item]) -> None:
        self._progress.set_done(0)
        folder = os.path.join(work.base, context)  # noqa: PTH118
        try:
            parts = fetch_batch(self._there, folder, batch, self._progress.add)
            failures: dict[str, CopyFailed] = {}
            for item, (part, written) in zip(batch, parts, strict=True):
                path = posixpath.join(work.base, item.target)
                try:
                    self._destination.install(part, path, item.seen, written, force=self._force)
                except CopyFailed as error:
                    failures[item.target] = error
            # files that another copy has created meanwhile, with the same content, are no failures
            equal = self._installed(work, [item for item in batch if item.target in failures]) if failures else set()
            if other := [name for name in failures if name not in equal]:
                raise failures[other[0]]
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def _corrupt(self, path: str) -> CopyFailed:
        return CopyFailed(
            f"{path} arrived damaged, twice in a row.",
            why="Its SHA-256 is not the same at both ends.",
            hint=f"check whether a program is writing to it, or a disk or memory is faulty; {GOES_ON}",
        )

    # --- a connection that breaks ----------------------------------------------------------------------------

    _broken = 0

    def _with_reconnect(self, action: Callable[[], T]) -> T:
        """Repeat an action until it succeeds, reconnecting if the connection breaks. Raises ``CopyFailed``."""
        proven, vain = self._progress.proven, 0
        while True:
            try:
                return action()
            except ConnectionLost as error:
                vain = 0 if self._progress.proven > proven else vain + 1
                proven = self._progress.proven
                if vain >= VAIN_ATTEMPTS:
                    raise CopyFailed(
                        f"The connection to {self._host.label} breaks again and again.", why=error.what, hint=GOES_ON
                    ) from None
                self._reconnect(error)

    def _reconnect(self, error: LauncherError) -> None:
        self._broken += 1
        began = time.monotonic()
        self._view.show(events.Note(f"{error.what} Reconnecting; the copy then goes on."))
        outcome = reconnect_until(self._host, self._prompts, began + RECONNECT_WITHIN, patience=RECONNECT_WITHIN)
        if not isinstance(outcome, ReconnectSucceeded):
            why = f"{outcome.error.what} {outcome.error.why}".strip() if outcome else error.what
            raise CopyFailed(f"Reconnecting to {self._host.label} failed.", why=why, hint=GOES_ON)
        self._view.show(events.Note(f"Connected again, after {time.monotonic() - began:.0f} s; the copy goes on."))


def _batches(items: Sequence[Item]) -> Iterator[list[Item]]:
    """Yield groups of small files, each small enough that a broken connection costs little."""
    batch: list[Item] = []
    size = 0
    for item in items:
        if batch and (size + item.size > BATCH_BYTES or len(batch) >= BATCH_FILES):
            yield batch
            batch, size = [], 0
        batch.append(item)
        size += item.size
    if batch:
        yield batch


def _with_parents(work: Work) -> Iterator[Item]:
    """Yield the folders to create, first the one that a destination with a trailing slash names."""
    known = {item.target for item in work.items.folders}
    missing = {
        posixpath.dirname(item.target)
        for item in (*work.items.files, *work.items.folders, *work.items.links)
        if posixpath.dirname(item.target)
    } - known
    # one level at most: its parent folder must exist
    yield from (Item("", name, SourceEntry("", "folder", 0o777)) for name in sorted(missing))
    yield from work.folders


def _make_folder(target: Target, label: str) -> str:
    folder = posixpath.dirname(target.path.replace(os.sep, "/"))
    return f"make it on {label} first: mkdir -p {shlex.quote(printable(folder))}"
