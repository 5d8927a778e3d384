"""Joules of ``notebooks/timing.py``: by a stand-in for NVIDIA's library, and by files as Linux shows them (RAPL)."""

from __future__ import annotations

import ctypes
import dataclasses
import itertools
import json
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.unit.notebooks.timing_doubles import Simulated, some, timing

pytestmark = pytest.mark.usefixtures("nothing_set")

GPU = timing.Device("gpu", "Card", "", "cuda:0")
JOULES = 25.0  # that each call takes in these tests

# with the signatures of nvml.h; set_card and draw are for the tests
STAND_IN = r"""
#include <string.h>
#include <stdio.h>
typedef struct { char uuid[96], name[96]; int opens, tells; unsigned mig; unsigned long long millijoules; } card;
static card cards[8];
static unsigned count;

void set_card(unsigned i, const char *uuid, const char *name, int opens, int tells, unsigned mig) {
  card *one = &cards[i];
  snprintf(one->uuid, sizeof one->uuid, "%s", uuid);
  snprintf(one->name, sizeof one->name, "%s", name);
  one->opens = opens; one->tells = tells; one->mig = mig; one->millijoules = 5000000000ULL * (i + 1);
  count = i + 1;
}
void draw(unsigned i, unsigned long long millijoules) { cards[i].millijoules += millijoules; }

int nvmlInit_v2(void) { return 0; }
int nvmlDeviceGetCount_v2(unsigned *found) { *found = count; return 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned i, card **found) { *found = &cards[i]; return cards[i].opens; }
static int text(const char *from, char *to, unsigned length) {
  if (strlen(from) >= length) return 7;
  strcpy(to, from);
  return 0;
}
int nvmlDeviceGetUUID(card *one, char *to, unsigned length) { return text(one->uuid, to, length); }
int nvmlDeviceGetName(card *one, char *to, unsigned length) { return text(one->name, to, length); }
int nvmlDeviceGetMigMode(card *one, unsigned *now, unsigned *later) {
  *now = *later = one->mig;
  return one->mig == 2 ? 3 : one->mig > 2 ? (int) one->mig : 0;
}
int nvmlDeviceGetTotalEnergyConsumption(card *one, unsigned long long *found) {
  *found = one->millijoules;
  return one->tells;
}
"""
NOT_SUPPORTED, NO_PERMISSION = 3, 4
NO_MIG = 2  # a card that cannot be divided
MIG_UNKNOWN = 999  # the answer to whether it is, and not a word on it


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    compiler = shutil.which("cc")
    if compiler is None:
        if os.environ.get("CI"):
            pytest.fail("CI has no C compiler for the stand-in for NVIDIA's library")
        pytest.skip("there is no C compiler for the stand-in for NVIDIA's library")
    folder = tmp_path_factory.mktemp("nvml")
    (folder / "nvml.c").write_text(STAND_IN)
    subprocess.run([compiler, "-shared", "-fPIC", "-o", folder / "nvml.so", folder / "nvml.c"], check=True)
    return folder / "nvml.so"


class Cards:
    """The node's GPUs, as the stand-in tells of them."""

    def __init__(self, library: Path) -> None:
        self._library = ctypes.CDLL(str(library))
        self._count = 0

    def add(self, *, name: str = "Card", opens: int = 0, tells: int = 0, mig: int = NO_MIG) -> None:
        uuid = f"GPU-{self._count}aaaaaaa-0000-0000-0000-00000000000{self._count}"
        self._library.set_card(self._count, uuid.encode(), name.encode(), opens, tells, mig)
        self._count += 1

    def draw(self, *joules: float) -> None:
        for number, each in enumerate(joules):
            self._library.draw(number, ctypes.c_ulonglong(round(1000 * each)))


@pytest.fixture
def cards(library: Path, monkeypatch: pytest.MonkeyPatch) -> Cards:
    monkeypatch.setattr(timing, "_NVML", str(library))
    return Cards(library)


