"""What a request will cost, before it is queued, and what is left of the account."""

from __future__ import annotations

import io
import threading
import time
from types import SimpleNamespace
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from notebook_launcher.cli.views.price import price_text, price_warning
from notebook_launcher.cli.views.text_view import TextView
from notebook_launcher.core.events import CostEstimate
from notebook_launcher.core.interrupts import Interrupts
from notebook_launcher.core.request import Request
from notebook_launcher.planning.plan import Plan
from notebook_launcher.profiles.models import Budget, Price, Rates
from notebook_launcher.session.context import Context
from notebook_launcher.usage.cost_estimate import Costing
from notebook_launcher.usage.pricing import Share, cost_of, estimate, left_of, missing, read_number
from tests.doubles import RecordingHost, RecordingView

FLAT = Price(unit="SBU", gpu_hour=128.0, core_hour=1.0)
BY_TYPE = Price(unit="GPU-h", gpu_hour={"A40": 1.0, "A100": 1.84, "T4": 0.35})
NODES = Price(unit="node-h", node_hour=1.0)
LEAST = Price(unit="SBU", core_hour=1, least_cores=16)
DEAREST = Price(unit="h", gpu_hour=64.0, core_hour=1.0, rule="max")
PARTITIONS = Price(
    unit="SBU", core_hour=1, partitions={"gpu_a100": Rates(gpu_hour=128), "gpu_h100": Rates(gpu_hour=192)}
)


def priced(price: Price, **flags: str | None) -> tuple[float, str] | None:
    found = estimate(price, Request({"time": "2:00:00", **{name.replace("_", "-"): v for name, v in flags.items()}}))
    return (found.cost, found.reckoning) if found else None


@pytest.mark.parametrize(
    ("price", "flags", "cost", "reckoning"),
    [
        (FLAT, {"gpus": "1", "cpus_per_task": "18"}, 292, "2 h × (1 GPU + 18 cores)"),
        (FLAT, {"ntasks": "2", "cpus_per_task": "4", "begin": "now+5hours"}, 16, "2 h × 8 cores"),
        (FLAT, {}, 2, "2 h × 1 core"),
        (FLAT, {"gpus": "2", "cpus_per_gpu": "9"}, 2 * (256 + 18), "2 h × (2 GPUs + 18 cores)"),
        (BY_TYPE, {"gpus": "a100:1"}, 3.68, "2 h × 1 a100"),
        (BY_TYPE, {"gres": "gpu:t4:2"}, 1.4, "2 h × 2 t4"),
        (BY_TYPE, {"gpus_per_node": "A40:1", "nodes": "2"}, 4, "2 h × 2 A40"),
        (BY_TYPE, {"gpus": "1", "constraint": "A100"}, 3.68, "2 h × 1 A100"),
        (NODES, {"nodes": "1", "gpus": "4"}, 2, "2 h × 1 node"),
        (NODES, {"nodes": "2-4", "exclusive": None}, 8, "2 h × 4 nodes"),
        (DEAREST, {"gpus": "1", "cpus_per_task": "32"}, 128, "2 h × 1 GPU"),
        (DEAREST, {"gpus": "1", "cpus_per_task": "72"}, 144, "2 h × 72 cores"),
        (PARTITIONS, {"partition": "gpu_a100", "gpus": "a100:1"}, 256, "2 h × 1 a100"),
        (PARTITIONS, {"partition": "gpu_a100,gpu_h100", "gpus": "1"}, 384, "2 h × 1 GPU"),
        (PARTITIONS, {"partition": "thin", "ntasks": "16"}, 32, "2 h × 16 cores"),
        (LEAST, {"ntasks": "4"}, 32, "2 h × 16 cores, the least there"),
        (LEAST, {"ntasks": "4", "nodes": "2"}, 64, "2 h × 32 cores, the least there"),
        (LEAST, {"ntasks": "17"}, 34, "2 h × 17 cores"),
        (Price(unit="SBU"), {"gpus": "1"}, 0, "2 h × what costs nothing"),
    ],
    ids=lambda value: str(value) if isinstance(value, str) else "",
)
def test_what_a_request_will_cost(price: Price, flags: dict[str, str | None], cost: float, reckoning: str) -> None:
    assert priced(price, **flags) == (pytest.approx(cost), reckoning)


@pytest.mark.parametrize(
    ("price", "flags"),
    [
        (FLAT, {"time": "UNLIMITED"}),
        (FLAT, {"gpus": "1"}),  # the scheduler may give cores with the GPU
        (FLAT, {"exclusive": None}),
        (FLAT, {"ntasks": "4", "overcommit": None}),
        (BY_TYPE, {"gpus": "v100:1"}),
        (BY_TYPE, {"gpus": "1"}),
        (BY_TYPE, {"gpus": "a40:1,a100:1"}),
        (PARTITIONS, {"cpus_per_task": "4"}),
    ],
    ids=[
        "no limit",
        "cores with a GPU",
        "a whole node's cores",
        "shared cores",
        "a type without a price",
        "any type",
        "two types",
        "the partition is the scheduler's choice",
    ],
)
def test_where_a_number_is_missing_there_is_no_price(price: Price, flags: dict[str, str | None]) -> None:
    assert priced(price, **flags) is None


