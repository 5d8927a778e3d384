"""What docs/security.md promises that can be read off the code itself."""

from __future__ import annotations

import dataclasses
import re

from notebook_launcher.core import events
from notebook_launcher.core.frozen import complete
from tests.paths import DOCS


def section(page: str, heading: str) -> str:
    text = (DOCS / page).read_text(encoding="utf-8")
    found = re.search(rf"^## {re.escape(heading)}\n(.*?)(?=^## |\Z)", text, re.M | re.S)
    assert found, heading
    return " ".join(found[1].split())


def test_every_event_with_the_token_is_named() -> None:
    """JupyterLab's address, ``url`` of an event, has the token in it; that of a forwarded port has none."""
    kinds = [kind for kind in vars(events).values() if isinstance(kind, type) and issubclass(kind, events.Event)]
    for kind in kinds:
        complete(kind)
    with_address = {kind.name for kind in kinds if any(field.name == "url" for field in dataclasses.fields(kind))}
    told = section("security.md", "The token")
    assert set(re.findall(r"`(\w+)`(?=[^.]* event)", told)) == with_address - {"port_forwarded"}


def test_a_preset_is_among_what_can_run_programs() -> None:
    """Its flags may name an ssh configuration."""
    assert "`presets`" in section("profiles.md", "Whose profiles to trust")
