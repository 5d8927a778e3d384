"""JupyterLab in the images that are built of the definition files that come along, but for TensorFlow's."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.cluster_tests.kernel_api import run_cell
from tests.conftest import Session, assert_nothing_left
from tests.practice_cluster import PracticeCluster
from tests.practice_cluster.bundled_images import provide_image

TORCH = (
    "import matplotlib, sklearn.datasets, sys, torch; "
    "print(sys.prefix, torch.__version__.partition('+')[0], torch.ones(2, 2).sum().item(), "
    "len(sklearn.datasets.load_digits().data))"
)


@pytest.mark.parametrize(
    ("name", "code", "printed"),
    [
        ("torch-cpu", TORCH, "/opt/torch 2.13.0 4.0 1797"),
        ("jupyterlab", "import sys; print(sys.prefix, 40 + 2)", "/opt/jupyterlab 42"),
    ],
    ids=["torch-cpu", "jupyterlab"],
)
def test_a_cell_runs_in_an_image_that_is_shipped(
    cluster: PracticeCluster, start: Callable[..., Session], name: str, code: str, printed: str
) -> None:
    session = start("-n", "1", "--", provide_image(cluster, name))
    session.ready()
    assert run_cell(cluster, session, code) == printed + "\n"
    session.send("\n")
    assert session.end() == 0
    assert_nothing_left(cluster)