@pytest.mark.parametrize(
    ("price", "flags", "why"),
    [
        (FLAT, {"gpus": "1"}, "how many cores it gets is left to the scheduler (set it with -c)"),
        (FLAT, {"exclusive": None}, "how many cores it gets is left to the scheduler"),
        (FLAT, {"time": "UNLIMITED"}, "it has no time limit"),
        (BY_TYPE, {"gpus": "1"}, "it depends on the type of GPU: A40, A100 or T4 (--gpus A40:1)"),
        (BY_TYPE, {"gpus": "v100:1"}, "the profile has no price for v100"),
        (PARTITIONS, {"cpus_per_task": "4"}, "its partition is left to the scheduler (name it with -p)"),
        (FLAT, {"gpus": "1", "cpus_per_task": "18"}, ""),
    ],
)
def test_it_is_said_why_there_is_no_price(price: Price, flags: dict[str, str | None], why: str) -> None:
    words = {"time": "2:00:00", **{name.replace("_", "-"): value for name, value in flags.items()}}
    assert missing(price, Request(words)) == why


@pytest.mark.parametrize(
    ("price", "gpus", "meant", "reckoning"),
    [
        (PARTITIONS, "2", "a100", "1 h × 2 a100"),
        (PARTITIONS, "h100:1", "a100", "1 h × 1 h100"),
        (BY_TYPE, "1", "A40", "1 h × 1 A40"),
        (BY_TYPE, "1", "other", None),
    ],
)
def test_the_type_that_the_profile_means(price: Price, gpus: str, meant: str, reckoning: str | None) -> None:
    found = estimate(price, Request({"time": "1:00:00", "gpus": gpus, "partition": "gpu_a100"}), meant)
    assert (found.reckoning if found else None) == reckoning


def test_the_bill_counts_as_the_estimate_does() -> None:
    share = Share(gpus=1, cores=72, nodes=1, partitions=("gpu",))
    assert cost_of(DEAREST, share, 1800) == pytest.approx(36)
    assert cost_of(PARTITIONS, Share(1, 18, 1, partitions=("gpu_h100",)), 3600) == pytest.approx(192)


def test_a_bill_does_not_choose_between_partitions_of_different_prices() -> None:
    assert cost_of(PARTITIONS, Share(1, 18, 1, partitions=("gpu_a100", "gpu_h100")), 3600) is None


@pytest.mark.parametrize(
    ("event", "line", "warning"),
    [
        (
            CostEstimate(256, "SBU", "2 h × 1 a100", "proj1", 1840),
            "2 h × 1 a100 = 256 SBU (account proj1: 1 840 left)",
            "",
        ),
        (
            CostEstimate(3.68, "GPU-h", "2 h × 1 A100", None, 3),
            "2 h × 1 A100 = 3.68 GPU-h (your account: 3 left)",
            "more than is left: 3.68 against 3 GPU-h",
        ),
        (
            CostEstimate(12800, "SBU", "2 h × 1 n", "p", 0),
            "= 12 800 SBU (account p: 0 left)",
            "left of p: 12 800 against 0",
        ),
        (CostEstimate(25.6, "h", "x", "p", -20.5), "= 25.6 h (account p: -20.5 left)", "against -20.5 h"),
        (CostEstimate(20, "h", "x", "p", None, "why"), "Estimated cost: at most x = 20 h", ""),
        (CostEstimate(20, "h", "x", "p", 20), "= 20 h (account p: 20 left)", ""),
    ],
    ids=["enough", "no account named", "nothing left", "overdrawn", "not told", "just enough"],
)
def test_the_price_in_words(event: CostEstimate, line: str, warning: str) -> None:
    assert price_text(event).endswith(line)
    assert warning in price_warning(event)
    assert bool(price_warning(event)) is bool(warning)


@pytest.mark.parametrize("verbose", [False, True])
def test_why_nothing_is_told_is_shown_to_who_asks(verbose: bool) -> None:
    out = io.StringIO()
    with TextView(Console(file=out, width=80), verbose=verbose) as view:
        view.show(CostEstimate(1, "SBU", "x", "p", None, "accinfo exited with 3"))
    assert ("Accinfo exited with 3" in out.getvalue()) is verbose


