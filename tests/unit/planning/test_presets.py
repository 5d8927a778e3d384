"""Presets: a launch saved in its cluster's profile under a name, replaced only if the user agrees, and found again."""

from __future__ import annotations

from pathlib import Path

import pytest

from notebook_launcher.core.errors import LauncherError, UsageError
from notebook_launcher.planning.presets import find_preset, save_preset
from notebook_launcher.planning.target import LaunchOptions, LocalMachine, resolve_target
from notebook_launcher.profiles import load_profile
from tests.doubles import FakePrompts, RecordingView

LAPTOP = LocalMachine("laptop")


@pytest.fixture
def profile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The user's own profile ``uni``, empty so far."""
    monkeypatch.setenv("NOTEBOOK_LAUNCHER_CONFIG", str(tmp_path))
    path = tmp_path / "clusters" / "uni.toml"
    path.parent.mkdir()
    path.touch()
    return path


def save(name: str, *words: str, cluster: str = "uni", prompts: FakePrompts | None = None) -> None:
    target = resolve_target(LaunchOptions(cluster=cluster), LAPTOP)
    save_preset(name, words, target, RecordingView(), prompts or FakePrompts(asks=False))


@pytest.mark.parametrize("place", ["--cluster uni", "--host=login", "--course lab"])
def test_a_preset_that_names_its_place_gets_no_other(profile: Path, place: str) -> None:
    profile.write_text(f'presets.big = "{place} -t 1h"\n')
    assert find_preset("big", None, LAPTOP) == [*place.split(), "-t", "1h"]


@pytest.mark.parametrize("answer", [True, False, None])
def test_another_preset_of_that_name_is_replaced_only_if_the_user_says_so(profile: Path, answer: bool | None) -> None:
    save("big", "--cluster", "uni", "-t", "1h")
    save("big", "-t", "1h", "--cluster=uni")  # the same once more is no question
    prompts = FakePrompts(confirms=[answer], asks=answer is not None)
    if answer:
        save("big", "--cluster", "uni", "-t", "5h", prompts=prompts)
    else:
        with pytest.raises(UsageError) as refused:
            save("big", "--cluster", "uni", "-t", "5h", prompts=prompts)
        assert "clusters edit uni --set presets.big=" in refused.value.hint
    assert load_profile("uni").presets["big"] == ("-t 5h" if answer else "-t 1h")
    assert prompts.asked == ([] if answer is None else ["The preset “big” is: -t 1h\nReplace it?"])
    assert find_preset("big", None, LAPTOP) == ["-t", "5h" if answer else "1h", "--cluster", "uni"]


def test_what_follows_two_dashes_is_the_users(profile: Path) -> None:
    save("big", "lab.ipynb", "--cluster", "uni", "--", "--cluster", "x")
    assert load_profile("uni").presets["big"] == "lab.ipynb -- --cluster x"
    save("none", "--", "-x")
    assert load_profile("uni").presets["none"] == "-- -x"


@pytest.mark.parametrize(
    ("name", "cluster", "message"), [("bg", "uni", "did you mean big?"), ("other", None, "The presets are: big.")]
)
def test_a_preset_that_there_is_not(profile: Path, name: str, cluster: str | None, message: str) -> None:
    profile.write_text('presets.big = "--gpus 1"\n')
    with pytest.raises(UsageError) as refused:
        find_preset(name, cluster, LAPTOP)
    assert message in f"{refused.value.why} {refused.value.hint}"


@pytest.mark.parametrize(
    ("name", "cluster", "message"),
    [
        ("no name", "uni", "“no name” cannot be the name of a preset"),
        ("v1.2", "uni", "“v1.2” cannot be the name of a preset"),
        ("big", "here", "“big” cannot be saved: this machine has no profile."),
    ],
)
def test_what_cannot_be_saved(profile: Path, name: str, cluster: str, message: str) -> None:
    profile.write_text('presets.big = "--gpus 1"\n')
    with pytest.raises(LauncherError) as refused:
        save(name, "-t", "1h", cluster=cluster)
    assert message in refused.value.what
    assert load_profile("uni").presets == {"big": "--gpus 1"}
