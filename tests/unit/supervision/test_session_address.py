"""``status --url``: the address of a session to which this machine is attached, for an editor."""

from __future__ import annotations

import pytest

from notebook_launcher import sessions
from notebook_launcher.core import events, local_state
from notebook_launcher.core.errors import JupyterSilent, UsageError
from notebook_launcher.tunnel import forwarding
from tests.unit.supervision.fake_login import SESSION_ID
from tests.unit.supervision.launcher_doubles import TARGET, Launcher


def ask(launcher: Launcher) -> None:
    launcher.host.state, launcher.host.node = "RUNNING", "n1"
    launcher._old_session()
    launcher.host.files["endpoint.json"] = '{"port": 4242}'
    launcher._begin(lambda: sessions.show_address(TARGET, "", launcher.view, launcher.prompts, launcher.interrupts))


def test_the_address_by_a_tunnel_of_this_machine(launcher: Launcher, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local_state, "attached_ports", lambda _session: [50001])
    monkeypatch.setattr(forwarding, "check_jupyter", lambda *_args, **_options: None)
    ask(launcher)
    launcher.well()
    expected = events.SessionAddress(SESSION_ID, "7", "http://127.0.0.1:50001/lab?token=secret", 50001)
    assert launcher.view.events[-1] == expected


@pytest.mark.parametrize("ports", [[], [50001]])
def test_no_tunnel_that_works(launcher: Launcher, monkeypatch: pytest.MonkeyPatch, ports: list[int]) -> None:
    def silent(*_args: object, **_options: object) -> None:
        raise JupyterSilent("nothing answers")

    monkeypatch.setattr(local_state, "attached_ports", lambda _session: ports)
    monkeypatch.setattr(forwarding, "check_jupyter", silent)
    ask(launcher)
    error = launcher.fails(UsageError)
    assert error.hint == "in another terminal: launch-notebook connect --cluster uni abcd"
