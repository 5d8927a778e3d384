"""A command of ours on its stand-ins, for every test of supervision."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from notebook_launcher.core.interrupts import Interrupt
from notebook_launcher.session import open_context as opening
from notebook_launcher.supervision import end_check, jupyter
from notebook_launcher.tunnel import node_connection, page_port
from tests.unit.conftest import SetTiming
from tests.unit.supervision.launcher_doubles import QUICK, Launcher


@pytest.fixture
def launcher(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, set_timing: SetTiming) -> Iterator[Launcher]:
    """The stand-ins in place, and the waits short; ``launch-notebook`` is on the PATH."""
    launcher = Launcher(set_timing)
    program = tmp_path / "launch-notebook"
    program.touch(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(opening, "open_host", launcher.open_host)
    monkeypatch.setattr(jupyter, "find_route", launcher.routes.find_route)
    monkeypatch.setattr(jupyter, "Tunnel", launcher.tunnel)
    monkeypatch.setattr(node_connection, "check_jupyter", launcher.routes.check_jupyter)
    monkeypatch.setattr(page_port, "is_answered", launcher.routes.is_answered)
    monkeypatch.setattr(jupyter, "port_owner", launcher.routes.port_owner)
    monkeypatch.setattr(end_check, "busy_kernels", launcher.routes.busy_kernels)
    monkeypatch.setattr(end_check, "save_in_pages", launcher.routes.save_in_pages)
    set_timing(**QUICK)
    yield launcher
    for event in launcher.blocked:
        event.set()
    launcher.interrupts.inbox.put(Interrupt("leave"))  # a command that a failed test has left behind
