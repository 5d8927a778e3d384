"""How the programs beside JupyterLab are, and by which address of this machine they are open."""

from __future__ import annotations

import json
from typing import Any

import pytest

from notebook_launcher.core import events
from notebook_launcher.usage.app_states import app_states

GOOD: dict[str, Any] = {"name": "board", "title": "Board", "state": "running", "message": "", "restarts": 2}


def read(*apps: object, ports: dict[str, int] | None = None) -> tuple[events.AppState, ...]:
    return app_states(json.dumps({"version": 1, "apps": apps}).encode(), ports or {})


def test_the_address_is_that_of_this_machine_without_the_secret() -> None:
    (state,) = read(GOOD | {"url": "http://evil.example/", "secret": "s3cret"}, ports={"board": 38211, "other": 5})
    assert state == events.AppState("board", "Board", "running", 2, "", "http://port-38211.localhost:38211/")
    assert read(GOOD)[0].url is None


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"7", b'{"apps": {}}', b"\xff", b"[" * 100_000])
def test_a_file_that_is_none(content: bytes) -> None:
    assert app_states(content, {}) == ()
