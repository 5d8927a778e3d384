"""What the checks have found is kept for the next checkout; that it cannot be kept is no failure of a check."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.paths import ROOT

#: notes each script that it checks; finds fault with those that have a word in them
SHELLCHECK = """#!/bin/sh
[ "$1" != --version ] || exec echo "version: 1"
echo "$2" >>"$CHECKED"
! grep -q fault "$2"
"""
MYPY = """#!/bin/sh
echo checked >>"$CHECKED"
mkdir -p .mypy_cache && echo known >.mypy_cache/known
exit "${FAULT:-0}"
"""


class Checkout:
    """A checkout with one script, and stand-ins for shellcheck and mypy."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.noted, self.cache = folder / "checkout", folder / "noted", folder / "cache"
        self.folder.mkdir()
        (self.folder / "one.sh").write_text("true\n")
        (folder / "bin").mkdir()
        for name, content in (("shellcheck", SHELLCHECK), ("mypy", MYPY)):
            (folder / "bin" / name).write_text(content)
            (folder / "bin" / name).chmod(0o755)
        self.env = {"PATH": f"{folder / 'bin'}:{os.environ['PATH']}", "CHECKED": str(self.noted)}

    def check(self, *words: str, **env: str) -> tuple[int, int]:
        """Run a check, and return its exit code and how often something was checked so far."""
        env = {**self.env, "XDG_CACHE_HOME": str(self.cache), **env}
        env = {name: value for name, value in env.items() if value}
        argv = [str(ROOT / "tests" / words[0]), *words[1:]]
        code = subprocess.run(argv, cwd=self.folder, env=env, check=False, timeout=60).returncode
        return code, len(self.noted.read_text().splitlines()) if self.noted.exists() else 0

    def shell_check(self, **env: str) -> tuple[int, int]:
        return self.check("shell_check.sh", "one.sh", **env)

    def type_check(self, **env: str) -> tuple[int, int]:
        return self.check("type_check.sh", str(self.folder.parent), **env)


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    return Checkout(tmp_path)


def test_a_script_is_checked_once_and_again_after_any_change(checkout: Checkout) -> None:
    assert [checkout.shell_check(), checkout.shell_check()] == [(0, 1), (0, 1)]
    assert checkout.shell_check(SHELLCHECK_OPTS="--enable=all") == (0, 2)
    (checkout.folder.parent / ".shellcheckrc").write_text("enable=all\n")
    assert [checkout.shell_check(), checkout.shell_check()] == [(0, 3), (0, 3)]
    (checkout.folder / "one.sh").write_text("fault\n")
    assert checkout.shell_check()[0] and checkout.shell_check()[0] and checkout.shell_check() != (0, 3)


@pytest.mark.parametrize("cache", ["", "/dev/null", "/proc"])
def test_a_check_needs_no_place_to_keep_what_it_finds(checkout: Checkout, cache: str) -> None:
    """Without a home, on a full disk, and on one that cannot be written."""
    for number in (1, 2):
        assert checkout.shell_check(XDG_CACHE_HOME=cache) == (0, number)
    assert checkout.type_check(XDG_CACHE_HOME=cache) == (0, 3)
    (checkout.folder / "one.sh").write_text("fault\n")
    assert checkout.shell_check(XDG_CACHE_HOME=cache)[0] != 0
    assert checkout.type_check(XDG_CACHE_HOME=cache, FAULT="1")[0] == 1


def test_what_mypy_knows_is_kept_whole_or_not_at_all(checkout: Checkout) -> None:
    assert checkout.type_check() == (0, 1)
    (checkout.folder / ".mypy_cache" / "known").unlink()
    (checkout.folder / ".mypy_cache").rmdir()
    kept = checkout.cache / "notebook-launcher"
    tar = checkout.folder.parent / "bin" / "tar"
    tar.write_text('#!/bin/sh\n[ "$1" != -cf ] || { kill -TERM $PPID; sleep 1; exit 1; }\nexec /bin/tar "$@"\n')
    tar.chmod(0o755)
    assert checkout.type_check()[1] == 2
    assert [path.name for path in kept.iterdir()] == ["mypy.tar"]
