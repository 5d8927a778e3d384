"""A notebook run as a script."""

from __future__ import annotations

import re
import signal
from collections.abc import Callable

import pytest

from tests.doubles import wait_until
from tests.unit.jobscripts.execute_run import NAME, STEM, progress
from tests.unit.jobscripts.job import Job

pytestmark = pytest.mark.real_time


def test_a_notebook_as_a_script(run: Callable[..., Job]) -> None:
    job = run(
        "# Train",
        "import os, sys\nEPOCHS = int(os.environ.get('EPOCHS', 5))",
        "for epoch in range(EPOCHS):\n    print('epoch', epoch)\nprint('warned', file=sys.stderr)",
        "import matplotlib.pyplot as plt\nplt.plot([1, 2])\nplt.show()\nplt.savefig('plot.png')",
        "print(plt.get_backend().lower())",
        settings=("to=script", "setenv=EPOCHS=1"),
    )
    report = job.run()
    assert report["cause"] == "finished"
    assert re.fullmatch(r"The notebook finished, as a script, in 0:\d\d\.", report["message"])
    work = job.dir / "work"
    lines = (work / f"{STEM}.out").read_text().splitlines()
    assert [line for line in lines if "Matplotlib" not in line] == ["epoch 0", "warned", "agg"]
    assert (work / f"{STEM}.py").read_text().startswith(f"# Made by nbconvert from {NAME}\n")
    assert (work / "plot.png").stat().st_size > 1000, "there is no screen, and it draws all the same"
    assert (progress(job)["cells"], progress(job)["done"]) == (4, 4)
    assert not (work / NAME).exists() and job.processes() == []


def test_a_script_that_fails(run: Callable[..., Job]) -> None:
    """With %magics it is IPython that runs it; and a module of the same name, which the notebook imports, stays."""
    job = run(
        "%time x = 1", "import sys\nprint(sys.argv[0])", "raise ValueError('nothing\\nmore')", settings=("to=script",)
    )
    work = job.dir / "work"
    work.mkdir()
    (work / f"{STEM}.py").write_text("ANSWER = 42\n")
    report = job.run()
    assert (report["cause"], report["exit_code"]) == ("notebook-failed", 1)
    assert report["message"] == "The notebook failed as a script: ValueError: nothing."
    assert "Wall time" in (work / f"{STEM}.out").read_text()
    assert (work / f"{STEM}.py").read_text() == "ANSWER = 42\n"
    assert progress(job)["error"] == report["message"]


def test_a_script_that_is_stopped(run: Callable[..., Job]) -> None:
    job = run("import time\nprint('so far')\ntime.sleep(300)", settings=("to=script",))
    job.start()
    out = job.dir / "work" / f"{STEM}.out"
    wait_until(lambda: out.exists() and out.read_text() == "so far\n", 120)  # line by line
    job.send(signal.SIGTERM)
    assert job.exit()["cause"] == "stopped"
    assert job.processes() == []
