"""Devices and fingerprints in ``notebooks/timing.py``."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import sys
import time
import types
from pathlib import Path

import pytest

from tests.unit.notebooks.timing_doubles import (
    fake_tensorflow,
    fake_torch,
    timing,
)

pytestmark = pytest.mark.usefixtures("nothing_set")


def test_devices_are_those_of_the_library_that_is_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", fake_torch(gpus=2))
    found = timing.devices()
    assert [(d.kind, d.library, d.place) for d in found] == [
        ("cpu", "torch", "cpu"),
        ("gpu", "torch", "cuda:0"),
        ("gpu", "torch", "cuda:1"),
    ]
    assert timing.best_device() == found[1]
    assert found[1].name == "Card 0"
    assert found[1].is_gpu
    assert not found[0].is_gpu


def test_tensorflows_devices_have_tensorflows_names(monkeypatch: pytest.MonkeyPatch) -> None:
    tensorflow = fake_tensorflow(False)
    waited: list[int] = []
    tensorflow.config.list_physical_devices = lambda kind: ["a card"]
    tensorflow.test = types.SimpleNamespace(  # type: ignore[attr-defined]
        experimental=types.SimpleNamespace(sync_devices=lambda: waited.append(1))
    )
    monkeypatch.setitem(sys.modules, "tensorflow", tensorflow)
    cpu, gpu = timing.devices("tensorflow")
    assert (cpu.place, gpu.place, gpu.name) == ("/CPU:0", "/GPU:0", "Card T")
    gpu.synchronise()
    cpu.synchronise()
    assert waited == [1]


def test_without_a_library_there_is_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timing.importlib.util, "find_spec", lambda name: None)
    assert [device.kind for device in timing.devices()] == ["cpu"]
    assert timing.best_device().library == ""
    with pytest.raises(timing.TimingError, match="torch or tensorflow"):
        timing.devices("pytorch")
    monkeypatch.setitem(sys.modules, "torch", None)  # as if it were not installed
    with pytest.raises(timing.TimingError, match="torch cannot be imported here"):
        timing.devices("torch")


def test_a_fingerprint_tells_what_is_known(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "image.json").write_text('{"version":1,"digest":"sha256:abc","image":"/home/me/x.sif"}')
    monkeypatch.setenv("NBL_SESSION_DIR", str(tmp_path))
    monkeypatch.setenv("SLURM_JOB_ID", "42")
    monkeypatch.setenv("SLURM_CLUSTER_NAME", "practice")
    monkeypatch.setenv("SLURM_JOB_PARTITION", "gpu")
    monkeypatch.setitem(sys.modules, "torch", fake_torch(gpus=1))
    told = timing.fingerprint(timing.best_device())
    assert told["gpu"] == "Card 0"
    assert told["container"] == "sha256:abc"
    assert (told["scheduler"], told["cluster"], told["partition"], told["job"]) == ("slurm", "practice", "gpu", "42")
    assert told["libraries"]["torch"] == "2.99"
    assert told["libraries"]["cuda"] == "12.4"
    assert told["cores_allotted"] >= 1
    assert json.loads(json.dumps(told)) == told


def test_a_fingerprint_tells_which_operations_tensorflow_was_to_take(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TF_ENABLE_ONEDNN_OPTS", "0")
    assert timing.fingerprint()["onednn"] is None
    monkeypatch.setitem(sys.modules, "tensorflow", fake_tensorflow(False))
    assert timing.fingerprint()["onednn"] == "0"


def test_a_fingerprint_names_nobody(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "image.json").write_text('{"version":1,"digest":"sha256:abc","image":"/home/secret-user/x.sif"}')
    monkeypatch.setenv("NBL_SESSION_DIR", str(tmp_path))
    monkeypatch.setenv("USER", "secret-user")
    monkeypatch.setenv("PBS_JOBID", "17.secret-server.example.org")
    monkeypatch.setattr(socket, "gethostname", lambda: "secret-node")
    told = json.dumps(timing.fingerprint())
    assert "secret" not in told
    assert os.uname().nodename not in told
    assert '"job": "17"' in told


def test_what_is_not_known_is_none(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    told = timing.fingerprint()
    assert {told[key] for key in ("gpu", "driver", "container", "scheduler", "job")} == {None}
    for text in ("", "{", "[]", '{"digest": null}'):
        (tmp_path / "image.json").write_text(text)
        monkeypatch.setenv("NBL_SESSION_DIR", str(tmp_path))
        assert timing.fingerprint()["container"] is None


def test_a_single_lap_counts_and_has_no_interval() -> None:
    laps = timing.Laps("fit", 1)
    with pytest.raises(timing.TimingError, match="no round has come to its end"):
        _ = laps.measurement
    for _ in laps:
        time.sleep(0.005)
    m = laps.measurement
    assert (m.warmup, len(m.times), m.covered, m.narrow) == (0, 1, 0, False)
    assert m.low == m.high == m.median
    assert "one time only, so no interval" in str(m)


def test_a_lap_that_is_left_does_not_count() -> None:
    laps = timing.Laps("fit", 5)
    for lap in laps:
        if lap == 3:
            break
    assert len(laps.seconds) == 3
    with contextlib.suppress(KeyError):
        for _ in laps:
            raise KeyError
    assert laps.seconds == []
    with pytest.raises(timing.TimingError, match="1 at least"):
        timing.Laps("fit", 0)