@pytest.mark.parametrize(
    ("script", "balance", "note"),
    [
        ("echo 'proj1 8160 1,840'", 1840, ""),
        ("echo no such account; exit 3", None, "exited with 3 and said: no such account"),
        ("exec /not/there", None, "exited with 127 and said: "),
        ("exec yes no such account", None, "said: no such account"),
    ],
    ids=["told", "failing", "no command", "without end"],
)
def test_what_the_budget_command_says(script: str, balance: float | None, note: str) -> None:
    price = Price(unit="SBU", core_hour=1)
    budget = Budget(command=("sh", "-c", script), pattern=BUDGET.pattern)
    profile = SimpleNamespace(price=price, budget=budget)
    request = Request({"time": "2:00:00", "account": "proj1"})
    plan = cast(Plan, SimpleNamespace(target=SimpleNamespace(profile=profile), request=request, gpu_type=None))
    view, scheduler = RecordingView(), SimpleNamespace(same_machine=False)
    context = SimpleNamespace(host=RecordingHost(), scheduler=scheduler, view=view, interrupts=Interrupts())
    Costing(plan, cast(Context, context)).show_price()
    told = view.one(CostEstimate)
    assert (told.cost, told.balance) == (2, balance)
    assert note in told.note


def test_text_of_others_in_the_price_moves_no_cursor() -> None:
    out = io.StringIO()
    with TextView(Console(file=out, width=80)) as view:
        view.show(CostEstimate(1, "\x1b[2JSBU", "x", "\x1b]0;gone\x07p", 0))
    assert "\x1b" not in out.getvalue()
    assert "1 SBU (account p: 0 left)" in out.getvalue()


# --- what is left --------------------------------------------------------------------------------------------

TABLE = """\
Project     Granted      Used      Left
\x1b[1mproj1\x1b[0m      10,000     8,160     1,840
proj10      10,000    10,000         0
proj.x          20        15      5.25
"""
BUDGET = Budget(command=("accinfo",), pattern=r"^{account}\s.*\s(?P<left>[-\d.,]+)\s*$")


@pytest.mark.parametrize(("account", "left"), [("proj1", 1840), ("proj10", 0), ("proj.x", 5.25), ("projxx", None)])
def test_what_is_left_of_an_account(account: str, left: float | None) -> None:
    assert left_of(BUDGET, account, TABLE) == left


def test_without_an_account_only_a_table_of_one_tells() -> None:
    assert left_of(BUDGET, None, TABLE) is None
    assert left_of(BUDGET, None, "\n".join(TABLE.splitlines()[:2])) == 1840
    assert left_of(Budget(command=("b",), pattern=r"left: (?P<left>\S+)"), None, "left: 12\n") == 12


@pytest.mark.parametrize(
    "pattern",
    [
        r"(?:a|aa)*(?P<left>\d)",
        r"(a{1,50}){20}(?P<left>\d)",
        "a*" * 9 + r"(?P<left>\d)",  # within the limit for one line, and far beyond it for all
    ],
)
def test_an_expression_that_would_search_for_ever_is_given_up(pattern: str) -> None:
    budget, ticks, over = Budget(command=("b",), pattern=pattern), [], threading.Event()

    def tick() -> None:
        while not over.wait(0.02):
            ticks.append(time.monotonic())

    others = threading.Thread(target=tick)
    others.start()
    began = time.monotonic()
    assert left_of(budget, None, ("a" * 5000 + "\n") * 50) is None
    took = time.monotonic() - began
    over.set()
    others.join()
    assert took < 5
    assert took < 0.2 or len(ticks) > 3  # other threads go on meanwhile: the launch


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("1840", 1840),
        ("1,840", 1840),
        ("1 840", 1840),
        ("1'840", 1840),
        ("1\u202f840,5", 1840.5),
        ("1.840,5", 1840.5),
        ("1,840.5", 1840.5),
        ("1'234'567.25", 1234567.25),
        ("1.234.567", 1234567),
        ("1,234,567", 1234567),
        ("1.840", 1.84),
        ("1840,5", 1840.5),
        ("12,84", 12.84),
        ("-20", -20),
        ("−3,5", -3.5),
        ("0", 0),
        ("7.", 7),
    ],
)
def test_numbers_as_people_write_them(text: str, number: float) -> None:
    assert read_number(text) == pytest.approx(number)


@pytest.mark.parametrize("text", ["", "many", "12 34", "1,84,000", "1..2", "NaN", "inf", "1e9", "٣", "0x10", "1'84"])
def test_what_is_no_number_is_none(text: str) -> None:
    assert read_number(text) is None


@given(st.text(max_size=300), st.one_of(st.none(), st.text(max_size=20)))
def test_no_output_breaks_it(output: str, account: str | None) -> None:
    left = left_of(BUDGET, account, output)
    assert left is None or isinstance(left, float)


@given(st.integers(0, 10**9), st.sampled_from([",", " ", "'", "’"]))
def test_thousands_are_read_with_any_mark(number: int, mark: str) -> None:
    assert read_number(f"{number:,}".replace(",", mark)) == number
