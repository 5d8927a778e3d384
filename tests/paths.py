"""Paths in the checkout that the tests read."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
JOBSCRIPTS = ROOT / "jobscripts"
NOTEBOOKS = ROOT / "notebooks"
RECORDED = ROOT / "tests" / "recorded"
GOLDEN = ROOT / "tests" / "golden"
