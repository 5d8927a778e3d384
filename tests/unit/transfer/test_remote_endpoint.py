"""What the cluster says of its files: any reply is read or refused, and none leads out of the destination."""

from __future__ import annotations

import contextlib
import os
import posixpath
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from notebook_launcher.core.errors import CopyFailed, HostCommandFailed, LauncherError, UsageError
from notebook_launcher.transfer.copy import Copy
from notebook_launcher.transfer.local_endpoint import LocalEndpoint
from notebook_launcher.transfer.paths import CopyArguments, Item, SourceEntry, items_of
from notebook_launcher.transfer.protocol import Reply
from notebook_launcher.transfer.remote_endpoint import RemoteEndpoint, hashes_of, written_part
from tests.fuzzing import examples
from tests.unit.transfer.answering_host import AnsweringHost

NUMBERS = st.sampled_from(
    ["0", "1", "644", "0755", "-1", "9" * 15, "9" * 400, "9" * 5000, "1_0", " 7", "٣", "+5", "", "x"]
)
NAMES = st.sampled_from(
    [
        "",
        ".",
        "..",
        "a",
        "a/b",
        "a/b/c",
        "b",
        "../x",
        "/etc/x",
        "a/../..",
        "a//b",
        ".ssh",
        "a\\b",
        "é",
        "\udcff",
        "x\ny",
    ]
)
LINKS = NAMES | st.sampled_from(["../b", "../../..", "a/../../..", "b/.."])
MOMENTS = st.tuples(NUMBERS, st.sampled_from([".", "", ".5", ".-5"]), NUMBERS).map("".join)
WORDS = (
    NUMBERS
    | NAMES
    | MOMENTS
    | st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=5)
    | st.sampled_from("MSELfdloyn-?T")
)
HASHES = st.sampled_from(["a" * 64 + "  x", "\\" + "b" * 64 + r"  x\ny\\", "a" * 64 + " ", "é"])

ENTRIES = st.tuples(
    st.just("E"), st.sampled_from("yn"), st.sampled_from("fdlo"), st.sampled_from("fdo"), NUMBERS, NUMBERS, MOMENTS,
    NAMES, LINKS,
)  # fmt: skip
SOUND = st.tuples(
    st.just("E"), st.just("y"), st.sampled_from("fdl"), st.just("f"), st.just("644"), st.just("3"), st.just("1.5"),
    NAMES, LINKS,
)  # fmt: skip
BEHIND = st.tuples(st.just("L"), NUMBERS, NUMBERS, MOMENTS, NAMES.map(lambda name: f"/far/{name}"))
ROOT = st.sampled_from("fdl").map(lambda kind: ("E", "y", kind, "d", "755", "0", "1.5", "", "a"))
LISTS = st.tuples(
    st.sampled_from([("S", "/far"), ("S", "/far"), ("M", "/far"), ()]),
    ROOT | st.just(()),
    st.lists(SOUND | ENTRIES | BEHIND | st.lists(WORDS, max_size=9).map(tuple), max_size=6),
).map(lambda parts: [word for part in (parts[0], parts[1], *parts[2]) for word in part])


def endpoint(fields: list[str], code: int = 0, errors: bytes = b"") -> RemoteEndpoint:
    """Return an endpoint whose host replies with these fields, and nothing else."""
    data = b"".join(os.fsencode(field) + b"\0" for field in fields)
    return RemoteEndpoint(AnsweringHost(data, b"\0%d %s\n" % (code, errors)))


ITEM = Item("/far/a", "a", SourceEntry("a", "file", 0o644, 3))
QUESTIONS: dict[str, Callable[[RemoteEndpoint], object]] = {
    "find": lambda far: far.find(["far"]),
    "target": lambda far: far.target("far"),
    "sizes": lambda far: far.sizes(["a"]),
    "part": lambda far: far.part("a"),
    "links": lambda far: far.links(["a"]),
    "hashes": lambda far: far.hashes(["a"], 3),
    "hash_of_first": lambda far: far.hash_of_first("a", 3),
    "folders": lambda far: far.folders("/far", {"a": 0o755}),
    "modes": lambda far: far.modes("/far", {"a": 0o755}),
    "create_links": lambda far: far.create_links("/far", {"a": "b"}, force=False),
    "install": lambda far: far.install("/far/.p", "/far/a", ITEM.seen, (0, 1), force=False),
    "install_batch": lambda far: far.install_batch("/far", ".b", [ITEM], force=False),
}


@pytest.mark.parametrize("question", QUESTIONS)
@settings(max_examples=examples(10))
@given(st.lists(WORDS | HASHES, max_size=8) | LISTS, st.sampled_from([0, 0, 1, 17]), st.binary(max_size=9))
@example([""] * 4, 0, b"")
@example(["9" * 15, "0", "a"], 0, b"")
@example(["é" * 64], 0, b"")
@example(["\udcff"], 0, b"")
def test_any_reply_is_understood_or_refused(question: str, fields: list[str], code: int, errors: bytes) -> None:
    with contextlib.suppress(HostCommandFailed, CopyFailed):
        QUESTIONS[question](endpoint(fields, code, errors.replace(b"\0", b"")))


