"""Copies into a folder that others may write to, who swap names while the copy goes on."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from notebook_launcher.core.errors import CopyFailed, CopyRefused
from notebook_launcher.hosts.local import LocalHost
from notebook_launcher.transfer.endpoints import CopyEndpoint
from notebook_launcher.transfer.local_endpoint import LocalEndpoint
from notebook_launcher.transfer.remote_endpoint import RemoteEndpoint
from tests.unit.transfer.copying import BOTH_WAYS, copy, everything, leftovers

pytestmark = pytest.mark.real_time

ENDS: dict[bool, type[CopyEndpoint]] = {True: RemoteEndpoint, False: LocalEndpoint}
ONE_OR_TWO = pytest.mark.parametrize("files", [1, 2], ids=["alone", "several"])


@pytest.fixture
def there(tmp_path: Path) -> Path:
    """The destination."""
    there = tmp_path / "there"
    there.mkdir()
    return there


@pytest.fixture
def private(tmp_path: Path) -> Path:
    """A folder that nobody else may enter, elsewhere."""
    private = tmp_path / "private"
    private.mkdir(0o700)
    return private


def tree(tmp_path: Path, files: int = 1, mode: int = 0o755) -> Path:
    """A folder with a folder in it, which has files and a link."""
    inner = tmp_path / "src" / "inner"
    inner.mkdir(parents=True)
    for number in range(files):
        (inner / f"file{number}").write_text("ours")
    (inner / "link").symlink_to("file0")
    inner.chmod(mode)
    return inner.parent


def mode_of(path: Path) -> int:
    return path.stat().st_mode & 0o777


def around(patch: pytest.MonkeyPatch, up: bool, step: str, attack: Callable[[], object], *, after: bool) -> None:
    """Let somebody else act before a step of the copy, or after it."""
    original = getattr(ENDS[up], step)

    def done(*args: object, **options: object) -> object:
        if not after:
            attack()
        result = original(*args, **options)
        if after:
            attack()
        return result

    patch.setattr(ENDS[up], step, done)


def swapped(path: Path, leads: Path) -> Callable[[], None]:
    """What puts a link in a folder's place."""

    def attack() -> None:
        path.rename(path.with_name("away"))
        path.symlink_to(leads)

    return attack


@BOTH_WAYS
@ONE_OR_TWO
def test_nothing_is_written_through_a_link_that_appears_meanwhile(
    tmp_path: Path, there: Path, private: Path, up: bool, files: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    around(monkeypatch, up, "folders", swapped(there / "src" / "inner", private), after=True)
    with pytest.raises(CopyFailed):
        copy(LocalHost(), up, tree(tmp_path, files), there)
    assert everything(private) == {} and mode_of(private) == 0o700


@BOTH_WAYS
@pytest.mark.parametrize("step", ["create_links", "modes"])
def test_neither_links_nor_modes_go_through_a_link_that_appears_meanwhile(
    tmp_path: Path, there: Path, private: Path, up: bool, step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    around(monkeypatch, up, step, swapped(there / "src" / "inner", private), after=False)
    with pytest.raises(CopyFailed):
        copy(LocalHost(), up, tree(tmp_path, mode=0o555), there)
    assert everything(private) == {} and mode_of(private) == 0o700


@BOTH_WAYS
def test_another_folder_that_is_put_in_the_place_of_ours_keeps_its_mode(
    tmp_path: Path, there: Path, up: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    private, inner = there / "private", there / "src" / "inner"
    private.mkdir(0o700)

    def attack() -> None:
        inner.rename(there / "away")
        private.rename(inner)

    around(monkeypatch, up, "modes", attack, after=False)
    copy(LocalHost(), up, tree(tmp_path, mode=0o555), there)
    assert mode_of(inner) == 0o700


@BOTH_WAYS
def test_another_file_that_is_put_in_the_place_of_ours_keeps_its_mode(
    tmp_path: Path, there: Path, up: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its size is that of ours, and it has one name."""
    secret = there / "secret"
    secret.touch(0o600)
    secret.write_text("mine")
    (tmp_path / "data").write_text("ours")

    def attack() -> None:
        (part,) = leftovers(there)
        secret.replace(part)

    around(monkeypatch, up, "install", attack, after=False)
    with pytest.raises(CopyFailed, match="broke off") as caught:
        copy(LocalHost(), up, tmp_path / "data", there)
    assert "has been replaced" in caught.value.why
    (moved,) = (path for path in there.iterdir() if path.read_text() == "mine")
    assert mode_of(moved) == 0o600


@BOTH_WAYS
def test_a_link_to_a_folder_at_the_destination_is_not_followed(
    tmp_path: Path, there: Path, private: Path, up: bool
) -> None:
    (there / "src").mkdir()
    (there / "src" / "inner").symlink_to(private)
    with pytest.raises(CopyRefused, match=r"no link is followed: .*there/src/inner") as caught:
        copy(LocalHost(), up, tree(tmp_path), there)
    assert "real path" in caught.value.hint
    assert everything(private) == {}


@BOTH_WAYS
@ONE_OR_TWO
def test_a_folder_of_a_project_gives_its_group_to_what_is_new(
    tmp_path: Path, there: Path, up: bool, files: int
) -> None:
    if os.geteuid():
        pytest.skip("only root can give a folder to any group")
    os.chown(there, 0, 12345)
    there.chmod(0o2770)
    copy(LocalHost(), up, tree(tmp_path, files), there)
    assert everything(there / "src") == everything(tmp_path / "src")
    assert {path.stat().st_gid for path in (there / "src", there / "src" / "inner")} == {12345}
    assert leftovers(there) == []


@BOTH_WAYS
def test_a_folder_that_another_copy_has_made_meanwhile_gets_what_is_below_it(
    tmp_path: Path, there: Path, up: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    around(monkeypatch, up, "folders", (there / "src").mkdir, after=False)
    copy(LocalHost(), up, tree(tmp_path), there)
    assert everything(there / "src") == everything(tmp_path / "src")
    assert leftovers(there) == []
