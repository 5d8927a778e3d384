"""`make help`: what a newcomer needs comes first, and it fits a terminal."""

from __future__ import annotations

import subprocess

from tests.paths import ROOT


def test_it_fits_a_terminal_and_begins_with_what_a_newcomer_needs() -> None:
    shown = subprocess.run(["make", "-s", "help"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    lines = shown.splitlines()
    assert [line.split()[:2] for line in lines[:3]] == [["make", "run"], ["make", "test"], ["make", "cluster"]]
    assert len(lines) < 24 and max(map(len, lines)) <= 80
    assert "bench-classroom" in shown.partition("Benchmarks")[2]
