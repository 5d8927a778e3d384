"""Whatever probe.py seems to say, as an environment's own code can print it, too: shown in a few words, or left out."""

from __future__ import annotations

import json
import re
from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st

from notebook_launcher.core.request import Request
from notebook_launcher.environments.check import EnvironmentReport, findings
from notebook_launcher.environments.export import exported_files
from notebook_launcher.planning.plan import LaunchTarget, Plan
from notebook_launcher.profiles import ClusterProfile, Environment
from tests.fuzzing import JSON_VALUES, unseen

MARK = "look-1"
FORGED = "x==1\n--index-url https://evil.example\r\x1b]0;x\x07\u2028\u202e\ud800"
TEXTS = st.sampled_from(["", "3.11.2", "ok", "cannot be imported: x", "x" * 5000, FORGED]) | st.text(max_size=5)
ITEMS = st.sampled_from(["numpy==2.0", "torch==2.1+cpu", "a=1", "_x=1", "-e .", "a @ file:///x", FORGED, "main"])
SOUND: dict[str, st.SearchStrategy[Any]] = {
    **dict.fromkeys(["python", "prefix", "jupyterlab", "ipykernel", "kernel", "torch", "tensorflow"], TEXTS),
    **dict.fromkeys(["packages", "conda", "channels"], st.lists(ITEMS | JSON_VALUES, max_size=4)),
    "kernel_seconds": st.floats() | st.integers(), "gpus": st.integers(-1, 9), "end": st.booleans(),
}  # fmt: skip
VALUES = st.fixed_dictionaries({}, optional={key: kind | kind | JSON_VALUES for key, kind in SOUND.items()})
LINES = st.one_of(
    VALUES.map(lambda values: f"{MARK} {json.dumps(values)}"),
    st.text(max_size=20),
    st.sampled_from([f"{MARK} {'[' * 5000}", f"{MARK} ", f'{MARK} {{"python": {"9" * 5000}}}', FORGED]),
)


def plan(container: str | None = None) -> Plan:
    return Plan(LaunchTarget(ClusterProfile(), None, None, "slurm"), Request({}), "t", Environment(), container)


def report(lines: list[str]) -> EnvironmentReport:
    found = EnvironmentReport(MARK)
    for line in lines:
        found.take(line, "node1")
    return found


@settings(deadline=None)
@given(st.lists(LINES, max_size=4), st.booleans())
@example([f'{MARK} {{"python": "3", "gpus": "many", "torch": ["{"x" * 999}"]}}'], True)
@example([" "], False)
@example([f'{MARK} {{"python": "{"x" * 600}", "prefix": "{"x" * 600}"}}'], False)
@example([f'{MARK} {{"python": "3\\n✓ JupyterLab", "kernel": {{"a": 1}}}}'], False)
def test_any_probe_is_shown_as_checks_of_one_line_each(lines: list[str], gpus: bool) -> None:
    for name, finding in findings(plan(), report(lines), gpus=gpus):
        assert len(name) < 20 and finding.found and len(finding.found) < 800
        assert unseen(finding.found) == []


REQUIREMENT = re.compile(r"#.*|[A-Za-z0-9][\w.-]*==[\w.!+-]+", re.A)
YAML = re.compile(r"#.*|\w+: ?\w*|  - [\w.-]+|  - [\w.-]+=[\w.!+-]+|  - pip:|      - [\w.-]+==[\w.!+-]+", re.A)


@settings(deadline=None)
@given(
    st.lists(LINES, min_size=1, max_size=4), VALUES | JSON_VALUES.map(lambda value: {"digest": value, "source": value})
)
@example([f"{MARK} {json.dumps({'packages': [FORGED], 'prefix': FORGED})}"], {"digest": FORGED, "source": FORGED})
@example([f"{MARK} {json.dumps({'packages': [FORGED], 'conda': ['a=1', FORGED], 'channels': [FORGED]})}"], {})
def test_any_probe_is_exported_as_packages_and_nothing_else(lines: list[str], image: dict[str, Any]) -> None:
    """A line of requirements.txt could name an index, from which pip installs what its owner likes."""
    files = exported_files(plan("/images/x.sif"), report(lines).values, image)
    for name, text in files.items():
        assert set(unseen(text)) <= {"\n"}, name
        text.encode()
    assert not any(line.startswith("--") for text in files.values() for line in text.splitlines())
    for line in files.get("requirements.txt", "").splitlines():
        assert REQUIREMENT.fullmatch(line), line
    for line in files.get("environment.yml", "").splitlines():
        assert YAML.fullmatch(line), line
    assert len(files["container.txt"].splitlines()) == 3


def test_what_is_no_package_is_named_where_it_is_left_out() -> None:
    values = report([f"{MARK} {json.dumps({'python': '3.11', 'packages': ['a==1', 'b==None', FORGED]})}"]).values
    left_out, *kept = exported_files(plan(), values, {})["requirements.txt"].splitlines()
    assert kept == ["a==1", "b==None"]
    assert left_out.startswith("# left out, as it is not a name and a version: x==1 --index-url")


def test_an_environment_that_prints_without_end_does_not_fill_the_memory() -> None:
    found = EnvironmentReport(MARK)
    for number in range(1000):
        found.take(f"line {number}", "node1")
        found.take(f'{MARK} {{"key{number}": 1}}', "node1")
    assert found.output[-1] == "line 999"
    assert len(found.output) <= 200 and not found.values
