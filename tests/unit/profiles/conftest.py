"""Profiles that a test writes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

Write = Callable[..., Path]


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Write:
    """Write a profile (or another file) into a configuration folder of the test's own."""
    monkeypatch.setenv("NOTEBOOK_LAUNCHER_CONFIG", str(tmp_path))

    def write(text: str | bytes, name: str = "clusters/uni.toml") -> Path:
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return path

    return write
