"""Profiles for everybody on a machine: found without a name, below the user's own, and only if nobody can swap them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from notebook_launcher.core.errors import ProfileError
from notebook_launcher.planning.profile_commands import list_clusters
from notebook_launcher.profiles import load_configuration, load_profile, profile_names
from notebook_launcher.profiles.edit import new_profile_text

UNI = 'host = "login.uni.example"\ndescription = "ours"\n[defaults]\npartition = "gpu"\n'


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CONFIG_DIRS", str(tmp_path / "xdg"))
    monkeypatch.setenv("NOTEBOOK_LAUNCHER_CONFIG", str(tmp_path / "own"))
    folder = tmp_path / "xdg" / "notebook-launcher"
    for path, text in {"clusters/uni.toml": UNI, "config.toml": 'cluster = "uni"\n'}.items():
        write(folder / path, text)
    return folder


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def origin(name: str) -> str:
    return next(one.origin for one in list_clusters().clusters if one.cluster == name)


def test_nobody_has_to_name_the_sites_cluster(site: Path) -> None:
    assert load_configuration().cluster == "uni" and "uni" in profile_names()
    assert load_profile("uni").host == "login.uni.example" and origin("uni") == "site"


def test_the_users_own_files_come_first(site: Path, tmp_path: Path) -> None:
    write(tmp_path / "own" / "config.toml", 'cluster = "mine"\n')
    write(tmp_path / "own" / "clusters" / "mine.toml", 'base = "uni"\n[defaults]\naccount = "proj1"\n')
    assert load_configuration().cluster == "mine"
    assert load_profile("mine").defaults == {"partition": "gpu", "account": "proj1"}
    write(tmp_path / "own" / "clusters" / "uni.toml", new_profile_text("uni") + 'description = "mine"\n')
    assert (load_profile("uni").description, load_profile("uni").host) == ("mine", "login.uni.example")
    assert origin("uni") == "yours on site"


def test_a_site_may_extend_a_bundled_profile_by_its_name_and_the_user_that(site: Path, tmp_path: Path) -> None:
    bundled = load_profile("generic")
    write(site / "clusters" / "generic.toml", 'base = "generic"\nhost = "login.uni.example"\n')
    write(tmp_path / "own" / "clusters" / "generic.toml", 'base = "generic"\nuser = "alice"\n')
    profile = load_profile("generic")
    assert (profile.host, profile.user) == ("login.uni.example", "alice")
    assert profile.description == bundled.description


@pytest.mark.parametrize("place", ["clusters/uni.toml", "clusters", "."])
@pytest.mark.parametrize("mode", [0o020, 0o002])
def test_what_others_may_change_is_refused(site: Path, place: str, mode: int) -> None:
    path = site / place
    path.chmod(path.stat().st_mode | mode)
    with pytest.raises(ProfileError) as caught:
        load_profile("uni")
    assert "other users may change it" in caught.value.what and str(path.resolve()) in caught.value.why
    assert "chmod go-w" in caught.value.hint


def test_a_link_that_others_may_change_is_refused(site: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What it leads to is root's alone, and everybody may let it lead elsewhere."""
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o777)
    (shared / "notebook-launcher").symlink_to(site)
    monkeypatch.setenv("XDG_CONFIG_DIRS", str(shared))
    with pytest.raises(ProfileError) as caught:
        load_profile("uni")
    assert "other users may change it" in caught.value.what and str(shared) in caught.value.why


def test_the_first_folder_that_exists_is_the_sites(site: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A desktop puts folders of its own before /etc/xdg."""
    monkeypatch.setenv("XDG_CONFIG_DIRS", f"{tmp_path}/xdg-xfce:{site.parent}")
    assert load_configuration().cluster == "uni"


def test_a_folder_that_cannot_be_seen_is_an_error_with_a_hint(site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An administrator with umask 077; root sees everything, so the system says it."""

    def closed(path: Path) -> None:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(Path, "lstat", closed)
    with pytest.raises(ProfileError) as caught:
        load_configuration()
    assert "Permission denied" in caught.value.why and f"chmod -R a+rX {site}" in caught.value.hint


def test_ones_own_choice_needs_no_file_of_the_site(site: Path, tmp_path: Path) -> None:
    write(tmp_path / "own" / "config.toml", 'cluster = "here"\n')
    write(site / "config.toml", "no TOML")
    assert load_configuration().cluster == "here"


@pytest.mark.skipif(os.getuid() != 0, reason="only root may give a file away")
def test_a_file_of_another_user_is_refused_also_behind_a_link(site: Path, tmp_path: Path) -> None:
    strangers = tmp_path / "strangers.toml"
    write(strangers, UNI)
    os.chown(strangers, 12345, -1)
    (site / "clusters" / "uni.toml").unlink()
    (site / "clusters" / "uni.toml").symlink_to(strangers)
    with pytest.raises(ProfileError, match="other users may change it"):
        load_profile("uni")


def test_a_mistake_names_the_file_for_everybody(site: Path) -> None:
    write(site / "clusters" / "uni.toml", 'hots = "login"\n')
    with pytest.raises(ProfileError, match=r"xdg/notebook-launcher/clusters/uni\.toml:1"):
        load_profile("uni")