class Zones:
    """``/sys/class/powercap`` with some processors."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.zone("intel-rapl", None, 0)  # the driver itself
        self.zone("intel-rapl:9", "psys", 0)
        self.zone("intel-rapl-mmio:0", "package-0", 0)

    def zone(self, zone: str, name: str | None, microjoules: int, most: int = 262_143_328_850) -> None:
        place = self.folder / zone
        place.mkdir(parents=True)
        if name is not None:
            (place / "name").write_text(f"{name}\n")
            (place / "energy_uj").write_text(f"{microjoules}\n")
            (place / "max_energy_range_uj").write_text(f"{most}\n")

    def package(self, number: int, microjoules: int = 1_000_000) -> None:
        self.zone(f"intel-rapl:{number}", f"package-{number}", microjoules)
        self.zone(f"intel-rapl:{number}:0", "core", 0)

    def draw(self, *joules: float) -> None:
        for number, each in enumerate(joules):
            for path in (self.folder / f"intel-rapl:{number}").glob("energy_uj"):
                most = int((path.parent / "max_energy_range_uj").read_text())
                path.write_text(f"{(int(path.read_text()) + round(1e6 * each)) % most}\n")


@pytest.fixture
def zones(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Zones:
    monkeypatch.setattr(timing, "_POWERCAP", tmp_path / "powercap")
    return Zones(tmp_path / "powercap")


def working(
    monkeypatch: pytest.MonkeyPatch, draw: Callable[..., None], *joules: float, seconds: float = 0.1
) -> Simulated:
    """Return work that takes its time, and draws so many joules from each."""

    def take() -> float:
        draw(*(joules or (JOULES,)))
        return seconds

    return Simulated(monkeypatch, take)


def joules_of(clock: Simulated, device: timing.Device = GPU, **more: object) -> float | None:
    m = timing.measure(clock.work, name="fit", device=device, **{"min_repeats": 20, **more})  # type: ignore[arg-type]
    return None if m.energy_j is None else round(m.energy_j, 6)


def test_the_joules_of_a_call_and_of_each_image(monkeypatch: pytest.MonkeyPatch, cards: Cards) -> None:
    cards.add()
    clock = working(monkeypatch, cards.draw)
    m = timing.measure(clock.work, name="fit", device=GPU, work=500, unit="images", min_repeats=20)
    assert (m.energy_j, m.energy_j_per_unit) == (pytest.approx(25.0), pytest.approx(0.05))
    assert str(m).endswith("GPU Card, 25.0 J per call, 50.0 mJ/images (NVML: the GPUs)")
    m.record()
    told = json.loads(timing.results_path().read_text())
    assert (told["energy_j"], told["energy_j_per_unit"]) == (pytest.approx(25.0), pytest.approx(0.05))
    assert told["energy_sources"] == ["NVML"]
    assert timing.compare(m, timing.read_records()[0]).rows[1].measurement.energy_j == m.energy_j


def test_nothing_is_said_where_nobody_tells(monkeypatch: pytest.MonkeyPatch) -> None:
    m = timing.measure(working(monkeypatch, lambda _: None).work, name="fit", device=GPU, min_repeats=20, energy=True)
    assert m.energy_j is None
    assert "J" not in str(m)
    assert not [key for key in m.as_dict() if key.startswith("energy")]
    assert "energy" not in timing.compare(m, some("other", work=None, unit=""))._repr_html_()


def test_less_than_a_second_tells_no_joules_unless_they_are_asked_for(
    monkeypatch: pytest.MonkeyPatch, cards: Cards
) -> None:
    cards.add()
    clock = working(monkeypatch, cards.draw, seconds=0.01)
    assert joules_of(clock) is None
    before = clock.now
    m = timing.measure(clock.work, name="fit", device=GPU, energy=True)
    assert len(m.times) < 10, "what it goes on with is not timed"
    assert 1 <= clock.now - before < 1.2
    assert m.energy_j == pytest.approx(JOULES)


def test_a_single_long_call_has_joules(monkeypatch: pytest.MonkeyPatch, cards: Cards) -> None:
    cards.add()
    assert joules_of(working(monkeypatch, cards.draw, seconds=30), min_repeats=1, max_repeats=1) == JOULES


@pytest.mark.parametrize(
    ("visible", "order", "expected"),
    [
        (None, None, 7.0),
        ("0,1,2", None, 7.0),
        ("1", None, 2.0),
        ("2,0", None, 5.0),
        ("GPU-1aaa", None, 2.0),
        ("GPU-1aaaaaaa-0000-0000-0000-000000000001, GPU-0", None, 3.0),
        ("1,7,0", None, 2.0),  # CUDA stops at what is none
        ("", None, None),
        ("-1", None, None),
        ("NoDevFiles", None, None),
        ("GPU-", None, None),  # which of them?
        ("MIG-1aaaaaaa-0000-0000-0000-000000000001", None, None),
        ("MIG-GPU-1aaaaaaa/1/0", None, None),
    ],
)
def test_only_the_gpus_that_the_process_may_use_count(
    monkeypatch: pytest.MonkeyPatch, cards: Cards, visible: str | None, order: str | None, expected: float | None
) -> None:
    for _ in range(3):
        cards.add()
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert joules_of(working(monkeypatch, cards.draw, 1, 2, 4)) == expected


def test_a_number_is_not_taken_for_another_card(monkeypatch: pytest.MonkeyPatch, cards: Cards) -> None:
    """CUDA counts from the fastest card, NVML along the bus."""
    cards.add(name="Slow")
    cards.add(name="Fast")
    clock = working(monkeypatch, cards.draw, 1, 2)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    assert joules_of(clock) is None
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "GPU-0")
    assert joules_of(clock) == 1.0
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    monkeypatch.setenv("CUDA_DEVICE_ORDER", "PCI_BUS_ID")
    assert joules_of(clock) == 1.0


def test_another_jobs_gpu_is_none_of_ours(monkeypatch: pytest.MonkeyPatch, cards: Cards) -> None:
    cards.add(opens=NO_PERMISSION)
    cards.add()
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    assert joules_of(working(monkeypatch, cards.draw, 1, 2)) == 2.0


@pytest.mark.parametrize("about", [{"mig": 1}, {"mig": MIG_UNKNOWN}, {"tells": NOT_SUPPORTED}, {"opens": 999}])
def test_a_gpu_that_does_not_tell_leaves_all_untold(
    monkeypatch: pytest.MonkeyPatch, cards: Cards, zones: Zones, about: dict[str, int]
) -> None:
    """A part of a GPU (MIG), a card before Volta, one with a fault: the processors' joules alone would mislead."""
    zones.package(0)
    cards.add()
    cards.add(**about)  # type: ignore[arg-type]
    assert joules_of(working(monkeypatch, cards.draw)) is None


