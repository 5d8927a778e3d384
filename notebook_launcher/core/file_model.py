"""The base class of models that validate a file's content."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict

from notebook_launcher.core.pydantic_plugins import look_for_no_plugins

look_for_no_plugins()


class FileModel(BaseModel):
    """A frozen model, built only when it first reads something, because a command reads few kinds of files."""

    model_config = ConfigDict(frozen=True, defer_build=True)
