"""The view for programs: one JSON object per line."""

from __future__ import annotations

from notebook_launcher.cli.views.base import BaseView
from notebook_launcher.cli.views.errors import json_line
from notebook_launcher.core import events


class JsonView(BaseView):
    """Prints one JSON object per line to stdout, and nothing else there."""

    def _show(self, event: events.Event) -> None:
        print(json_line(event), flush=True)
