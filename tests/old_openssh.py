"""An OpenSSH client older than 8.5, from Debian 11, whose ``ssh`` does not say which server asks a question.

It is unpacked beside the parts of the practice cluster; nothing is installed.
"""

from __future__ import annotations

import inspect
import os
import shutil
from pathlib import Path

import pytest

from tests.practice_cluster import ClusterError, cache, debian

SUITE = "bullseye"
PACKAGES = ("openssh-client", "libssl1.1")  # of its dependencies, newer systems lack only libssl1.1
KIND = "old-openssh"
# only this ssh uses these libraries; the other programs of the test use the system's
_WRAPPER = """\
#!/bin/sh
here=$(dirname "$0")/..
for libraries in "$here"/usr/lib/*-linux-gnu*; do :; done
LD_LIBRARY_PATH=$libraries exec "$here/usr/bin/ssh" "$@"
"""


def _make(directory: Path) -> None:
    packages = directory / "packages"
    packages.mkdir()
    debian.unpack(debian.download(SUITE, PACKAGES, packages, KIND), directory, KIND)
    for unused in (packages, directory / "usr/share", directory / "etc"):
        shutil.rmtree(unused)
    (directory / "bin").mkdir()
    (directory / "bin/ssh").write_text(_WRAPPER)
    (directory / "bin/ssh").chmod(0o755)


def folder() -> Path:
    """Return a folder for ``PATH`` with only that ``ssh``; if it is not available, skip the test, or fail in CI."""
    recipe = "\0".join([SUITE, *PACKAGES, _WRAPPER, inspect.getsource(_make)])
    artefact = cache.Artefact(KIND, recipe, _make)
    try:
        if not artefact.path.exists():
            cache.provide([artefact], [])
    except (ClusterError, OSError) as error:
        reason = f"the ssh of Debian 11 cannot be had here: {error}"
        pytest.fail(reason) if os.environ.get("CI") else pytest.skip(reason)
    return artefact.path / "bin"
