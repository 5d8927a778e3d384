"""Fewer messages from the workers of pytest-xdist: three for each of thousands of tests instead of six.

What begins, and what was set up and taken down without a failure, need not be said: a test is counted by its call, and
who ran what when a worker dies is known from what it was given.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

LONG = 0.1  # seconds: what took longer is told, for --durations


def send_fewer(config: pytest.Config) -> None:
    """In a worker, send only the messages that tell something; nothing changes where pytest-xdist has none of these.

    With -v the terminal shows each test as it begins: then all are sent.
    """
    if config.get_verbosity() > 0:
        return
    for plugin in config.pluginmanager.get_plugins():
        if hasattr(plugin, "sendevent") and hasattr(plugin, "channel"):
            plugin.sendevent = _only_what_tells(plugin.sendevent)


def _only_what_tells(send: Callable[..., None]) -> Callable[..., None]:
    def send_if_it_tells(name: str, **content: Any) -> None:
        if name == "testreport":
            report = content["data"]
            if report["outcome"] == "passed":
                if report["when"] != "call" and report["duration"] < LONG:
                    return
                report["keywords"] = {}
        elif name == "logstart":
            return
        send(name, **content)

    return send_if_it_tells
