"""What each run of a bench used, from the files that were fetched with it."""

from __future__ import annotations

import csv
import io
import json
import os
import re
from pathlib import Path

import pytest

from notebook_launcher.bench import plots, report
from notebook_launcher.bench.report_forms import as_csv, as_html, as_markdown
from notebook_launcher.bench.run_usage import RunUsage
from notebook_launcher.bench.usage import read_usage
from notebook_launcher.profiles.models import ClusterProfile
from tests.unit.bench.page import Page
from tests.unit.bench.recorded import ran, reported

USAGE = """time,seconds,cpu_cores,memory_mib,gpu,gpu_name,gpu_percent,gpu_memory_mib,gpu_memory_total_mib,gpu_watts
2026-11-22T04:00:10Z,10,1.00,1024,0,A100,50,2048,40960,180
2026-11-22T04:00:20Z,20,3.00,3072,0,A100,100,4096,40960,360
damaged
"""


def test_what_a_run_used_is_known_though_its_notebook_records_nothing(tmp_path: Path) -> None:
    (tmp_path / "usage.csv").write_text(USAGE)
    ends = {"started": "2026-11-22T05:00:00+0100", "ended": "2026-11-22T04:01:30Z"}
    (tmp_path / "run.json").write_text(json.dumps(ends))
    used = read_usage(tmp_path)
    assert used == RunUsage(90.0, 2.0, 3072.0, 75.0, 4096.0, 1.5)
    made = reported(ran({"cores": "1"}, use=used), ran({"cores": "4"}, use=RunUsage(30.0)))
    cells = ("cores=1", "done", "–", "90 s", "2.0", "3 GiB", "75 %", "4 GiB", "1.5 Wh", "–")
    assert report.run_lines(made)[0].cells == cells
    page, text = Page(as_html(made)), as_markdown(made, "p")
    for words in (page.text, text):
        assert "timing.measure(" in words  # how to record more
        assert "1.5 Wh" in words
    assert [plot.name for plot in plots.draw_all(made)] == ["0-runs"]
    rows = list(csv.DictReader(io.StringIO(as_csv(made))))
    assert [(row["run_time_s"], row["gpu_energy_wh"]) for row in rows] == [("90.0", "1.5"), ("30.0", "")]


def test_a_run_too_short_for_a_sample_says_so() -> None:
    short = reported(ran({"cores": "1"}, use=RunUsage(3.0)), ran({"cores": "2"}, use=RunUsage(2.0)))
    why = "CPU and memory are not known: no sample was taken, because the run was short "
    why += "(one every 5 s, or as the profile's"
    assert ClusterProfile().usage_seconds == 5
    assert report.runs_table(short).note.startswith(why)
    for text in (Page(as_html(short)).text, as_markdown(short, "p").replace("\\_", "_")):
        assert text.count(why) == 1
    sampled = reported(ran({"cores": "1"}, use=RunUsage(3.0, 1.0, 100.0)), ran({"cores": "2"}, use=RunUsage(60.0)))
    assert [line.note for line in report.run_lines(sampled)] == [
        "", "CPU and memory are not known: no sample was taken."]  # fmt: skip


def test_markdown_says_by_what_it_was_made() -> None:
    text = as_markdown(reported(ran({"cores": "1"})), "p")
    assert re.search(r"\n## Made by\n\n    \S.*\n\nMatrix: `", text)


@pytest.mark.parametrize(
    "record_of_run", ["", "[1", '{"started": 7, "ended": []}', '{"started": "2026-11-22T05:00", "ended": "2026-11-22"}']
)
def test_a_damaged_record_of_a_run_says_nothing(tmp_path: Path, record_of_run: str) -> None:
    (tmp_path / "run.json").write_text(record_of_run)
    assert read_usage(tmp_path) == RunUsage()
    assert read_usage(tmp_path / "nowhere") == RunUsage()


def test_the_use_of_a_long_run_is_known(tmp_path: Path) -> None:
    damaged = ("x" * 1024 * 1024 + "\n") * 17
    (tmp_path / "usage.csv").write_text(damaged + USAGE)
    assert read_usage(tmp_path).memory_peak == 3072


@pytest.mark.parametrize("name", ["run.json", "usage.csv"])
def test_neither_a_pipe_is_waited_for_nor_a_link_followed(tmp_path: Path, name: str) -> None:
    os.mkfifo(tmp_path / name)
    assert read_usage(tmp_path) == RunUsage()
    (tmp_path / name).unlink()
    (tmp_path / "other").write_text(
        USAGE if name == "usage.csv" else '{"started": "2026-11-22", "ended": "2026-11-23"}'
    )
    (tmp_path / name).symlink_to("other")
    assert read_usage(tmp_path) == RunUsage()
