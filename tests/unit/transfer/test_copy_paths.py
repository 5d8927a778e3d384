"""What names mean in a copy, without any host."""

from __future__ import annotations

import pytest

from notebook_launcher.core.errors import UsageError
from notebook_launcher.transfer.paths import (
    CopyArguments,
    Source,
    SourceEntry,
    is_safe,
    items_of,
    last_name,
    parse_arguments,
    part_name,
    stays_inside,
)
from tests.ssh_server import ENGINES, Server, User, end_connections, host, no_agent, server  # noqa: F401 (fixtures)

pytestmark = pytest.mark.timeout(60)


@pytest.mark.parametrize(
    ("typed", "words"),
    [
        (["a", "login:b"], CopyArguments(("a",), "b", True)),
        (["login:a", "login:/b", "."], CopyArguments(("a", "/b"), ".", False)),
        (["login:", "backup"], CopyArguments(("~",), "backup", False)),
        (["./login:x", "login:~/y/"], CopyArguments(("./login:x",), "~/y/", True)),
        (["./a:b", "C:\\x", "login:"], CopyArguments(("./a:b", "C:\\x"), "~", True)),
    ],
)
def test_one_side_is_the_cluster(typed: list[str], words: CopyArguments) -> None:
    assert parse_arguments(typed) == words


@pytest.mark.parametrize(
    "typed",
    [["login:a"], ["a", "b"], ["login:a", "login:b"], ["a", "login:b", "c"], ["", "login:"], ["a", "login:~bob/x"]],
)
def test_what_is_no_copy_is_told_before_anything_is_contacted(typed: list[str]) -> None:
    with pytest.raises(UsageError):
        parse_arguments(typed)


def test_names_are_those_of_cp() -> None:
    assert [last_name(path) for path in ("a", "x/a/", "/a", "x/.")] == ["a", "a", "a", ""]
    for path in ("/", "..", "x/../"):
        with pytest.raises(UsageError):
            last_name(path)


@pytest.mark.parametrize("name", ["../x", "a/../../x", "/etc/passwd", "a//b", "", ".", "a/./b", "a\0b"])
def test_names_that_lead_out_are_refused(name: str) -> None:
    assert not is_safe(name)
    top = SourceEntry("", "folder", 0o755)
    with pytest.raises(UsageError):
        items_of(
            [
                (
                    Source("/src", (top, SourceEntry("a", "folder", 0o755), SourceEntry(name or "//", "file", 0o644))),
                    "src",
                )
            ]
        )


def test_nothing_lies_behind_a_link() -> None:
    entries = (
        SourceEntry("", "folder", 0o755),
        SourceEntry("l", "link", 0o777, link="."),
        SourceEntry("l/x", "file", 0o644),
    )
    with pytest.raises(UsageError):
        items_of([(Source("/src", entries), "src")])


@pytest.mark.parametrize(
    ("link", "target", "inside"),
    [
        ("l", "a", True), ("l", "./a/b", True), ("d/l", "../a", True), ("d/l", "..", True), ("l", ".", True),
        ("l", "..", False), ("d/l", "../../a", False), ("l", "/a", False), ("l", "", False), ("l", "k/../../a", False),
        ("d/l", "k/..", False),
    ],
)  # fmt: skip
def test_links_that_stay_inside(link: str, target: str, inside: bool) -> None:
    assert stays_inside(link, target) is inside


def test_a_long_name_leaves_room_for_what_a_part_is_called() -> None:
    assert len(part_name("é" * 127, "0123456789").encode(errors="surrogateescape")) <= 255
    assert part_name("a", "x") == ".a.part-x"
