"""JupyterLab in the images built from the bundled definition files, except TensorFlow's."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from tests.cluster_tests import in_box
from tests.cluster_tests.kernel_api import run_cell
from tests.conftest import Session, assert_nothing_left
from tests.doubles import wait_until
from tests.practice_cluster import PracticeCluster
from tests.practice_cluster.bundled_images import provide_image

LAUNCH = in_box.launch


@pytest.mark.parametrize(("name", "prefix"), [("torch-cpu", "/opt/torch"), ("jupyterlab", "/opt/jupyterlab")])
def test_a_cell_runs_in_an_image_that_is_shipped(
    cluster: PracticeCluster, start: Callable[..., Session], name: str, prefix: str
) -> None:
    """That PyTorch works in its image is tested in test_notebooks.py and test_timing.py."""
    image = provide_image(cluster, name)
    session = start("-n", "1", "--", image)
    session.ready()
    assert run_cell(cluster, session, "import sys; print(sys.prefix, 40 + 2)") == f"{prefix} 42\n"
    if name == "jupyterlab":  # to read the other image would take too long
        note = cluster.directory / f"home/alice/.notebook-launcher/sessions/{session.session_id}/image.json"
        wait_until(lambda: note.exists() and "sha256:" in note.read_text(), 60, "the image's digest is noted")
        found = json.loads(note.read_text())
        assert (found["image"], found["kind"]) == (image, "file")
        summed = cluster.run("login", "alice", ["sha256sum", image], check=True).stdout
        assert found["digest"] == f"sha256:{summed.split()[0]}"
    session.send("\n")
    assert session.end() == 0
    assert_nothing_left(cluster)
