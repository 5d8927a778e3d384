"""``notebooks/timing.py`` for its tests, and libraries, a clock and a device that are not here."""

from __future__ import annotations

import queue
import sys
import threading
import time
import types
from collections.abc import Callable

import pytest

from tests.paths import ROOT

NOTEBOOKS = ROOT / "notebooks"
sys.path.insert(0, str(NOTEBOOKS))
import timing  # noqa: E402


def fake_torch(*, gpus: int = 0, pending: Callable[[], None] = lambda: None) -> types.ModuleType:
    """As much of PyTorch as timing asks: devices, threads, and a wait."""
    torch = types.ModuleType("torch")
    threads = [1]
    cuda = types.SimpleNamespace(
        is_available=lambda: gpus > 0,
        is_initialized=lambda: gpus > 0,
        device_count=lambda: gpus,
        get_device_name=lambda i: f"Card {i}",
        memory_reserved=lambda i: 0,
        current_device=lambda: 0,
        synchronize=lambda i=None: pending(),
    )
    torch.__dict__.update(
        cuda=cuda,
        set_num_threads=lambda count: threads.__setitem__(0, count),
        get_num_threads=lambda: threads[0],
        __version__="2.99",
        version=types.SimpleNamespace(cuda="12.4", hip=None),
    )
    return torch


def fake_tensorflow(started: bool) -> types.ModuleType:
    tensorflow = types.ModuleType("tensorflow")
    numbers = {"intra": 0, "inter": 0}

    def setter(which: str) -> Callable[[int], None]:
        def set_threads(count: int) -> None:
            if started:
                raise RuntimeError("cannot be modified after initialization")
            numbers[which] = count

        return set_threads

    threads = types.SimpleNamespace(
        get_intra_op_parallelism_threads=lambda: numbers["intra"],
        get_inter_op_parallelism_threads=lambda: numbers["inter"],
        set_intra_op_parallelism_threads=setter("intra"),
        set_inter_op_parallelism_threads=setter("inter"),
    )
    details = types.SimpleNamespace(get_device_details=lambda gpu: {"device_name": "Card T"})
    config = types.SimpleNamespace(threading=threads, list_physical_devices=lambda kind: [], experimental=details)
    tensorflow.__dict__.update(config=config, __version__="2.98")
    return tensorflow


class Simulated:
    """A clock, and a function that takes the time it is told: the same on a machine that is busy."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, take: Callable[[], float], step: float = 50e-9) -> None:
        self.now = 0.0
        self.calls = 0
        self._take, self._step = take, step
        monkeypatch.setattr(timing, "_clock", self.read)

    def read(self) -> float:
        self.now += self._step
        return self.now

    def work(self) -> None:
        self.calls += 1
        self.now += self._take()


class LaterDevice(timing.Device):
    """A GPU that is none: a queue, worked off by a thread, as a GPU works off what is launched."""

    def start(self) -> None:
        work: queue.Queue[float | None] = queue.Queue()
        object.__setattr__(self, "work", work)
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        while (seconds := self.work.get()) is not None:  # type: ignore[attr-defined]
            time.sleep(seconds)
            self.work.task_done()  # type: ignore[attr-defined]

    def launch(self, seconds: float) -> None:
        """Return at once; the work takes ``seconds``, later."""
        self.work.put(seconds)  # type: ignore[attr-defined]

    def synchronise(self) -> None:
        self.work.join()  # type: ignore[attr-defined]


def some(
    name: str = "fit", times: tuple[float, ...] = (0.010, 0.011, 0.012) * 4, **about: object
) -> timing.Measurement:
    device = timing.Device("cpu", "Some CPU", "torch")
    filled: dict[str, object] = {"device": device, "work": 64, "unit": "images", "fingerprint": {"cpu": "Some CPU"}}
    return timing.Measurement(name, times, **{**filled, **about})  # type: ignore[arg-type]
