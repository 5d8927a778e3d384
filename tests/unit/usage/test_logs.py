"""``logs``: which lines are printed, and where; on sessions in a home folder here."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
from rich.console import Console

from notebook_launcher.cli.views.text_view import TextView
from notebook_launcher.core import events
from notebook_launcher.jobs.session_index import IndexedSession
from notebook_launcher.usage import inspect
from tests.unit.usage.home import Home

NOISE = "[I 2026-11-21 12:00:01.961 ServerApp] Skipped non-installed server(s): bash-language-server, texlab"
FORBIDDEN = (
    "[W 2026-11-21 22:58:19.362 ServerApp] wrote error: 'Forbidden'\n"
    "[W 2026-11-21 22:58:19.364 ServerApp] 403 GET /api/status?as-a-stranger (@127.0.0.1) 3.62ms referer=None\n"
)


def test_a_log_is_the_only_thing_on_standard_output(home: Home) -> None:
    home.session("20261121-120000-k3fa", log=f"one\n{NOISE}\ntwo\x1b[31m\nthree")
    code, out, err = home.type("logs", "k3fa")
    assert (code, out) == (0, "one\ntwo\x1b[31m\nthree\n")  # for a program, as it is
    assert "sbatch" in err or err == ""
    assert home.type("logs", "k3fa", "--all")[1].splitlines()[1] == NOISE


@pytest.mark.parametrize("words", [["-n", "1"], ["-n", "1", "-f"]])
def test_the_last_line_is_one_that_is_shown(home: Home, words: list[str]) -> None:
    home.session("20261121-120000-k3fa", log=f"one\ntwo\n{NOISE}\n{FORBIDDEN}")
    assert home.type("logs", "k3fa", *words)[1] == "two\n"


@pytest.mark.parametrize("words", [["-n", "x"], ["-n", "-1"]])
def test_a_number_of_lines_that_is_none(home: Home, words: list[str]) -> None:
    code, _, err = home.type("logs", *words)
    assert code == 2
    assert f"“{words[1]}” is not a number of lines." in err and "launch-notebook logs --help" in err


@pytest.mark.parametrize(
    ("words", "first", "count"), [([], 301, 200), (["-n", "3"], 498, 3), (["-n", "0"], 1, 500), (["-n", "999"], 1, 500)]
)
def test_as_many_lines_as_asked_for(home: Home, words: list[str], first: int, count: int) -> None:
    home.session("20261121-120000-k3fa", log="".join(f"line {number}\n" for number in range(1, 501)))
    lines = home.type("logs", "k3fa", *words)[1].splitlines()
    assert (lines[0], lines[-1], len(lines)) == (f"line {first}", "line 500", count)


def test_a_log_is_made_fit_for_a_terminal(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    home.session("20261121-120000-k3fa", log="a\x1b]0;owned\x07b\x1b[2Jc\nwin\r\n")
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    assert home.type("logs", "k3fa")[1] == "abc\nwin\n"


def test_of_a_progress_bar_its_end_is_seen(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    with TextView(Console()) as view:
        view.show(events.LogLine("10%\r20%\r100%"))
    assert capsys.readouterr().out == "100%\n"


def test_a_log_elsewhere_with_the_jobs_name_in_it(home: Home, tmp_path: Path) -> None:
    flags = {"output": f"{tmp_path}/out-%j.txt", "error": f"{tmp_path}/err-%j.txt"}
    directory = home.session("20261121-120000-k3fa", scheduler="slurm", flags=flags, log=flags["output"])
    (directory / "session.json").write_text(
        json.dumps(json.loads((directory / "session.json").read_text()) | {"log": flags["output"]})
    )
    (directory / "job").write_text("17")
    (tmp_path / "out-17.txt").write_text("printed\n")
    (tmp_path / "err-17.txt").write_text("failed\n")
    assert home.type("logs", "k3fa")[1] == (
        f"==> {tmp_path}/out-17.txt <==\nprinted\n==> {tmp_path}/err-17.txt <==\nfailed\n"
    )


def test_the_log_of_one_task_of_a_job_array(home: Home, tmp_path: Path) -> None:
    directory = home.session("20261121-120000-k3fa", flags={"time": "1:00:00", "array": "1-2"})
    for task in (1, 2):
        (directory / f"tasks/{task}").mkdir(parents=True)
        (directory / f"tasks/{task}/log").write_text(f"{tmp_path}/{task}.txt\n")
        (tmp_path / f"{task}.txt").write_text(f"of task {task}\n")
    assert home.type("logs", "k3fa_2")[1] == "of task 2\n"
    home.session("20261121-120000-k3fb")
    code, _, err = home.type("logs", "k3fb_2")
    assert code == 2 and "k3fb is no job array" in err


@pytest.mark.parametrize("words", [[], ["-f"]])
def test_nothing_was_printed(home: Home, words: list[str]) -> None:
    directory = home.session("20261121-120000-k3fa")
    code, out, err = home.type("logs", "k3fa", *words)
    assert (code, out) == (0, "")
    assert f"Nothing was printed to {directory}/job.log." in err


def test_a_job_that_has_not_begun_has_no_log_yet() -> None:
    waits = SimpleNamespace(session=SimpleNamespace(job="17"), summary=SimpleNamespace(state="pending"))
    assert inspect._why_no_log(cast(IndexedSession, waits), []) == "Job 17 has not begun, so there is no log yet."


def test_a_log_as_json(home: Home) -> None:
    home.session("20261121-120000-k3fa", log="one\ntwo\n")
    lines = [json.loads(line) for line in home.type("logs", "--json", "k3fa")[1].splitlines()]
    assert [line["text"] for line in lines if line["event"] == "log"] == ["one", "two"]


def test_the_reader_of_a_log_may_leave(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    home.session("20261121-120000-k3fa", log="line\n" * 300)
    printed: list[str] = []

    def write(text: str) -> Callable[[], None]:
        printed.append(text)
        if len(printed) > 10:
            raise BrokenPipeError
        return lambda: None

    monkeypatch.setattr(sys.stdout, "write", write)
    assert home.type("logs", "k3fa")[0] == 0
    assert len(printed) == 11
