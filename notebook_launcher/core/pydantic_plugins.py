"""Keeps pydantic from looking for plugins, before the first model is built."""

from __future__ import annotations

import contextlib


def look_for_no_plugins() -> None:
    """Make pydantic assume that no installed package has a plugin for it.

    It looks through all installed packages when it builds its first model. No plugin is wanted here, and in an
    environment of some hundred packages the search takes longer than everything else that pydantic does.
    """
    with contextlib.suppress(ImportError):
        from pydantic.plugin import _loader

        _loader._plugins = {}
