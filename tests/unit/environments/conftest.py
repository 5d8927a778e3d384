"""A profile with two environments."""

from __future__ import annotations

from pathlib import Path

import pytest

TWO_ENVIRONMENTS = """\
# a comment of mine
host = "login"
image_dir = "/images"
environment = "tf-mkl"

[environments.tf-mkl]
description = "with oneDNN"
container = "tf.sif"
venv = "/opt/envs/tf-mkl"
source = "docker://example/tf:2"
definition = "tensorflow"

[environments.own]
modules = ["Anaconda3"]
conda = "mine"
"""


@pytest.fixture
def profile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("NOTEBOOK_LAUNCHER_CONFIG", str(tmp_path))
    path = tmp_path / "clusters" / "uni.toml"
    path.parent.mkdir()
    path.write_text(TWO_ENVIRONMENTS)
    return path