@given(LISTS | st.lists(WORDS), st.sampled_from(["far", ""]))
@example(["S", "/far", "E", "y", "l", "d", "777", "0", "1.0", "", "a"], "far")  # the source itself is a link
@example(["S", "/far", "E", "y", "f", "f", "644", "0", "1.0", "", ""], "")  # its content is copied, and it is a file
@example(["S", "/far", "E", "y", "f", "f", "644", "-1", "1.0", "a", ""], "far")
@example(["S", "/far", "E", "y", "d", "d", "755", "0", f"{'9' * 400}.0", "", ""], "far")
def test_no_list_of_files_leads_out_of_the_destination(fields: list[str], name: str) -> None:
    try:
        found = endpoint(fields).find(["far"])
        items = items_of([(source, name) for source in found if source])
    except (HostCommandFailed, UsageError):
        return
    base = "/home/me/x"
    whole = (*items.files, *items.folders, *items.links)
    links = {item.target for item in items.links}
    made = {item.target for item in items.folders} | {name, ""}
    for item in whole:
        path = posixpath.join(base, item.target)
        assert path == posixpath.normpath(path) and path.startswith(f"{posixpath.join(base, name).rstrip('/')}")
        assert item.target and "\0" not in item.target
        assert item.target == name or posixpath.dirname(item.target) in made, "in a folder of this copy"
        above = item.target
        while above := posixpath.dirname(above):
            assert above not in links, "nothing goes through a link"
        assert 0 <= item.seen.mode <= 0o777 and 0 <= item.size < 10**15 and abs(item.seen.time) < 10**27
    with TemporaryDirectory() as folder:
        _make_and_resolve(os.path.realpath(folder), name, items.folders, items.links)


def _make_and_resolve(base: str, name: str, folders: tuple[Item, ...], links: tuple[Item, ...]) -> None:
    """Create folders and links, and look where each link leads, also through others."""
    whole = Path(base, name)
    assert name not in {item.target for item in links}
    whole.mkdir(exist_ok=True)
    for item in folders:
        Path(base, item.target).mkdir(exist_ok=True)
    for item in links:
        with contextlib.suppress(ValueError, FileExistsError):
            Path(base, item.target).symlink_to(item.seen.link)
    for item in links:
        with contextlib.suppress(RuntimeError, OSError):  # in a circle
            assert Path(base, item.target).resolve().is_relative_to(whole), item


@given(LISTS, st.booleans())
def test_whatever_is_listed_only_the_destination_is_compared(fields: list[str], exists: bool) -> None:
    """The whole first part of a copy, up to what is to be made: it reads below the destination, and writes nothing."""
    with TemporaryDirectory() as folder:
        home = Path(os.path.realpath(folder), "home")
        home.mkdir()
        if exists:
            (home / "far").mkdir()
        host = endpoint(fields).host
        copy = Copy(host, CopyArguments(("far",), str(home), up=False), _NoView(), None)  # type: ignore[arg-type]
        with contextlib.suppress(LauncherError):
            copy._refuse_without_space(copy._inspect())
        assert [path.name for path in home.iterdir()] == ["far"] * exists
        assert [path.name for path in Path(folder).iterdir()] == ["home"]


class _NoView:
    def show(self, event: object) -> None:
        pass

    def listen(self, inbox: object) -> None:
        pass


@given(st.binary(max_size=200) | st.lists(HASHES, max_size=4).map(lambda lines: os.fsencode("\n".join(lines))))
def test_any_list_of_hashes_can_be_read(data: bytes) -> None:
    for name, digest in hashes_of(Reply(data)).items():
        assert len(digest) == 64 and isinstance(name, str)
    (_, number), text = written_part(Reply(data))
    assert number >= 0 and isinstance(text, str)


@given(st.lists(st.tuples(NUMBERS, NUMBERS), max_size=3))
def test_a_time_from_there_can_be_set_here(times: list[tuple[str, str]]) -> None:
    """Or is refused as the list is read: not when the file has arrived."""
    for seconds, parts in times:
        fields = ["S", "/far", "E", "y", "f", "f", "644", "3", f"{seconds}.{parts}", "", ""]
        try:
            [source] = endpoint(fields).find(["far"])
        except HostCommandFailed:
            continue
        assert source is not None
        with TemporaryDirectory() as folder, contextlib.suppress(CopyFailed):
            part = Path(os.path.realpath(folder), ".part")
            part.write_bytes(b"abc")
            written = part.stat().st_dev, part.stat().st_ino
            LocalEndpoint().install(str(part), f"{part}.new", source.seen[0], written, force=False)
