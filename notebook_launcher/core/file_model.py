"""The base of the models that check what a file says."""

from __future__ import annotations

import contextlib

from pydantic import BaseModel, ConfigDict

# Building its first model, pydantic asks every installed package for plugins: none is wanted here, and in an
# environment of some hundred packages this takes longer than everything else that it does.
with contextlib.suppress(ImportError):
    from pydantic.plugin import _loader

    _loader._plugins = {}


class FileModel(BaseModel):
    """A frozen model that is built when something is first read into it: a command reads few kinds of files."""

    model_config = ConfigDict(frozen=True, defer_build=True)
