"""Where the programs beside JupyterLab listen: what a node says of that is hostile until checked."""

from __future__ import annotations

from typing import Any

import pytest

from notebook_launcher.session.app_record import read_app_records
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


def read(*apps: object) -> tuple[OpenApp, ...]:
    return read_app_records({"apps": list(apps)}, OpenApp)


def test_its_address_is_made_here() -> None:
    (app,) = read(GOOD)
    assert app.url(7007) == f"http://port-7007.localhost:7007/?nl-token={'s' * 43}"
    assert app.secret not in repr(app)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        *(("port", port) for port in (0, 65536, "6006", True, None)),
        *(("secret", secret) for secret in ("", "short", "s" * 20 + "&x=", "s" * 101, None)),
    ],
)
def test_what_makes_no_sense_is_left_out(key: str, value: object) -> None:
    assert read(GOOD | {key: value}, [GOOD], GOOD) == read(GOOD)
