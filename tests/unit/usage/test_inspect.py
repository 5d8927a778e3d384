"""Looking at a session: what is drawn at which width, the plot, the files; on sessions in a home folder here."""

from __future__ import annotations

import dataclasses
import io
import json
import os
import re
import sys
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from rich.console import Console

from notebook_launcher.cli.views import status_and_usage
from notebook_launcher.cli.views.status_and_usage import BLOCKS, LETTERS, graph
from notebook_launcher.cli.views.text_view import TextView
from notebook_launcher.core import events
from tests.conftest import plain
from tests.unit.usage.home import Home
from tests.unit.usage.usage_facts import FOLDER, NOW, SEEN


def series(label: str, unit: str, most: float | None, *values: float | None) -> events.Series:
    known = [value for value in values if value is not None]
    return events.Series(label, unit, values, most, round(sum(known) / len(known), 2), max(known), values[-1])


WAVE = tuple(float(place % 24 // 8 * 45) for place in range(240))
ONE_GPU = (
    series("GPU 0", "%", 100, *WAVE),
    series("GPU 0 memory", "GiB", 15, *(value / 9 for value in WAVE)),
    series("GPU 0 power", "W", None, *(value + 10 for value in WAVE)),
    series("CPU", "cores", 4, *(value / 45 for value in WAVE)),
    series("memory", "GiB", 16, *([None] * 60), *([2.0] * 180)),
)
FOUR_GPUS = (
    *(dataclasses.replace(one, label=one.label.replace("0", str(gpu))) for gpu in range(4) for one in ONE_GPU[:3]),
    *ONE_GPU[3:],
)
STATUS = events.Status(
    SEEN,
    "--gpus=1 --time=2:00:00",
    f"{FOLDER}/job.log",
    "0.1.0",
    1800,
    NOW.replace(hour=12).isoformat(),
    NOW.isoformat(),
    ONE_GPU,
    notes=("GPU 0 was not used in the last 10 min.",),
)


@pytest.fixture(autouse=True)
def _now(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(status_and_usage, "_now", lambda: NOW)


def shown(
    *told: events.Status, columns: int = 80, rows: int = 24, terminal: bool = True, encoding: str = "utf-8"
) -> str:
    file = io.TextIOWrapper(io.BytesIO(), encoding=encoding, newline="\n")
    console = Console(file=file, width=columns, height=rows, force_terminal=terminal, color_system=None, _environ={})
    with TextView(console) as view:
        for event in told:
            view.show(event)
    file.flush()
    text = plain(file.buffer.getvalue().decode(encoding))  # type: ignore[attr-defined]
    return text[text.rindex("Session ") :].rstrip("\n") if terminal else text  # drawn over what was drawn before


# --- graphs ---


def test_a_graph_of_one_row() -> None:
    assert graph([0, 1, 4, 8, None, 8], 8, 1) == ["▁▁▄█ █"]
    assert graph([0, 1, 4, 8, None, 8], 8, 1, blocks=False) == ["__:# #"]


def test_a_graph_of_three_rows_goes_on_upwards() -> None:
    assert graph([0, 8, 12, 24, None], 24, 3) == [
        "   █ ",
        "  ▄█ ",
        "▁███ ",
    ]


def test_nothing_is_beyond_the_top_and_nothing_is_divided_by_it() -> None:
    assert graph([7, 0, 0.01], 0, 1) == ["▁▁▁"]
    assert graph([200], 100, 2) == ["█", "█"]


# --- in a terminal ---


@pytest.mark.parametrize("state", ["running", "ended"])
def test_a_graph_in_a_pipe_fits_the_small_terminal_that_may_be_behind_it(state: str) -> None:
    text = shown(dataclasses.replace(STATUS, session=dataclasses.replace(SEEN, state=state)), terminal=False)
    graphs = text.split("\n\n")[1]
    assert 70 <= max(map(len, graphs.splitlines())) <= 80, text


@pytest.mark.parametrize("found", [ONE_GPU, FOUR_GPUS], ids=["one GPU", "four GPUs"])
def test_it_fits_a_small_terminal_whole(found: tuple[events.Series, ...]) -> None:
    text = shown(dataclasses.replace(STATUS, series=found))
    lines = text.split("\n")
    assert len(lines) <= 23, text
    assert max(map(len, lines)) <= 80
    assert lines[0].startswith("Session 20261121-120000-k3fa runs on gpu1; 1 h 0 min left (until ")
    assert "  job 7, tf-gpu, JupyterLab, launched from laptop at " in text
    assert "it ends by itself after 30 min without use" in text
    assert f"log       {FOLDER}/job.log" in text
    assert lines[-1] == "  GPU 0 was not used in the last 10 min."
    for one in found:
        assert re.search(rf"^  {one.label} .* {one.unit}$", text, re.M), one.label
    assert set(BLOCKS) & set(text)


def test_what_does_not_fit_a_line_stands_below_what_it_says() -> None:
    flags = "--account=proj1 --constraint=thin --gpus=1 --mem=2G --ntasks=2 --partition=gpu --time=1:00:00 --qos=short"
    lines = shown(dataclasses.replace(STATUS, flags=flags)).split("\n")
    place = next(place for place, line in enumerate(lines) if line.startswith("  asked for --account"))
    assert re.match(r" {12}--\S+", lines[place + 1])
    assert f"{lines[place][12:].strip()} {lines[place + 1].strip()}" == flags


def test_it_uses_a_large_terminal() -> None:
    text = shown(STATUS, columns=200, rows=50)
    assert 190 <= max(map(len, text.split("\n"))) <= 200
    small = shown(STATUS)
    assert text.count("\n") > small.count("\n")  # the graphs are higher


def test_the_figures_stand_beside_the_graphs() -> None:
    line = next(line for line in shown(STATUS).split("\n") if line.startswith("  GPU 0 memory"))
    assert re.search(r"  10\.0  5\.00  10\.0  15\.0 GiB$", line)


def test_what_is_not_used_takes_one_row() -> None:
    idle = [dataclasses.replace(one, values=(0.0,) * 240, peak=0.0, mean=0.0, latest=0.0) for one in ONE_GPU]
    assert all(
        re.match(r" +\S", line) for line in shown(dataclasses.replace(STATUS, series=tuple(idle))).split("\n")[6:]
    )
    assert shown(dataclasses.replace(STATUS, series=tuple(idle))).count("\n") < shown(STATUS).count("\n")


def test_what_has_ended_has_no_now_and_says_how_it_ended() -> None:
    seen = dataclasses.replace(SEEN, state="ended", ends=None, seconds_left=None, detail="reached its walltime")
    text = shown(dataclasses.replace(STATUS, session=seen))
    assert text.startswith("Session 20261121-120000-k3fa has ended: reached its walltime\n")
    assert re.search(r"\n +mean  peak    of\n", text)
    assert "left" not in text


def test_before_there_are_samples() -> None:
    text = shown(dataclasses.replace(STATUS, series=(), notes=(), since=None, until=None))
    assert text.endswith("  No samples of what it uses are there yet.")
    waits = dataclasses.replace(SEEN, state="pending", node=None, ends=None, seconds_left=None, detail="GPUs are busy")
    text = shown(dataclasses.replace(STATUS, session=waits, series=(), notes=(), since=None, until=None))
    assert text.startswith("Session 20261121-120000-k3fa waits: GPUs are busy\n")
    assert "samples" not in text


def test_a_session_that_waits_until_something_happens_waits_once() -> None:
    waits = dataclasses.replace(SEEN, state="pending", node=None, detail="waits until enough of it is free")
    text = shown(dataclasses.replace(STATUS, session=waits, series=()))
    assert text.startswith("Session 20261121-120000-k3fa waits until enough of it is free\n")
    held = dataclasses.replace(waits, detail="is held: nobody but its user releases it")
    text = shown(dataclasses.replace(STATUS, session=held, series=()))
    assert text.startswith("Session 20261121-120000-k3fa is held: nobody but its user releases it\n")


def test_a_terminal_without_blocks_gets_letters() -> None:
    text = shown(STATUS, encoding="ascii")
    assert set(LETTERS) & set(text)
    assert text.isascii()


def test_foreign_text_does_not_steer_the_terminal() -> None:
    seen = dataclasses.replace(SEEN, environment="tf\x1b]0;owned\x07", launched_from="lap\x1b[2Jtop")
    raw = shown(dataclasses.replace(STATUS, session=seen))
    assert "\x1b]0" not in raw
    assert "owned" not in raw


# --- in a pipe ---


def test_a_pipe_gets_whole_lines_of_one_width() -> None:
    text = shown(STATUS, terminal=False, columns=40)
    assert text == shown(STATUS, terminal=False, columns=200)
    assert f"  log       {FOLDER}/job.log\n" in text
    assert re.search(r"^  GPU 0 +[▁▂▃▄▅▆▇█]{35} +90 +45 +90 +100 %$", text, re.M)
    assert re.search(r"^  memory {7} {8,9}▁{26,27} ", text, re.M)


def test_a_pipe_that_watches_gets_a_line_for_each_further_sample() -> None:
    lines = shown(STATUS, STATUS, STATUS, terminal=False).rstrip("\n").split("\n")
    assert (
        lines[-2:]
        == ["13:00:00  running  GPU 0 90 %, GPU 0 memory 10.0 GiB, GPU 0 power 100 W, CPU 2.00 cores, memory 2.00 GiB"]
        * 2
    )
    assert sum(line.startswith("Session ") for line in lines) == 1


def test_programs_beside_jupyterlab_have_a_line_each() -> None:
    apps = (
        events.AppState("board", "Board", "running", 0, "", "http://port-38211.localhost:38211/"),
        events.AppState("code", "VS Code", "running", 2, ""),
        events.AppState("none", "None", "failed", 0, "There is no none in the session's environment."),
        events.AppState(
            "bad", "Bad", "failed", 3, "It ended with exit code 7.", log=("bad begins", "told to\x1b[2J die")
        ),
        events.AppState("slow", "Slow", "starting", 1, "It ended with exit code 3.", "http://port-5.localhost:5/"),
    )
    lines = shown(dataclasses.replace(STATUS, series=(), apps=apps), terminal=False).splitlines()
    assert lines[3:11] == [
        "  Board: running, http://port-38211.localhost:38211/",
        "  VS Code: running, restarted 2 times",
        "  None: not running. There is no none in the session's environment.",
        "  Bad: not running, restarted 3 times. It ended with exit code 7.",
        "    The end of its log:",
        "    | bad begins",
        "    | told to die",
        "  Slow: starting, restarted once, http://port-5.localhost:5/. It ended with exit code 3.",
    ]


# --- sessions in a home folder ---


def test_status_of_one_that_has_ended(home: Home) -> None:
    home.session("20261121-120000-k3fa", rows=600)
    code, out, err = home.type("status", "k3fa")
    assert (code, err) == (0, "")
    assert "Session 20261121-120000-k3fa has ended: shut down\n" in out
    assert "asked for --mem=8G --ntasks=2 --time=2:00:00" in out
    assert re.search(r"^  CPU +▆{41} +1\.50 +1\.50 +2\.00 cores$", out, re.M)
    assert home.type("status", "--watch", "k3fa")[0] == 0  # and comes to an end


def test_status_as_json(home: Home) -> None:
    home.session("20261121-120000-k3fa", rows=100)
    code, out, _ = home.type("status", "--json")
    told = json.loads(out.splitlines()[-1])
    assert code == 0
    assert (told["event"], told["session"]["state"], told["whole_session"]) == ("status", "ended", False)
    assert [one["label"] for one in told["series"]] == ["GPU 0", "GPU 0 memory", "GPU 0 power", "CPU", "memory"]
    assert told["series"][0]["capacity"] == 100


def array(home: Home, **ends: str) -> Path:
    """A job array of tasks 0 to 4, of which some have begun, and ended in these ways."""
    directory = home.session("20261121-120000-k3fa", program="script")
    record = json.loads((directory / "session.json").read_text())
    record["flags"] = {"time": "2:00:00", "array": "0-4", "chdir": f"{directory}/work"}
    (directory / "session.json").write_text(json.dumps(record | {"log": f"{directory}/job-%a.log"}))
    for number, cause in ends.items():
        task = directory / "tasks" / number.strip("_")
        task.mkdir(parents=True)
        (task / "started.json").write_text(json.dumps({"started": NOW.isoformat()}) + "\n")
        if cause:
            (task / "exit.json").write_text(json.dumps({"cause": cause, "ended": NOW.isoformat()}) + "\n")
    return directory


def test_of_a_job_array_the_tasks_are_counted(home: Home) -> None:
    array(home, _0="finished", _1="script-failed", _2="stopped", _3="")
    code, out, err = home.type("status", "k3fa")
    assert (code, err) == (0, "")
    assert "\n  5 tasks: 1 completed, 2 failed, 2 cancelled\n" in out  # the last two: killed, and never begun
    assert "\n  asked for --array=0-4 --time=2:00:00\n" in out  # and not the folder that the launcher chose
    assert "/job-%a.log (%a: the task's number)\n" in out
    told = json.loads(home.type("status", "--json", "k3fa")[1].splitlines()[-1])
    assert told["tasks"] == {"tasks": 5, "waiting": 0, "running": 0, "finished": 1, "failed": 2, "cancelled": 2}
    code, _, err = home.type("usage", "k3fa")
    assert code == 42 and "What all of them used: " in err and " report k3fa" in err


def test_files_of_tasks_that_are_none_are_not_counted(home: Home) -> None:
    directory = array(home, _0="finished")
    (directory / "tasks/0/exit.json").write_bytes(b"\xff{\n")
    (directory / "tasks/odd; name\n1").mkdir()
    (directory / "tasks/odd; name\n1/exit.json").write_text('{"cause":"finished"}\n')
    os.mkfifo(directory / "tasks/0/started.json.new")
    (directory / "tasks/0/started.json").unlink()
    os.mkfifo(directory / "tasks/0/started.json")  # is not waited for
    for name in ("1", "2", "77"):
        (directory / "tasks" / name).mkdir()
    (directory / "tasks/1/exit.json").write_bytes(b'\0{"cause": "finished"}\n')  # a file of zero bytes has no end
    (directory / "finished.json").write_text('{"cause": "finished"}\n')
    (directory / "tasks/2/exit.json").symlink_to(directory / "finished.json")
    (directory / "tasks/77/exit.json").write_text('{"cause": "finished"}\n')  # there is no task 77
    assert "\n  5 tasks: 5 cancelled\n" in home.type("status", "k3fa")[1]


@pytest.mark.parametrize("is_running", [True, False])
def test_while_an_array_runs_its_tasks_wait_and_run(home: Home, is_running: bool) -> None:
    counts = events.TaskCounts(tasks=4, waiting=1, running=2, finished=1, failed=0, cancelled=0)
    seen = dataclasses.replace(STATUS, series=(), tasks=counts if is_running else None, notes=())
    out = shown(seen, terminal=False)
    assert ("  4 tasks: 1 waiting, 2 running, 1 completed\n" in out) == is_running
    assert ("No samples" in out) != is_running
    assert ("running  4 tasks: 1 waiting" in shown(seen, seen, terminal=False)) == is_running


def test_usage_is_of_all_the_time(home: Home) -> None:
    home.session("20261121-120000-k3fa", rows=1440)  # two hours
    told = [json.loads(home.type(command, "--json", "k3fa")[1].splitlines()[-1]) for command in ("status", "usage")]
    spans = [datetime.fromisoformat(one["until"]) - datetime.fromisoformat(one["since"]) for one in told]
    assert spans == [timedelta(hours=1), timedelta(seconds=1439 * 5)]
    assert told[1]["whole_session"] is True


def test_usage_without_samples_is_an_error_of_its_own(home: Home) -> None:
    home.session("20261121-120000-k3fa")
    code, _, err = home.type("usage", "k3fa")
    assert code == 42
    assert "has no samples" in err
    assert "usage_seconds" in err


@pytest.mark.real_time
def test_the_samples_come_whole(home: Home, tmp_path: Path) -> None:
    directory = home.session("20261121-120000-k3fa", rows=5000)
    code, out, _ = home.type("usage", "k3fa", "--csv", "mine.csv")
    assert code == 0
    assert (tmp_path / "mine.csv").read_bytes() == (directory / "usage.csv").read_bytes()
    assert (tmp_path / "mine.csv").stat().st_mode & 0o077 == 0
    assert out == "5000 samples are in mine.csv\n"


@pytest.mark.parametrize("kind", ["png", "pdf"])
@pytest.mark.real_time
def test_a_plot(home: Home, tmp_path: Path, kind: str) -> None:
    home.session("20261121-120000-k3fa", rows=300)
    code, out, err = home.type("usage", "k3fa", "--plot", f"usage.{kind}")
    assert (code, err) == (0, "")
    assert f"The plot is in usage.{kind}\n" in out
    begins = {"png": b"\x89PNG", "pdf": b"%PDF"}[kind]
    assert (tmp_path / f"usage.{kind}").read_bytes().startswith(begins)
    assert [path.name for path in tmp_path.glob(".usage*")] == []


@pytest.mark.real_time
def test_the_plot_names_its_axes_with_units(home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import matplotlib

    monkeypatch.setitem(matplotlib.rcParams, "svg.fonttype", "none")  # letters stay letters
    home.session("20261121-120000-k3fa", rows=300)
    assert home.type("usage", "k3fa", "--plot", "usage.svg")[0] == 0
    text = (tmp_path / "usage.svg").read_text()
    assert text.startswith("<?xml")
    for word in (
        "time since the job's start (minutes)",
        "GPU use",
        "GPU memory",
        "GPU power",
        "CPU",
        "(GiB)",
        "(W)",
        "(cores)",
        "(%)",
        "8 asked for",
        "16 in all",
        "20261121-120000-k3fa on gpu1",
    ):
        assert word in text, word


def test_a_file_that_is_there_stays(home: Home, tmp_path: Path) -> None:
    home.session("20261121-120000-k3fa", rows=3)
    (tmp_path / "mine.csv").write_text("precious")
    code, _, err = home.type("usage", "k3fa", "--csv", "mine.csv")
    assert code == 2
    assert "mine.csv is there already." in err
    assert (tmp_path / "mine.csv").read_text() == "precious"
    assert home.type("usage", "k3fa", "--csv", "mine.csv", "--force")[0] == 0
    assert (tmp_path / "mine.csv").read_text().startswith("time,seconds")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--plot", "usage.gif"], "“usage.gif” is not a name for a plot."),
        (["--plot", "no/such/folder.png"], "There is no folder"),
        (["--csv", "."], "is there already"),
        (["--csv", "usage.png", "--plot", "./usage.png", "--force"], "“usage.png” cannot be both."),
    ],
)
def test_a_file_that_cannot_be_is_told_before_anything_else(home: Home, words: list[str], said: str) -> None:
    code, _, err = home.type("usage", *words)  # no session is there, and none is looked for
    assert code == 2
    assert said in err


def test_without_matplotlib_it_tells_how_to_get_it(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    code, _, err = home.type("usage", "--plot", "usage.png")
    assert code == 2
    assert "Plots need matplotlib, which is not installed here." in err
    assert f"→ {sys.executable} -m pip install 'matplotlib>=3.7', or --csv FILE" in err


# --- which session ---


@pytest.mark.parametrize("command", ["connect", "open", "logs", "status", "usage", "bill", "forward 8000"])
def test_an_empty_name_is_not_the_only_session(home: Home, command: str) -> None:
    home.session("20261121-120000-k3fa")
    code, _, err = home.type(*command.split(), "")
    assert code == 2
    assert "empty" in err and "a variable that is not set" in err


@pytest.mark.parametrize("command", ["status", "usage", "logs"])
def test_there_is_no_such_session(home: Home, command: str) -> None:
    code, _, err = home.type(command, "k3fa")
    assert code == 40
    assert "There is no session “k3fa”" in err
    assert "→ list the ended ones with: launch-notebook list --all" in err
