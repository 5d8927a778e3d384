"""paramiko, imported without a dependency that we do not use and that takes half of its import time.

Its reader of ssh configurations imports ``invoke`` for ``Match exec``, if it is installed. We use ``ssh -G``, and that
reader only on machines without ssh.
"""

from __future__ import annotations

import sys

_absent = sys.modules.setdefault("invoke", None)  # type: ignore[arg-type]  # None: "not installed" to an import
import paramiko as paramiko  # noqa: E402

if _absent is None:
    del sys.modules["invoke"]
