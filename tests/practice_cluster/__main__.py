"""Entry point of both `python3 tests/practice_cluster` and `python3 -m tests.practice_cluster`."""

import importlib
import sys
from pathlib import Path

if not __package__:
    # Started by its directory, which Python has put on the path; but the package is one level up.
    sys.path[0] = str(Path(__file__).resolve().parents[1])
    sys.exit(importlib.import_module("practice_cluster.cli").main())

from .cli import main

sys.exit(main())
