"""Keeps pydantic from looking for plugins, before the first model is built."""

from __future__ import annotations

import contextlib


def look_for_no_plugins() -> None:
    """Let pydantic take it that no installed package has a plugin.

    It asks every package for some when it builds its first model. None is wanted here, and in an environment of some
    hundred packages this takes longer than everything else that it does.
    """
    with contextlib.suppress(ImportError):
        from pydantic.plugin import _loader

        _loader._plugins = {}
