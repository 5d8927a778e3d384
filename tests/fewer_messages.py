"""Reduces the messages from the workers of pytest-xdist: three for each of thousands of tests instead of six.

The start of a test, and setup and teardown without a failure, need not be reported: a test is counted by its call, and
when a worker dies, the tests that it had been given are known.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

LONG = 0.1  # seconds: longer phases are reported, for --durations


def send_fewer(config: pytest.Config) -> None:
    """In a worker, send only necessary messages; does nothing if this version of pytest-xdist differs.

    With -v, the terminal shows each test as it starts: then all messages are sent.
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
