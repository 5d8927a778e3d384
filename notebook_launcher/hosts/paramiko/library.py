"""Imports paramiko without a dependency that we do not use and that takes half of its import time.

Its reader of ssh configurations imports ``invoke``, if it is installed, for ``Match exec``. We use ``ssh -G``, and that
reader only on machines without ssh.
"""

from __future__ import annotations

import sys

_absent = sys.modules.setdefault("invoke", None)  # type: ignore[arg-type]  # None: an import of it fails
import paramiko as paramiko  # noqa: E402

if _absent is None:
    del sys.modules["invoke"]
