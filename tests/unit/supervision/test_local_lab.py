"""The user's own JupyterLab, tied to a session (``--local-lab``): a small program stands in for it."""

from __future__ import annotations

import json
import os
import queue
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from notebook_launcher.core import events
from notebook_launcher.core.errors import JobTimedOut, UsageError
from notebook_launcher.supervision import local_lab_process
from notebook_launcher.supervision.local_lab_process import LabEnded, LocalLab, address_in, arguments, environment
from notebook_launcher.tunnel.forwarding import Endpoint
from tests.doubles import wait_until
from tests.unit.supervision.fake_login import PATIENCE
from tests.unit.supervision.launcher_doubles import PLAN, Launcher

# It writes down what it was given, and what it is told; `broken` as its first argument makes it fail.
LAB = """
import json, os, pathlib, sys
here = pathlib.Path(sys.argv[1])
if sys.argv[2] == "broken":
    print("http://localhost:8888/lab?token=own")
    sys.exit("no such option")
runtime = pathlib.Path(os.environ["JUPYTER_RUNTIME_DIR"])
(here / "given.json").write_text(json.dumps({"argv": sys.argv[3:], "env": dict(os.environ), "folder": str(runtime)}))
(runtime / "jpserver-1.json").write_text(json.dumps({"url": "http://localhost:8888/", "token": "own"}))
for line in sys.stdin:
    with (here / "told").open("a") as told:
        told.write(line)
(here / "ended").touch()
"""


