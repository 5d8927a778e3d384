"""A job in a container, with a stand-in for Apptainer."""

from __future__ import annotations

import shutil
import signal
from pathlib import Path

import psutil
import pytest

from tests.unit.jobscripts.job import Job, called, image

pytestmark = pytest.mark.real_time


def test_a_container(boxed: Job) -> None:
    data = boxed.root / "data"
    data.mkdir()
    boxed.ask(
        image(boxed),
        f"bind={data}:/data:ro,{boxed.work}",
        f"bind={data}",
        "setenv=NASTY=it's $(false)",
        "gpu=none",
        "activate=export ACTIVATED=$INSIDE",
    )
    boxed.env["TMPDIR"] = "/nowhere/tmp"
    boxed.start()
    environment = psutil.Process(boxed.endpoint()["pid"]).environ()
    assert environment["ACTIVATED"] == "yes", "activation happens inside"
    assert environment["NASTY"] == "it's $(false)"
    assert "TMPDIR" not in environment, "a directory that the container does not see"
    session = str(boxed.dir)
    binds = ["--bind", session, "--bind", f"{data}:/data:ro,{boxed.work}", "--bind", str(data)]
    command = ["/bin/bash", f"{session}/enter.sh", session, "127.0.0.1"]
    assert called(boxed) == ["exec", *binds, "--pwd", str(boxed.work), f"{boxed.root}/an image.sif", *command]
    boxed.send(signal.SIGTERM)
    assert boxed.exit()["cause"] == "stopped"
    assert boxed.processes() == []


@pytest.mark.parametrize(("gpu", "flags"), [("nvidia", ["--nv"]), ("amd", ["--rocm"]), ("none", [])])
def test_gpu_flags(boxed: Job, gpu: str, flags: list[str]) -> None:
    boxed.ask(image(boxed), f"gpu={gpu}", "setenv=STAND_IN=ends")
    assert boxed.run()["cause"] == "finished"
    assert [word for word in called(boxed) if word in ("--nv", "--rocm")] == flags


def test_gpus_are_found(boxed: Job) -> None:
    boxed.ask(image(boxed), "setenv=STAND_IN=ends")
    boxed.run()
    there = any(Path(name).exists() for name in ("/dev/nvidiactl", "/dev/nvidia0"))
    assert ("--nv" in called(boxed)) == there


def test_a_container_command_by_name(boxed: Job) -> None:
    shutil.move(boxed.bin / "apptainer", boxed.bin / "sing")
    boxed.ask(image(boxed), f"container_command={boxed.bin}/sing", "setenv=STAND_IN=ends")
    assert boxed.run()["cause"] == "finished"


def test_singularity_will_do(boxed: Job) -> None:
    shutil.move(boxed.bin / "apptainer", boxed.bin / "singularity")
    boxed.ask(image(boxed), "setenv=STAND_IN=ends")
    assert boxed.run()["cause"] == "finished"


def test_a_missing_image(boxed: Job) -> None:
    boxed.ask(f"container={boxed.root}/none.sif")
    report = boxed.run()
    assert report["cause"] == "image-missing"
    assert f"{boxed.root}/none.sif" in report["message"]


def test_a_missing_bind(boxed: Job) -> None:
    boxed.ask(image(boxed), f"bind={boxed.work}:/work:ro,/proj/nowhere:/data")
    report = boxed.run()
    assert report["cause"] == "bind-missing"
    assert "/proj/nowhere (bind=" in report["message"]


def test_a_missing_container_command(boxed: Job) -> None:
    boxed.ask(image(boxed), "container_command=podman-hpc")
    report = boxed.run()
    assert report["cause"] == "container-command-missing"
    assert "podman-hpc" in report["message"]


def test_a_container_that_cannot_start(boxed: Job) -> None:
    boxed.env["BREAK"] = "yes"
    boxed.ask(image(boxed))
    report = boxed.run()
    assert (report["cause"], report["exit_code"]) == ("container-failed", 255)


def test_an_image_without_jupyterlab(boxed: Job) -> None:
    (boxed.home / "inside" / "jupyter-lab").unlink()
    boxed.tool("../home/inside/python3", "#!/bin/sh\nexit 1\n")
    boxed.ask(image(boxed))
    report = boxed.run()
    assert report["cause"] == "jupyter-missing"
    assert "an image.sif" in report["message"]


def test_jupyterlab_that_fails_inside(boxed: Job) -> None:
    boxed.ask(image(boxed), "setenv=STAND_IN=fails")
    assert boxed.run()["cause"] == "jupyter-failed"
