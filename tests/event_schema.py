"""The JSON Schema of a line of ``--json``, generated from the events; ``python -m tests.event_schema`` updates it."""

from __future__ import annotations

import json
from typing import Any

from pydantic import TypeAdapter

from notebook_launcher.cli.views.errors import EVENTS_VERSION
from notebook_launcher.core import events
from notebook_launcher.core.frozen import Frozen, complete
from tests.paths import DOCS

FILE = DOCS / "events.schema.json"


def schema() -> dict[str, Any]:
    """Return the schema: any of the events, each with the common fields."""
    definitions: dict[str, Any] = {}
    kinds = []
    for part in Frozen.__subclasses__():
        complete(part)  # pydantic treats them as dataclasses
    for kind in vars(events).values():
        if not (isinstance(kind, type) and issubclass(kind, events.Event) and kind is not events.Event):
            continue
        complete(kind)
        one = TypeAdapter(kind).json_schema(mode="serialization", ref_template="#/$defs/{model}")
        definitions |= {name: _plain(of) for name, of in one.pop("$defs", {}).items()}
        kinds.append(_with_head(kind, _plain(one)))
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"A line of launch-notebook --json, version {EVENTS_VERSION}",
        "oneOf": kinds,
        "$defs": definitions,
    }


def _with_head(kind: type[events.Event], one: dict[str, Any]) -> dict[str, Any]:
    head = {
        "event": {"const": kind.name},
        "version": {"const": EVENTS_VERSION},
        "time": {"type": "string"},
        "elapsed": {"type": "number"},
    }
    fields = one.get("properties", {})
    return {"type": "object", "properties": head | fields, "required": [*head, *fields]}


def _plain(one: dict[str, Any]) -> dict[str, Any]:
    """Remove the texts that pydantic takes from docstrings and names: the documentation is docs/json.md."""
    fields = {
        name: {key: value for key, value in of.items() if key not in ("title", "default")}
        for name, of in one.get("properties", {}).items()
    }
    return {"type": "object", "properties": fields, "required": list(fields)}


if __name__ == "__main__":
    FILE.write_text(json.dumps(schema(), indent=1) + "\n", encoding="utf-8")
