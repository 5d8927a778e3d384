"""A login node that answers a copy with something else than it was asked for: nothing of that lands anywhere."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from notebook_launcher.core.errors import LauncherError, UsageError
from notebook_launcher.hosts.local import LocalHost
from tests.ssh_server import User
from tests.unit.transfer.copying import copy, everything

# Does what it is asked for with another folder. No more than the words is read: who waits for more keeps the line open.
OTHER_NAME = """\
IFS= read -r -d '' script
IFS= read -r -d '' count
words=()
while ((count-- > 0)); do
  IFS= read -r -d '' word
  [[ $word != {asked} ]] || word={sent}
  words+=("$word")
done
exec /bin/bash "$@" < <(printf '%s\\0' "$script" "${{#words[@]}}" "${{words[@]}}")
"""


@pytest.fixture
def far(tmp_path: Path) -> Path:
    """A folder of the login node: what is asked for, and what it would rather send."""
    far = tmp_path / "far"
    for name in ("results", ".ssh"):
        (far / name).mkdir(parents=True)
        (far / name / "authorized_keys").write_text(name)
    return far


@pytest.fixture
def login(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[LocalHost]:
    """A login node with a ``bash`` of its own, which does what ``lies`` makes of each word and of the answer."""
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "bash").write_text(
        f'#!/bin/bash\ncat {tmp_path}/lies >/dev/null 2>&1 || exec /bin/bash "$@"\nsource {tmp_path}/lies\n'
    )
    (programs / "bash").chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    with LocalHost(User()) as host:
        yield host


def test_what_comes_has_the_name_that_was_typed(login: LocalHost, far: Path, tmp_path: Path) -> None:
    """As in scp's CVE-2019-6111: in a home, another name would be ~/.ssh."""
    (tmp_path / "lies").write_text(OTHER_NAME.format(asked=far / "results", sent=far / ".ssh"))
    home = tmp_path / "home"
    home.mkdir()
    copy(login, False, far / "results", home)
    assert everything(home) == {"results": None, "results/authorized_keys": b".ssh"}


def test_it_cannot_say_that_a_folder_is_the_copy_of_another(login: LocalHost, far: Path, tmp_path: Path) -> None:
    """What is copied into a folder would be written over that folder's own files, with --force."""
    copy(login, False, far / "results", tmp_path / "back")
    (tmp_path / "lies").write_text(OTHER_NAME.format(asked=far / ".ssh", sent=far / "results"))
    copy(login, False, far / ".ssh", tmp_path / "back", force=True)
    assert set(everything(tmp_path / "back")) == {"authorized_keys", ".ssh", ".ssh/authorized_keys"}


@pytest.mark.parametrize("word", ["~", "~/", "/", "..", "results/.."])
def test_what_has_no_name_here_is_refused(login: LocalHost, tmp_path: Path, word: str) -> None:
    home = tmp_path / "home"
    home.mkdir()
    with pytest.raises(UsageError, match="name"):
        copy(login, False, word, home)
    assert everything(home) == {}


@pytest.mark.parametrize(
    "lie",
    [
        r"printf 'S\0/x\0S\0/y\0E\0y\0f\0f\0644\0000\0000.0\0\0\0\0000 \n'",  # two where one was asked for
        r"printf '\0000 \n'",  # none
        r"printf 'S\0/x\0E\0y\0d\0d\0755\0000\0000.0\0\0\0E\0y\0f\0f\0644\0001\0000.0\0../../.profile\0\0\0000 \n'",
        r"printf 'E\0y\0\0000 \n'",
        r"printf 'S\0/x\0E\0y\0f\0f\0999\0000\0000.0\0\0\0\0000 \n'",
        r"head -c 100000 /dev/urandom; printf '\0000 \n'",
    ],
)
def test_an_answer_that_is_none_is_refused(login: LocalHost, far: Path, tmp_path: Path, lie: str) -> None:
    (tmp_path / "lies").write_text(f"cat >/dev/null; {lie}\n")
    home = tmp_path / "home"
    home.mkdir()
    with pytest.raises(LauncherError):
        copy(login, False, far / "results", home)
    assert everything(home) == {} and not (tmp_path / ".profile").exists()


@pytest.mark.parametrize("lie", [r"printf 'x\0/x\0y\0\0\0000 \n'", r"printf '\0000 \n'"])
def test_a_destination_that_is_none_is_refused(login: LocalHost, tmp_path: Path, lie: str) -> None:
    (tmp_path / "data").write_text("data")
    real = "IFS= read -r -d '' script; IFS= read -r -d '' count; IFS= read -r -d '' verb"
    again = '{ printf \'%s\\0\' "$script" "$count" "$verb"; cat; } | /bin/bash "$@"'
    (tmp_path / "lies").write_text(f"{real}\nif [[ $verb == target ]]; then cat >/dev/null; {lie}; else {again}; fi\n")
    with pytest.raises(LauncherError):
        copy(login, True, tmp_path / "data", tmp_path / "there")
