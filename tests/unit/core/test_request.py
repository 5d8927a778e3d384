"""Walltimes, begin times, GRES, and the profile's defaults under the user's flags."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from notebook_launcher.core.errors import UsageError
from notebook_launcher.core.request import (
    Request,
    gpus_in,
    merge_flags,
    parse_begin,
    parse_gres,
)

STOCKHOLM = timezone(timedelta(hours=1))
NOW = datetime(2026, 11, 21, 14, 30, 12, 345678, tzinfo=STOCKHOLM)

Flags = dict[str, str | None]


def at(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=STOCKHOLM)


# --- begin ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "begins", "tomorrow"),
    [
        ("15:00", at("2026-11-21T15:00"), False),
        ("14:31", at("2026-11-21T14:31"), False),
        ("14:30:13", at("2026-11-21T14:30:13"), False),
        ("14:30", at("2026-11-22T14:30"), True),
        ("9:05", at("2026-11-22T09:05"), True),
        ("00:00", at("2026-11-22T00:00"), True),
        ("3:00 pm", at("2026-11-21T15:00"), False),
        ("3:00PM", at("2026-11-21T15:00"), False),
        ("3:00am", at("2026-11-22T03:00"), True),
        ("12:00am", at("2026-11-22T00:00"), True),
        ("12:15pm", at("2026-11-22T12:15"), True),
        ("noon", at("2026-11-22T12:00"), True),
        ("teatime", at("2026-11-21T16:00"), False),
        ("fika", at("2026-11-21T15:00"), False),
        ("Midnight", at("2026-11-22T00:00"), True),
        ("now", NOW, False),
        ("now+90", NOW + timedelta(seconds=90), False),
        ("now+1hour", NOW + timedelta(hours=1), False),
        ("now+2hours", NOW + timedelta(hours=2), False),
        ("now+1day", NOW + timedelta(days=1), False),
        ("now+3weeks", NOW + timedelta(weeks=3), False),
        ("2026-11-22T09:00", at("2026-11-22T09:00"), False),
        ("2026-11-22T09:00:30", at("2026-11-22T09:00:30"), False),
        ("2026-11-25", at("2026-11-25T00:00"), False),
        ("2020-01-01T00:00", at("2020-01-01T00:00"), False),
        ("112226", None, False),
        ("11/22/26-15:00", None, False),
        ("tomorrow", None, False),
        ("now+999999999weeks", None, False),
        ("now+9999999weeks", None, False),
        ("now+99999999999weeks", None, False),
    ],
)
def test_begin_on_the_clusters_clock(text: str, begins: datetime | None, tomorrow: bool) -> None:
    begin = parse_begin(text, NOW)
    assert (begin.text, begin.at, begin.tomorrow) == (text, begins, tomorrow)


def test_begin_is_told_in_the_clusters_time_zone() -> None:
    on_cluster = datetime(2026, 11, 21, 23, 30, tzinfo=timezone(timedelta(hours=9)))
    begin = parse_begin("23:45", on_cluster)
    assert begin.at is not None
    assert begin.at.utcoffset() == timedelta(hours=9)
    assert begin.at - on_cluster == timedelta(minutes=15)
    explicit = parse_begin("2026-11-22T09:00+01:00", on_cluster)
    assert explicit.at == datetime(2026, 11, 22, 8, 0, tzinfo=timezone.utc)


def test_begin_past_midnight_of_the_last_day_of_a_month() -> None:
    begin = parse_begin("1:00", datetime(2026, 12, 31, 23, 0, tzinfo=STOCKHOLM))
    assert begin.at == datetime(2027, 1, 1, 1, 0, tzinfo=STOCKHOLM)


@pytest.mark.parametrize("text", ["25:00", "24:00", "12:60", "12:00:60", "99:99"])
def test_a_time_of_day_that_does_not_exist_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="not a time of day"):
        parse_begin(text, NOW)


@given(st.text(alphabet="0123456789:-+T/ampnowhursdyek", max_size=30) | st.text(max_size=20))
def test_a_begin_time_is_read_or_refused_and_nothing_else(text: str) -> None:
    try:
        begin = parse_begin(text, NOW)
    except UsageError:
        return
    assert begin.at is None or begin.at.tzinfo is not None
    if begin.tomorrow:
        assert begin.at is not None
        assert timedelta(0) < begin.at - NOW <= timedelta(days=1)


# --- GRES and GPUs -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "items"),
    [
        ("gpu", [("gpu", 1)]),
        ("gpu:2", [("gpu", 2)]),
        ("gpu:t4:1", [("gpu:t4", 1)]),
        ("gpu:t4:0", [("gpu:t4", 0)]),
        ("gpu:t4", [("gpu:t4", 1)]),
        ("gpu:t4:2,scratch", [("gpu:t4", 2), ("scratch", 1)]),
        (" gpu:t4:1 , gpu:a100:2,", [("gpu:t4", 1), ("gpu:a100", 2)]),
        ("scratch:100G", [("scratch", 100)]),
        ("", []),
    ],
)
def test_gres_lists(text: str, items: list[tuple[str, int]]) -> None:
    assert parse_gres(text) == items


@pytest.mark.parametrize(
    ("flags", "count"),
    [
        ({}, 0),
        ({"gpus": "1"}, 1),
        ({"gpus": "a100:2"}, 2),
        ({"gpus": "a100"}, 1),
        ({"gpus": "t4:1,a100:2"}, 3),
        ({"gpus-per-node": "4"}, 4),
        ({"gpus-per-task": "t4:2"}, 2),
        ({"gres": "gpu:t4:1"}, 1),
        ({"gres": "gpu"}, 1),
        ({"gres": "scratch:1,gpu:2"}, 2),
        ({"gres": "scratch:4"}, 0),
        ({"gres": "gpudirect:4"}, 0),
        ({"tres-per-task": "cpu=2,gres/gpu:t4=3"}, 3),
        ({"tres-per-task": "cpu=2,gres/gpu=1"}, 1),
        ({"tres-per-task": "cpu=2"}, 0),
        ({"gpus": "1", "gres": "gpu:t4:2"}, 2),
        ({"time": "2:00:00", "exclusive": None}, 0),
    ],
)
def test_how_many_gpus_are_asked_for(flags: Flags, count: int) -> None:
    assert Request(flags).gpus == count


# --- the user's flags over the profile's ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("defaults", "asked", "merged"),
    [
        pytest.param({}, {}, {}, id="nothing"),
        pytest.param({"partition": "core"}, {"partition": "devcore"}, {"partition": "devcore"}, id="same flag"),
        pytest.param({"account": "a"}, {"qos": "short"}, {"account": "a", "qos": "short"}, id="other flag"),
        pytest.param({"exclusive": None}, {}, {"exclusive": None}, id="flag without a value"),
        pytest.param({"gres": "gpu:t4:1"}, {"gpus": "a100:2"}, {"gpus": "a100:2"}, id="GPUs in other words"),
        pytest.param({"gpus": "1"}, {"gres": "gpu:t4:2"}, {"gres": "gpu:t4:2"}, id="and the other way round"),
        pytest.param({"gpus-per-node": "1", "gres": "gpu:1"}, {"gpus-per-task": "2"}, {"gpus-per-task": "2"}, id="all"),
        pytest.param(
            {"gres": "gpu:t4:1,scratch:9"}, {"gpus": "2"}, {"gres": "scratch:9", "gpus": "2"}, id="other GRES stay"
        ),
        pytest.param({"gres": "gpu:t4:1"}, {"gpus": "0"}, {}, id="zero GPUs"),
        pytest.param({"gpus": "1"}, {"gres": "gpu:t4:0"}, {}, id="zero of a kind"),
        pytest.param({}, {"gres": "gpu:t4:0"}, {}, id="zero without a default"),
        pytest.param({}, {"gres": "gpu:t4:0,scratch:5"}, {"gres": "scratch:5"}, id="zero GPUs and other GRES"),
        pytest.param({"gpus": "1"}, {"gres": "scratch:5"}, {"gpus": "1", "gres": "scratch:5"}, id="GRES but no GPU"),
        pytest.param(
            {"tres-per-task": "cpu=2,gres/gpu:t4=1"}, {"gpus": "0"}, {"tres-per-task": "cpu=2"}, id="zero against TRES"
        ),
        pytest.param({"mem": "8G"}, {"mem-per-cpu": "2G"}, {"mem-per-cpu": "2G"}, id="memory in other words"),
        pytest.param({"mem-per-gpu": "8G"}, {"mem": "55G"}, {"mem": "55G"}, id="memory per GPU"),
        pytest.param({"mem": "8G"}, {"ntasks": "4"}, {"mem": "8G", "ntasks": "4"}, id="memory left alone"),
    ],
)
def test_the_users_flags_go_over_the_profiles(defaults: Flags, asked: Flags, merged: Flags) -> None:
    before = dict(defaults)
    assert merge_flags(defaults, asked) == {"time": "0:59:00"} | merged
    assert defaults == before


def test_the_walltime_is_the_users_then_the_profiles_then_59_minutes() -> None:
    assert merge_flags({"time": "1:00:00"}, {"time": "2:00:00"})["time"] == "2:00:00"
    assert merge_flags({"time": "1:00:00"}, {})["time"] == "1:00:00"
    assert merge_flags({}, {})["time"] == "0:59:00"


GPU_WORDS = st.sampled_from(["gpus", "gpus-per-node", "gpus-per-task", "gpus-per-socket"])
COUNTS = st.integers(0, 9)


@given(
    st.sampled_from(["gpus", "gres", "gpus-per-node", "tres-per-task"]),
    st.lists(st.sampled_from(["gpu", ":", "a100", "=", ",", "1", "9" * 5000, "٣", "gres/", "k", "none"])).map("".join),
)
@example("gpus", "a100:" + "9" * 5000)
@example("gres", "gpu:" + "9" * 5000)
def test_any_request_for_gpus_is_a_number_of_them(flag: str, value: str) -> None:
    assert (gpus_in(flag, value) or 0) >= 0


@given(GPU_WORDS, COUNTS, GPU_WORDS, COUNTS)
def test_the_users_gpus_are_the_only_ones(default: str, had: int, flag: str, count: int) -> None:
    merged = merge_flags({default: str(had)}, {flag: f"t4:{count}"})
    assert Request(merged).gpus == count
    assert sum(name.startswith("gpus") for name in merged) == (1 if count else 0)


# --- the request itself --------------------------------------------------------------------------------------


def test_a_request_is_checked_when_it_is_made() -> None:
    with pytest.raises(UsageError):
        Request({"time": "soon"})


def test_a_walltime_in_units_goes_to_the_scheduler_in_its_own_form() -> None:
    request = Request({"time": "90m", "time-min": "1h", "partition": "2h"})
    assert request.flags == {"time": "1:30:00", "time-min": "1:00:00", "partition": "2h"}
    assert request.walltime == timedelta(minutes=90)
    assert Request({"time": "2-0", "time-min": "odd"}).flags == {"time": "2-0", "time-min": "odd"}, "sbatch says it"


def test_a_request_in_neutral_terms() -> None:
    request = Request({"time": "3:00:00", "begin": "15:00", "job-name": "lab", "clusters": "snowy"})
    assert request.walltime == timedelta(hours=3)
    assert (request.begin, request.job_name, request.clusters) == ("15:00", "lab", "snowy")
    empty = Request()
    assert empty.walltime == timedelta(minutes=59)
    assert (empty.begin, empty.job_name, empty.clusters, empty.gpus) == (None, None, None, 0)
    assert Request({"time": "UNLIMITED"}).walltime.is_unlimited
