"""The base of the models that check what a file says."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict

from notebook_launcher.core.pydantic_plugins import look_for_no_plugins

look_for_no_plugins()


class FileModel(BaseModel):
    """A frozen model that is built when something is first read into it: a command reads few kinds of files."""

    model_config = ConfigDict(frozen=True, defer_build=True)
