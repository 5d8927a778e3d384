"""The bundled profiles: each is valid, tells where every value comes from, and asks for what the golden files show."""

from __future__ import annotations

import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from notebook_launcher.core.errors import GresRefused, PartitionRefused, SubmitRefused
from notebook_launcher.jobs.submit import name_profile_in_refusal
from notebook_launcher.planning.plan import make_plan
from notebook_launcher.planning.target import LaunchOptions, LocalMachine
from notebook_launcher.profiles import load_profile, store
from notebook_launcher.profiles.layers import read_layer
from notebook_launcher.profiles.store import bundled_profiles, checked_profile
from notebook_launcher.session.preflight import image_command
from tests.golden_profiles import FOLDER, LAPTOP, LINES, flags_of, rendered
from tests.paths import DOCS, ROOT

NAMES = bundled_profiles()
BUNDLED = Path(store.__file__).parent / "bundled"
DOCUMENTED = (DOCS / "clusters.md").read_text(encoding="utf-8")
# how sure a value is, by where it comes from
SOURCES = re.compile(r"official|course material|users' notes|lab's text|our choice")
LAPTOP_OR_LOGIN = LocalMachine("login", ("slurm",))  # `generic` has no login node of its own
MULTI_LINE = re.compile(r"\[\s*(#.*)?$")


@pytest.fixture(autouse=True)
def nobodys_configuration(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NOTEBOOK_LAUNCHER_CONFIG", str(tmp_path))


def test_the_sites_that_courses_name_are_there() -> None:
    assert set(NAMES) == set(LINES)


@pytest.mark.parametrize("name", NAMES)
def test_it_is_a_profile_and_leads_to_the_sites_own_pages(name: str) -> None:
    profile = checked_profile([read_layer(BUNDLED / f"{name}.toml")])
    assert profile.description
    assert profile.docs
    assert all(link.startswith("https://") for link in profile.docs)


@pytest.mark.parametrize("name", NAMES)
def test_it_asks_for_what_its_golden_file_shows(name: str) -> None:
    """``python -m tests.golden_profiles --write`` writes them anew."""
    assert rendered(name) == (FOLDER / f"{name}.txt").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", NAMES)
def test_every_value_tells_where_it_comes_from(name: str) -> None:
    assert unsourced((BUNDLED / f"{name}.toml").read_text(encoding="utf-8")) == []


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("a = 1", ["a = 1"]),
        ("a = 1  # a remark", ["a = 1  # a remark"]),
        ("a = 1  # official: x, 2026", []),
        ("# users' notes, 2026\na = 1", []),
        ("# users' notes, 2026\n\na = 1", ["a = 1"]),
        ("[gpu]  # our choice\na = 1\nb = 2", []),
        ("# course material, 2026\n[[translations]]\na = 1", []),
        ("[gpu]  # our choice\n[cpu]\na = 1", ["a = 1"]),
        ('a = [  # official: x\n    "b = 1",\n]', []),
        ('a = "# official"', ['a = "# official"']),
    ],
)
def test_a_value_without_a_source_is_found(text: str, lines: list[str]) -> None:
    assert unsourced(text) == lines


def unsourced(text: str) -> list[str]:
    """Return the lines with a key that have no source: beside it, right above, or at the head of its table."""
    found, above, head, inside = [], "", "", False
    for line in text.splitlines():
        if inside:
            inside = line.strip() != "]"
            continue
        bare = re.sub(r'"[^"]*"', '""', line)
        remark = bare.partition("#")[2]
        if bare.startswith("#"):
            above += remark
            continue
        if bare.startswith("["):
            head = above + remark
        elif "=" in bare.partition("#")[0]:
            if not SOURCES.search(above + remark + head):
                found.append(line)
            inside = bool(MULTI_LINE.search(bare))
        above = ""
    return found


@pytest.mark.parametrize("name", NAMES)
def test_it_stands_in_the_table_of_the_docs(name: str) -> None:
    """With its login node and its status."""
    (row,) = re.findall(rf"^\| `{re.escape(name)}` \|.*$", DOCUMENTED, re.M)
    profile = load_profile(name)
    assert profile.host is None or profile.host in row
    assert profile.status != "retired" or f"retired; now `{profile.successor}`" in row


#: in use, and of one site
IN_USE = [name for name in NAMES if name != "generic" and load_profile(name).status == "active"]


@pytest.mark.parametrize("name", IN_USE)
def test_whom_to_ask_is_known(name: str) -> None:
    contact = load_profile(name).contact
    assert contact is not None and re.fullmatch(r"https://[\w./-]+|[\w.-]+@[\w.-]+", contact)


COURSE_ENVIRONMENTS = ["torch", "tensorflow", "tf-gpu", "tf-mkl", "tf-pip"]


@pytest.mark.parametrize("environment", COURSE_ENVIRONMENTS)
@pytest.mark.parametrize("name", [name for name in NAMES if not load_profile(name).unavailable])
def test_what_courses_need_is_there_or_can_be_made(name: str, environment: str) -> None:
    """Also by the name of a retired cluster, which leads to its successor."""
    flags = {"account": load_profile(name).account.example or "proj1"}
    plan = make_plan(LaunchOptions(flags, cluster=name, host=None, arguments=(environment,)), LAPTOP_OR_LOGIN)
    software = plan.environment
    assert software.modules or image_command(plan) or (plan.container or "").startswith("/")
    if environment in ("tf-mkl", "tf-pip"):
        switch = "1" if environment == "tf-mkl" else "0"
        in_image = software.venv == f"/opt/envs/{environment}" and software.definition == "tensorflow"
        assert in_image or software.env["TF_ENABLE_ONEDNN_OPTS"] == switch


@pytest.mark.parametrize("name", IN_USE)
def test_no_launch_is_without_software(name: str) -> None:
    profile = load_profile(name)
    assert profile.environment or profile.unavailable


@pytest.mark.parametrize("name", NAMES)
def test_a_retired_one_leads_to_one_that_is_in_use(name: str) -> None:
    profile = load_profile(name)
    if profile.status == "retired":
        assert profile.notice
        assert load_profile(str(profile.successor)).status == "active"


def test_the_examples_of_accounts_look_like_accounts() -> None:
    for name in NAMES:
        rule = load_profile(name).account
        assert not rule.pattern or re.fullmatch(rule.pattern, str(rule.example), re.I), name


@pytest.mark.real_time
def test_a_wheel_holds_them_all(tmp_path: Path) -> None:
    top = ROOT
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)], cwd=top, check=True
    )
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        held = set(archive.namelist())
    assert {f"notebook_launcher/profiles/bundled/{name}.toml" for name in NAMES} <= held


@pytest.mark.parametrize(
    ("words", "refusal", "named"),
    [
        ("--gpus 1", PartitionRefused("There is no such partition."), "--partition=gpu_a100"),
        ("--gpus 1 -p mine", PartitionRefused("There is no such partition."), None),
        ("--gpus 1", GresRefused("There are no such GPUs."), None),  # the wish is the user's, in whatever words
    ],
)
def test_a_refusal_names_the_profile_where_its_words_for_gpus_were_refused(
    words: str, refusal: SubmitRefused, named: str | None
) -> None:
    plan = make_plan(LaunchOptions(flags_of(words), cluster="snellius"), LAPTOP)
    with pytest.raises(SubmitRefused) as caught, name_profile_in_refusal(plan):
        raise refusal
    assert caught.value.why == ("" if named is None else f"The profile “snellius” asks for it: {named}.")