def test_a_card_that_can_be_divided_and_is_not(monkeypatch: pytest.MonkeyPatch, cards: Cards) -> None:
    cards.add(mig=0)
    assert joules_of(working(monkeypatch, cards.draw)) == JOULES


@pytest.mark.parametrize("place", ["xpu:0", "mps"])
def test_of_another_makers_gpu_nvidias_library_says_nothing(
    monkeypatch: pytest.MonkeyPatch, cards: Cards, place: str
) -> None:
    cards.add()
    assert joules_of(working(monkeypatch, cards.draw), timing.Device("gpu", "Other", "", place)) is None


def test_a_cpus_joules_are_those_of_all_processors_of_the_node(
    monkeypatch: pytest.MonkeyPatch, cards: Cards, zones: Zones
) -> None:
    cards.add()  # which idles meanwhile
    zones.package(0)
    zones.package(1)
    m = timing.measure(working(monkeypatch, zones.draw, 3, 4).work, name="fit", min_repeats=20, work=7, unit="batches")
    assert (m.energy_j, m.energy_sources) == (pytest.approx(7.0), ("RAPL",))
    assert str(m).endswith("7.00 J per call, 1.00 J/batches (RAPL: the processors of the whole node)")


def test_a_gpus_joules_come_with_the_processors(monkeypatch: pytest.MonkeyPatch, cards: Cards, zones: Zones) -> None:
    cards.add()
    zones.package(0)

    def draw(joules: float) -> None:
        cards.draw(joules)
        zones.draw(joules / 5)

    clock = working(monkeypatch, draw)
    gpu = timing.measure(clock.work, name="gpu", device=GPU, min_repeats=20)
    assert (gpu.energy_j, gpu.energy_sources) == (pytest.approx(30.0), ("NVML", "RAPL"))
    cpu = timing.measure(clock.work, name="cpu", min_repeats=20)
    assert cpu.energy_j == pytest.approx(5.0)
    table = timing.compare(cpu, gpu).table()
    assert "30.0 J per call" in table and "5.00 J per call" in table
    assert "RAPL counts the processors of the whole node, with what others do there." in table
    assert "Not all were measured by the same counters (RAPL, NVML + RAPL)" in table
    assert "Not all" not in timing.compare(cpu, cpu).table()


