"""The names of Slurm's output files, with their patterns replaced."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Mapping

_PATTERN = re.compile(r"%(?P<width>\d*)(?P<letter>[A-Za-z%])")
_WIDEST = 10


def filled_in(pattern: str, values: Mapping[str, str]) -> str | None:
    """Return a file name with ``%j``, ``%5j``, ``%x`` and so on replaced; ``None`` if a value is not known.

    ``values``: by letter. Follows *filename pattern* of sbatch's manual: a width pads numbers with zeros, ``%%`` is a
    per cent sign, and a backslash anywhere disables all replacements.
    """
    if "\\" in pattern:
        return pattern.replace("\\", "")
    letters = {found["letter"] for found in _PATTERN.finditer(pattern)} - {"%"}
    if not letters <= values.keys():
        return None

    def value(found: re.Match[str]) -> str:
        if found["letter"] == "%":
            return "%"
        text = values[found["letter"]]
        return text.zfill(min(int(found["width"] or 0), _WIDEST)) if text.isdecimal() else text

    return _PATTERN.sub(value, pattern)


def log_files(flags: Mapping[str, str | None], job_id: str, *, user: str, node: str | None) -> list[str]:
    """Return the paths of a batch job's error and output files that can be resolved, without ``/dev/null``.

    A relative name is relative to ``--chdir`` or, without that flag, to the directory of the submission.
    """
    values = {"j": job_id, "A": job_id, "u": user, "n": "0", "t": "0"}
    if name := flags.get("job-name"):
        values["x"] = name
    if node:
        values["N"] = node.partition(".")[0]
    found = []
    for pattern in (flags.get("error"), flags.get("output")):
        path = filled_in(pattern, values) if pattern else None
        if path is not None and path != "/dev/null":
            found.append(posixpath.join(flags.get("chdir") or "", path))
    return list(dict.fromkeys(found))