class Lab:
    """The stand-in, and what it has written down."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "lab.py").write_text(LAB)

    def plan(self, how: str = "well") -> tuple[str, ...]:
        return (sys.executable, str(self.folder / "lab.py"), str(self.folder), how)

    @property
    def given(self) -> dict[str, object]:
        return dict(json.loads((self.folder / "given.json").read_text()))

    @property
    def told(self) -> str:
        path = self.folder / "told"
        return path.read_text() if path.exists() else ""

    def has_ended(self) -> None:
        """It was ended in peace, and has left nothing."""
        assert (self.folder / "ended").exists()
        assert not Path(str(self.given["folder"])).exists()


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    yield Lab(tmp_path)


def launched(launcher: Launcher, lab: Lab, how: str = "well") -> None:
    launcher.launch(replace(PLAN, local_lab=lab.plan(how)))
    launcher.attach()


def test_the_sessions_token_is_not_among_what_it_printed(tmp_path: Path) -> None:
    """With debug messages, JupyterLab prints its configuration."""
    inbox: queue.SimpleQueue[object] = queue.SimpleQueue()
    said = "import os, sys; sys.exit('auth_token: ' + os.environ['JUPYTER_GATEWAY_AUTH_TOKEN'] + '; no such option')"
    lab = LocalLab((sys.executable, "-c", said), Endpoint(1), 1, "s3cret", inbox)
    try:
        ended = inbox.get(timeout=PATIENCE)
        assert ended == LabEnded(lab.number, 1, "auth_token: …; no such option")
    finally:
        lab.close()


def test_it_starts_with_the_sessions_kernels_and_ends_with_the_session(launcher: Launcher, lab: Lab) -> None:
    launched(launcher, lab)
    shown = launcher.shown(events.LocalLabReady)
    assert (shown.job, shown.node, shown.url) == ("7", "n1", "http://localhost:8888/lab?token=own")
    assert lab.given["argv"] == ["--gateway-url=http://127.0.0.1:50001/", "--no-browser"]
    given = lab.given["env"]
    assert isinstance(given, dict) and given["JUPYTER_GATEWAY_AUTH_TOKEN"] not in json.dumps(lab.given["argv"])
    launcher.goes_on_to_a_good_end()
    lab.has_ended()
    assert "kernels gone" not in lab.told


def test_it_ends_when_the_user_detaches(launcher: Launcher, lab: Lab) -> None:
    launched(launcher, lab)
    launcher.shown(events.LocalLabReady)
    launcher.types("d")
    launcher.well()
    lab.has_ended()
    assert lab.told == "", "the kernels go on"


def test_it_stays_for_the_user_to_save_when_the_job_has_ended(launcher: Launcher, lab: Lab) -> None:
    launcher.prompts.asks = True
    launched(launcher, lab)
    launcher.shown(events.LocalLabReady)
    launcher.host.state = "TIMEOUT"
    launcher.noted("Your own JupyterLab stays open without kernels, so that you can save. Press ENTER")
    wait_until(lambda: lab.told == "kernels gone\n", PATIENCE, "it was told")
    assert launcher.going and not (lab.folder / "ended").exists()
    launcher.types("")
    launcher.fails(JobTimedOut)
    lab.has_ended()


def test_its_pages_are_told_when_the_job_is_requeued(launcher: Launcher, lab: Lab) -> None:
    launched(launcher, lab)
    launcher.shown(events.LocalLabReady)
    launcher.host.requeued()
    launcher.shown(events.Pending, 2)
    wait_until(lambda: lab.told == "kernels gone\n", PATIENCE, "it was told")
    launcher.host.starts("n2")
    launcher.host.says("endpoint", port=4343)
    launcher.goes_on_to_a_good_end(ready=2)
    assert launcher.names.count("local_lab_ready") == 1


def test_the_session_goes_on_without_it(launcher: Launcher, lab: Lab) -> None:
    launched(launcher, lab, "broken")
    launcher.noted("Your own JupyterLab has ended (exit code 1: no such option)")
    assert not any("token=own" in note for note in launcher.notes)
    launcher.goes_on_to_a_good_end()


def test_the_session_goes_on_if_it_cannot_be_run(launcher: Launcher, lab: Lab) -> None:
    launcher.launch(replace(PLAN, local_lab=(str(lab.folder / "missing"),)))
    launcher.attach()
    launcher.noted("Your own JupyterLab could not be started")
    launcher.goes_on_to_a_good_end()


def test_no_jupyterlab_on_this_machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setattr(local_lab_process.importlib.util, "find_spec", lambda _name: None)
    with pytest.raises(UsageError, match="--local-lab needs a JupyterLab on this machine"):
        local_lab_process.local_lab_command()
    (tmp_path / "jupyter-lab").touch(0o755)
    assert local_lab_process.local_lab_command() == (str(tmp_path / "jupyter-lab"),)


def test_root_is_refused_unless_the_configuration_allows_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/jupyter-lab").touch(0o755)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setenv("JUPYTER_CONFIG_DIR", str(tmp_path))
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    config = tmp_path / "jupyter_server_config.py"
    config.write_text("# c.ServerApp.allow_root = False\n")
    with pytest.raises(UsageError, match="because you are root") as refused:
        local_lab_process.local_lab_command()
    assert str(config) in refused.value.hint
    config.write_text("c.ServerApp.allow_root = True\n")
    assert local_lab_process.local_lab_command() == (str(tmp_path / "bin/jupyter-lab"),)


def test_what_it_is_given(tmp_path: Path) -> None:
    assert arguments(Endpoint(1, "/base/", secure=True), 5000)[0] == "--gateway-url=https://127.0.0.1:5000/base/"
    given = environment("secret", tmp_path, {"JUPYTER_CONFIG_PATH": "/mine", "HOME": "/home/ada"})
    assert given["JUPYTER_CONFIG_PATH"].split(":") == [str(tmp_path), "/mine"]
    assert given["HOME"] == "/home/ada"


@pytest.mark.parametrize(
    ("written", "address"),
    [
        ('{"url": "http://localhost:8888/", "token": "a&b"}', "http://localhost:8888/lab?token=a%26b"),
        ('{"url": "http://localhost:8888/", "token": ""}', "http://localhost:8888/lab"),
        ('{"url": "http://localh', ""),
        ("{}", ""),
    ],
)
def test_its_address(written: str, address: str) -> None:
    assert address_in(written) == address