def test_a_counter_that_begins_anew(monkeypatch: pytest.MonkeyPatch, zones: Zones) -> None:
    zones.package(0, 262_143_328_850 - 60_000_000)
    assert joules_of(working(monkeypatch, zones.draw), timing.cpu_device()) == JOULES


def test_a_counter_that_may_have_begun_anew_twice_tells_nothing(monkeypatch: pytest.MonkeyPatch, zones: Zones) -> None:
    zones.package(0)
    assert joules_of(working(monkeypatch, zones.draw, seconds=600), timing.cpu_device(), budget=20_000) is None


@pytest.mark.parametrize("missing", ["energy_uj", "max_energy_range_uj"])
def test_processors_that_may_not_all_be_read_tell_nothing(
    monkeypatch: pytest.MonkeyPatch, zones: Zones, missing: str
) -> None:
    zones.package(0)
    zones.package(1)
    (zones.folder / "intel-rapl:1" / missing).unlink()
    assert joules_of(working(monkeypatch, zones.draw), timing.cpu_device()) is None


def test_a_counter_that_is_lost_meanwhile_tells_nothing(monkeypatch: pytest.MonkeyPatch, zones: Zones) -> None:
    zones.package(0)
    lost = zones.folder / "intel-rapl:0" / "energy_uj"
    assert joules_of(working(monkeypatch, lambda _: lost.unlink(missing_ok=True)), timing.cpu_device()) is None


def test_one_of_two_counters_that_stands_still_tells_nothing(monkeypatch: pytest.MonkeyPatch, zones: Zones) -> None:
    zones.package(0)
    zones.package(1)
    assert joules_of(working(monkeypatch, zones.draw, 3, 0), timing.cpu_device()) is None


@pytest.mark.parametrize(("seconds", "of_processors"), [(0.1, 0.0), (1000, 1.0)], ids=["stuck", "anew twice"])
def test_processors_that_fail_leave_the_joules_of_the_gpus_alone(
    monkeypatch: pytest.MonkeyPatch, cards: Cards, zones: Zones, seconds: float, of_processors: float
) -> None:
    cards.add()
    zones.package(0)

    def draw(joules: float) -> None:
        cards.draw(joules)
        zones.draw(of_processors)

    clock = working(monkeypatch, draw, seconds=seconds)
    m = timing.measure(clock.work, name="fit", device=GPU, min_repeats=20, max_repeats=20)
    assert (m.energy_j, m.energy_sources) == (pytest.approx(JOULES), ("NVML",))


def test_a_gpu_whose_counter_stands_still_tells_nothing(
    monkeypatch: pytest.MonkeyPatch, cards: Cards, zones: Zones
) -> None:
    cards.add()
    zones.package(0)
    assert joules_of(working(monkeypatch, zones.draw)) is None


def test_a_long_measurement_has_joules_though_the_counter_begins_anew_often(
    monkeypatch: pytest.MonkeyPatch, zones: Zones
) -> None:
    """Some processors' has a range of 65 kJ, which they can use up in some minutes."""
    zones.zone("intel-rapl:0", "package-0", 1_000_000, most=65_532_610_987)
    clock = working(monkeypatch, zones.draw, 1e4, seconds=40)
    assert joules_of(clock, timing.cpu_device(), max_repeats=30) == 1e4


def test_what_makes_sure_of_an_idle_gpu_is_not_billed_to_the_call(
    monkeypatch: pytest.MonkeyPatch, cards: Cards
) -> None:
    """A wait that is long twice, because something else has this core, and another two calls."""
    cards.add()
    clock = working(monkeypatch, cards.draw, seconds=2.0)
    late = iter([0.0] * 4 + [0.5] * 2)  # the first four measure an idle one

    def wait() -> None:
        clock.now += next(late, 0.0)

    monkeypatch.setattr(timing, "_used_gpus", lambda: [wait])
    m = timing.measure(clock.work, name="fit", device=GPU, warmup=0, min_repeats=1, max_repeats=1)
    assert clock.calls == 3
    assert m.energy_j == pytest.approx(JOULES)


