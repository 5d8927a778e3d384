"""Manifests of files copied to a user's folder, so that nothing that the user has made or changed is overwritten.

A manifest has the SHA-256 of each copied file. A file that still has that hash may be replaced by a newer version; any
other file is the user's and stays, and the newer version is put beside it. Notebooks of courses and bundled ones
(``deploy``) and the results of runs (``results``) follow the same rule.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat
from collections.abc import Collection
from pathlib import Path

from notebook_launcher.core.frozen import Frozen
from notebook_launcher.transfer.paths import is_safe
from notebook_launcher.transfer.protocol import CHUNK

#: the state of a name in a folder other than a file's SHA-256: missing, or not a regular file (a link could lead
#: anywhere)
NOTHING, ODD = "", "odd"


def may_write(there: str, new: str, copied: Collection[str | None]) -> bool:
    """Whether a file may be written to a name whose state is ``there``.

    ``new``: the file's SHA-256. ``copied``: those of the files that were copied to that name before.
    """
    return there in (NOTHING, new) or (there != ODD and there in copied)


def name_beside(name: str, mark: str) -> str:
    """Return the name of a newer version beside a file that the user has changed: ``week1/lab.MARK.ipynb``."""
    folder, slash, last = name.rpartition("/")
    stem, dot, ending = last.rpartition(".")
    return f"{folder}{slash}{stem or last}.{mark}" + (f"{dot}{ending}" if stem else "")


def state_of(folder: Path, name: str) -> str:
    """Return the state of a name in a local folder: a file's SHA-256, ``NOTHING`` or ``ODD``."""
    path = folder / name
    for parent in path.relative_to(folder).parents[:-1]:
        above = folder / parent
        if above.is_symlink() or (above.exists() and not above.is_dir()):
            return ODD
    if not os.path.lexists(path):
        return NOTHING
    return digest_of(path) if stat.S_ISREG(path.lstat().st_mode) else ODD


def digest_of(path: Path) -> str:
    """Return the SHA-256 of a file."""
    hasher = hashlib.sha256()
    with path.open("rb") as file:
        while data := file.read(CHUNK):
            hasher.update(data)
    return hasher.hexdigest()


# --- recording -----------------------------------------------------------------------------------------------------


class CopiedFile(Frozen):
    """A copied file: its name here, its SHA-256, and its size and modification time at its origin.

    ``before``: while it is being moved to its name, the earlier state of that name.
    """

    name: str
    sha256: str
    bytes: int
    time: str
    before: str | None = None

    def as_record(self) -> dict[str, object]:
        """Return the file as an entry of the manifest."""
        return {key: value for key, value in vars(self).items() if value is not None}


def copied_files(record: object) -> dict[str, CopiedFile]:
    """Return the recorded files, by origin; invalid entries are left out."""
    files = {}
    for origin, fields in record.items() if isinstance(record, dict) else ():
        with contextlib.suppress(TypeError, UnicodeEncodeError):  # the latter for a name that cannot be a file's
            file = CopiedFile(**fields)
            texts = (file.name, file.sha256, file.time, file.before or "")
            if all(isinstance(text, str) for text in texts) and is_safe(file.name) and os.fsencode(file.name):
                files[origin] = file
    return files


def copied_digests(record: object) -> dict[str, str]:
    """Return the SHA-256 of files by name, from a manifest that records nothing else."""
    return {str(name): str(digest) for name, digest in record.items()} if isinstance(record, dict) else {}
