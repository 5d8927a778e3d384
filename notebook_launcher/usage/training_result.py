"""What a training job reports about itself at its end, for its energy per epoch and per image. Pure.

The job prints one line of JSON, ``{"notebook-launcher": 1, "epochs": 3, "images": 180000}``, or writes ``result.json``
into its folder: with the same content, or, like the bundled trainers, with a list of epochs, and the images of each
epoch in ``settings``. The file may name its job, ``"job": "4711"``; it has to if other jobs write into the same folder.
The content is not trusted: any value that is not a plain number within bounds is left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from notebook_launcher.core.frozen import Frozen
from notebook_launcher.session.record import json_object

MARK = "notebook-launcher"  # the key of the line; its value is the version of the format
VERSION = 1
LONGEST_LINE = 65536  # the most characters of the line
LARGEST_FILE = 1024 * 1024  # bytes, about 6000 epochs of the bundled trainers
_MOST = 10**15


class TrainingResult(Frozen):
    """How many epochs a training had, and how many images it processed in total; ``None``: not reported."""

    epochs: int | None = None
    images: int | None = None


def read_result(lines: Iterable[str], file: str = "", job: str = "", *, is_shared: bool = False) -> TrainingResult:
    """Return the result in the ``file``, or else in the last line that has one; all values ``None`` if there is none.

    ``job``: the job that the file has to name, if it names one. ``is_shared``: the file has to name the job, since
    other jobs may have written it.
    """
    if len(file) <= LARGEST_FILE:
        data = json_object(file.strip())
        named = str(data.get("job") or "")
        is_own = named == job if named else not is_shared
        if is_own and (of_file := result_in(data)):
            return of_file
    found = TrainingResult()
    for line in lines:
        if line.lstrip().startswith("{") and len(line) <= LONGEST_LINE:
            found = result_in(json_object(line.strip())) or found
    return found


def result_in(data: Mapping[str, object]) -> TrainingResult | None:
    """Return the result in this data; ``None`` if it has none, or is of another version."""
    epochs, settings = data.get("epochs"), data.get("settings")
    if data.get("version") == VERSION and isinstance(epochs, list) and isinstance(settings, dict):
        if data.get("restarts"):
            return TrainingResult()  # an earlier run did some of the epochs, and used the energy for them
        count, each = _count(len(epochs)), _count(settings.get("images"))
        return TrainingResult(count, _count(count * each) if count and each else None)
    if data.get(MARK) != VERSION or isinstance(data.get(MARK), bool):
        return None
    return TrainingResult(_count(data.get("epochs")), _count(data.get("images")))


def _count(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 < value <= _MOST else None