def test_the_counters_are_read_when_the_queue_is_known_to_be_empty(
    monkeypatch: pytest.MonkeyPatch, cards: Cards
) -> None:
    """To read them takes a while, in which work that nobody has waited for would come to its end unseen."""
    cards.add()
    clock = working(monkeypatch, cards.draw, seconds=2.0)
    seen: list[str] = []
    monkeypatch.setattr(timing, "_used_gpus", lambda: [lambda: seen.append("wait")])
    read = timing._Meter.read
    monkeypatch.setattr(timing._Meter, "read", lambda meter: (seen.append("read"), read(meter))[1])

    def work() -> None:
        clock.work()
        seen.append("call")

    timing.measure(work, name="fit", device=GPU, warmup=0, min_repeats=3, energy=True)
    for _ in timing.Laps("fit", 3, device=GPU):
        work()
    after = [other for one, other in itertools.pairwise(seen) if one == "call"]
    assert set(after) <= {"wait", "call"}


def test_work_left_by_the_calls_for_energy_is_not_held_against_the_times(
    monkeypatch: pytest.MonkeyPatch, cards: Cards
) -> None:
    cards.add()
    clock = working(monkeypatch, cards.draw, seconds=0.01)

    def wait() -> None:
        clock.now += 0.003 if clock.calls > 50 else 0.0

    monkeypatch.setattr(timing, "_used_gpus", lambda: [wait])
    m = timing.measure(clock.work, name="fit", device=GPU, energy=True, max_repeats=6)
    assert clock.calls > 60
    assert m.energy_j == pytest.approx(JOULES)


@pytest.mark.parametrize("lost", ["counter", "synchronise"])
def test_no_calls_are_made_for_joules_that_cannot_be_told(
    monkeypatch: pytest.MonkeyPatch, cards: Cards, lost: str
) -> None:
    cards.add()
    clock = working(monkeypatch, cards.draw, seconds=0.01)
    if lost == "counter":
        counters = timing._nvml_counters()
        monkeypatch.setattr(timing, "_nvml_counters", lambda: [dataclasses.replace(counters[0], read=lambda: None)])
    m = timing.measure(
        clock.work, name="fit", device=GPU, energy=True, synchronise=lost != "synchronise", max_repeats=6
    )
    assert (m.energy_j, m.energy_sources) == (None, ())
    assert clock.calls < 20


def test_a_counter_that_stands_still_tells_nothing(monkeypatch: pytest.MonkeyPatch, zones: Zones) -> None:
    zones.package(0)
    assert joules_of(working(monkeypatch, lambda _: None), timing.cpu_device()) is None


def test_epochs_have_joules_and_the_first_does_not_count(monkeypatch: pytest.MonkeyPatch, cards: Cards) -> None:
    cards.add()
    taken = iter([1000.0, 10.0, 20.0, 30.0])
    clock = working(monkeypatch, lambda _: cards.draw(next(taken)), seconds=2)
    laps = timing.Laps("fit", 4, device=GPU, work=100, unit="images")
    for epoch in laps:
        clock.work()
        if epoch == 2:
            assert laps.measurement.energy_j == pytest.approx(10.0)
    m = laps.measurement
    assert (m.energy_j, m.energy_j_per_unit) == (pytest.approx(20.0), pytest.approx(0.2))
    assert m.as_dict()["energy_sources"] == ["NVML"]


def test_a_round_that_is_left_does_not_count(monkeypatch: pytest.MonkeyPatch, cards: Cards) -> None:
    cards.add()
    clock = working(monkeypatch, cards.draw, seconds=2)
    laps = timing.Laps("fit", 4, device=GPU)
    for epoch in laps:
        clock.work()
        if epoch == 2:
            cards.draw(1e6)
            break
    assert laps.measurement.energy_j == pytest.approx(JOULES)


@pytest.mark.parametrize(
    "energy",
    [
        *({"energy_j": energy} for energy in (-1.0, float("inf"), "much", "5", [1], 10**400, True)),
        *({"energy_j_per_unit": each} for each in (-1.0, "x", True, [1], float("nan"), 7.0)),
        *({"energy_sources": sources} for sources in ("NVML", {"NVML": 1}, ["\x1b[2J"], [1], ["NVML", None], 5)),
    ],
)
def test_a_record_with_an_impossible_energy_is_left_out(
    energy: dict[str, object], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "r.jsonl"
    told = some(energy_j=64.0, energy_sources=("NVML",)).as_dict()
    path.write_text(json.dumps({**told, **energy}) + "\n")
    some(energy_j=0.0).record(path)
    assert [record["energy_j"] for record in timing.read_records(path)] == [0.0]
    assert "1 line could not be read" in capsys.readouterr().err
    with pytest.raises(timing.TimingError, match="the energy of a call cannot be -1 J"):
        some(energy_j=-1.0)
