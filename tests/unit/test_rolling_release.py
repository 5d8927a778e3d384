"""The practice cluster on a Debian that changes: what is built, and what on days on which it cannot be."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.practice_cluster import cache, debian, rolling
from tests.practice_cluster.errors import ClusterError, MirrorError, ReleaseUnusableError
from tests.practice_cluster.layout import GENERATIONS, Generation

TODAY = {
    "slurmctld": "27.11.1-1",
    "openssh-server": "1:11.0p1-1",
    "python3": "3.15.2-1",
    "libslurm47t64": "27.11.1-1",
}


class Mirror:
    """What a mirror has, or why it cannot be asked, and what has been built of that."""

    def __init__(self) -> None:
        self.packages: dict[str, str] | ClusterError = dict(TODAY)
        self.is_installable = True
        self.built: list[Generation] = []

    def versions(self, suite: str, pattern: str, kind: str) -> dict[str, str]:
        if isinstance(self.packages, ClusterError):
            raise self.packages
        return self.packages

    def provide(self, generation: Generation) -> None:
        if not self.is_installable and generation not in self.built:
            raise MirrorError("Building rootfs-sid failed: E: Unable to correct problems.")
        self.built.append(generation)


@pytest.fixture
def mirror(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Mirror:
    mirror = Mirror()
    monkeypatch.setattr(debian, "versions", mirror.versions)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    (tmp_path / "notebook-launcher" / "practice-cluster").mkdir(parents=True)
    return mirror


def test_what_the_mirror_has_is_built_and_known_afterwards(mirror: Mirror) -> None:
    with pytest.raises(ClusterError, match="build --slurm sid"):
        rolling.generation("sid")
    rolling.build_newest("sid", mirror.provide)
    (built,) = mirror.built
    assert (built.python, built.libslurm) == ("3.15", "libslurm47t64")
    assert "slurmctld 27.11.1-1" in built.versions
    assert rolling.generation("sid") == built


def test_a_new_version_is_built_anew(mirror: Mirror) -> None:
    rolling.build_newest("sid", mirror.provide)
    mirror.packages = TODAY | {"slurmctld": "27.11.2-1"}
    rolling.build_newest("sid", mirror.provide)
    assert "slurmctld 27.11.2-1" in rolling.generation("sid").versions
    assert mirror.built[0] != mirror.built[1]


@pytest.mark.parametrize(
    ("other", "newest"),
    [("libslurm9", "libslurm47t64"), ("libslurm46t64", "libslurm47t64"), ("libslurm100", "libslurm100")],
)
def test_of_several_libraries_the_newest_counts(mirror: Mirror, other: str, newest: str) -> None:
    mirror.packages = TODAY | {other: "27.11.1-1"}
    rolling.build_newest("sid", mirror.provide)
    assert mirror.built[0].libslurm == newest


@pytest.mark.parametrize("reason", ["no answer", "it cannot be installed"])
def test_what_was_built_before_stays_if_there_is_nothing_better_today(
    mirror: Mirror, reason: str, capsys: pytest.CaptureFixture[str]
) -> None:
    rolling.build_newest("sid", mirror.provide)
    spoil(mirror, reason)
    rolling.build_newest("sid", mirror.provide)
    assert mirror.built[0] == mirror.built[1] == rolling.generation("sid")
    assert "The one that was built before stays: slurmctld 27.11.1-1" in capsys.readouterr().err


@pytest.mark.parametrize("reason", ["no answer", "it cannot be installed"])
def test_a_release_that_cannot_be_built_today_is_told_apart_from_other_errors(mirror: Mirror, reason: str) -> None:
    spoil(mirror, reason)
    with pytest.raises(ReleaseUnusableError, match=r"Debian sid .*today") as caught:
        rolling.build_newest("sid", mirror.provide)
    assert caught.value.exit_code == 4
    assert not rolling.is_built("sid")


@pytest.mark.parametrize("is_built", [True, False])
@pytest.mark.parametrize("reason", ["a package is missing", "the disk is full"])
def test_what_would_be_wrong_on_any_day_is_a_failure(mirror: Mirror, reason: str, is_built: bool) -> None:
    """Else the newest Slurm might stay untested for ever, and nobody would notice."""
    if is_built:
        rolling.build_newest("sid", mirror.provide)
    spoil(mirror, reason)
    with pytest.raises(ClusterError) as caught:
        rolling.build_newest("sid", mirror.provide)
    assert caught.value.exit_code == 1


UNMET = """\
The following packages have unmet dependencies:
 slurmctld : Depends: libslurm47t64 (>= 27.11) but it is not installable
E: Unable to correct problems, you have held broken packages.
E: mmdebstrap failed to run
"""


@pytest.mark.parametrize(
    ("said", "kind"),
    [
        ("E: Failed to fetch http://deb.example/x.deb  404  Not Found [IP: 192.0.2.1 80]", MirrorError),
        ("E: Failed to fetch http://deb.example/InRelease  Could not resolve 'deb.example'", MirrorError),
        ("E: Some index files failed to download.", MirrorError),
        (UNMET, MirrorError),
        ("E: Unable to satisfy dependencies. Reached two conflicting assignments:", MirrorError),
        (
            "E: Failed to fetch http://deb.example/x.deb  Write error - write (28: No space left on device)",
            ClusterError,
        ),
        ("E: You don't have enough free space in /var/cache/apt/archives/.", ClusterError),
        ("E: Unable to locate package slurmctld", ClusterError),
        ("patchelf: not an ELF executable", ClusterError),
    ],
)
def test_what_apt_says_of_a_mirror_is_told_apart(mirror: Mirror, said: str, kind: type[ClusterError]) -> None:
    cache.log_file("rootfs-sid").write_text("E: Failed to fetch, in an earlier step\n")
    with pytest.raises(ClusterError, match="Building rootfs-sid failed: ") as caught:
        debian.run_logged(["sh", "-c", 'printf "%s\\n" "$1"; exit 100', "sh", said], "rootfs-sid")
    assert type(caught.value) is kind


def spoil(mirror: Mirror, reason: str) -> None:
    if reason == "no answer":
        mirror.packages = MirrorError("Building versions-sid failed: Could not resolve 'deb.example'.")
    elif reason == "a package is missing":
        mirror.packages = {name: version for name, version in TODAY.items() if not name.startswith("libslurm")}
    elif reason == "the disk is full":
        mirror.packages = ClusterError("Building versions-sid failed: No space left on device.")
    else:
        mirror.packages, mirror.is_installable = TODAY | {"slurmctld": "27.11.2-1"}, False


def test_other_generations_are_what_they_are() -> None:
    assert rolling.generation("24.11") is GENERATIONS["24.11"]
