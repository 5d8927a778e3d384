"""What a node says of the programs beside JupyterLab is hostile until checked."""

from __future__ import annotations

from typing import Any

import pytest

from notebook_launcher.tunnel.apps import OpenApp

GOOD: dict[str, Any] = {
    "name": "board",
    "title": "Board",
    "port": 6006,
    "state": "running",
    "message": "",
    "secret": "s" * 43,
    "url": "http://evil.example/",
}


def test_its_address_is_made_here() -> None:
    app = OpenApp.from_data(GOOD)
    assert app is not None and app.url(7007) == f"http://port-7007.localhost:7007/?nl-token={'s' * 43}"
    assert app.secret not in repr(app)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        *(("name", name) for name in ("", "../x", "A", "x" * 40, 7, None)),
        *(("port", port) for port in (0, 65536, "6006", True, None)),
        *(("secret", secret) for secret in ("", "short", "s" * 20 + "&x=", "s" * 101, None)),
        ("state", "odd"),
    ],
)
def test_what_makes_no_sense_is_left_out(key: str, value: object) -> None:
    assert OpenApp.from_data(GOOD | {key: value}) is None
    assert OpenApp.from_data([GOOD]) is None


def test_control_characters_reach_no_terminal() -> None:
    app = OpenApp.from_data(GOOD | {"title": "\x1b[2J\x1b]0;pwned\x07", "message": "a\x1b[31mb" + "c" * 1000})
    assert app is not None and "\x1b" not in app.title + app.message and len(app.message) == 500
