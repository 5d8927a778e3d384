"""Reads what a session reports about the programs beside its JupyterLab (``--app``); the data are not trusted.

It needs pydantic, so it is imported only for a session that has such programs.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal, TypeVar

from pydantic import BeforeValidator, Field, ValidationError, ValidationInfo

from notebook_launcher.core.file_model import FileModel
from notebook_launcher.core.text import log_lines, one_line

MOST_APPS = 20
_MOST_RESTARTS = 10**6
_LONGEST_TITLE, _LONGEST_MESSAGE = 60, 500  # characters


def _line(text: object, longest: int) -> str:
    return one_line(text, longest) if isinstance(text, str) else ""


def _title(text: object, known: ValidationInfo) -> str:
    return _line(text, _LONGEST_TITLE) or str(known.data.get("name", ""))


def _message(text: object) -> str:
    return _line(text, _LONGEST_MESSAGE)


def _restarts(count: object) -> int:
    return count if type(count) is int and 0 <= count <= _MOST_RESTARTS else 0


class AppRecord(FileModel, strict=True):
    """A program, in the format of ``runtime/apps.json`` and of JupyterLab's response (``docs/job-script.md``).

    ``message``: why it last ended. ``log``: the last lines that it printed before that. ``restarts``: how often it was
    started again. Values that are only shown are made safe to show; any other invalid value is an error.
    """

    name: Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9-]{0,30}$")]
    title: Annotated[str, BeforeValidator(_title), Field(validate_default=True)] = ""
    state: Literal["starting", "running", "failed"]
    message: Annotated[str, BeforeValidator(_message)] = ""
    log: Annotated[tuple[str, ...], BeforeValidator(log_lines)] = ()
    restarts: Annotated[int, BeforeValidator(_restarts)] = 0


_Record = TypeVar("_Record", bound=AppRecord)


def read_app_records(data: object, kind: type[_Record]) -> tuple[_Record, ...]:
    """Return the programs in ``{"apps": […]}``, at most 20; invalid ones are left out."""
    listed = data.get("apps") if isinstance(data, Mapping) else None
    records = []
    for one in listed[:MOST_APPS] if isinstance(listed, list) else ():
        try:
            records.append(kind.model_validate(one))
        except ValidationError:
            continue
    return tuple(records)
