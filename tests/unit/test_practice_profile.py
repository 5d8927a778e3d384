"""The profile that ``practice_cluster up`` writes for a person: where it goes, and whose it is."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.practice_cluster import host_access


def test_clusters_of_the_tests_write_no_profile_outside_the_temporary_home(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    for sudo in (False, True):
        if sudo:
            monkeypatch.setenv("SUDO_UID", "0")
        path = host_access._profile_path("practice")
        assert path == tmp_path / ".config/notebook-launcher/clusters/practice.toml"
    monkeypatch.setenv("NOTEBOOK_LAUNCHER_CONFIG", str(tmp_path / "mine"))
    assert host_access._profile_path("practice") == tmp_path / "mine/clusters/practice.toml"


def test_a_profile_of_another_cluster_is_replaced_with_a_word_and_removed_only_by_its_owner(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("NOTEBOOK_LAUNCHER_CONFIG", str(tmp_path / "config"))
    first, second = tmp_path / "first", tmp_path / "second"

    def write(state: Path) -> tuple[Path | None, str]:
        path = host_access._write_profile(state / "door", state, "practice")
        said = capsys.readouterr()
        return path, said.out + said.err

    assert write(first)[1] == write(first)[1] == ""
    path, said = write(second)
    assert f"The profile practice was for {first} and is now for this cluster." in said

    assert path
    host_access.remove_files(first, path)
    assert path.exists()
    host_access.remove_files(second, path)
    assert not path.exists()


@pytest.mark.parametrize("default", ["practice", "uni"])
def test_with_its_profile_the_cluster_is_no_longer_the_default(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], default: str
) -> None:
    """Else each later command would fail, because there is no such profile."""
    profile, configuration = tmp_path / "clusters/practice.toml", tmp_path / "config.toml"
    configuration.write_text(f'# mine\ncluster = "{default}"\nopen = "terminal"\n')
    host_access.forget_profile(profile)
    is_left = default == "uni"
    assert ("cluster" in configuration.read_text()) is is_left
    assert configuration.read_text().startswith("# mine\n") and configuration.read_text().endswith('"terminal"\n')
    said = capsys.readouterr()
    assert f"The profile {profile} is removed." in said.out + said.err
    assert ("no longer the launcher's default" in said.out + said.err) is not is_left
