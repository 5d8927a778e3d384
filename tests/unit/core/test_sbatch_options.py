"""The table of sbatch's flags, and the way of every one of them from the command line to the request."""

from __future__ import annotations

import json
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

import pytest

from notebook_launcher.cli import app
from notebook_launcher.cli.commands import launch
from notebook_launcher.cli.options import Where
from notebook_launcher.core.sbatch_options import BY_NAME, FLAGS, FULFILLED, REFUSED, Flag, closest, may_be_newer
from notebook_launcher.planning.target import LaunchOptions

# --- the table -----------------------------------------------------------------------------------------------


def test_names_and_letters_are_unique() -> None:
    names = [flag.name for flag in FLAGS]
    letters = [flag.letter for flag in FLAGS if flag.letter]
    assert len(names) == len(set(names)) == len(BY_NAME)
    assert len(letters) == len(set(letters))
    assert all(len(letter) == 1 for letter in letters)
    assert not any(name.startswith("-") or name != name.lower() for name in names)


# from sbatch's manual, by hand: the letter of each flag that has one
LETTERS = {
    "A": "account", "a": "array", "B": "extra-node-info", "b": "begin", "C": "constraint", "c": "cpus-per-task",
    "d": "dependency", "D": "chdir", "e": "error", "F": "nodefile", "G": "gpus", "H": "hold", "i": "input",
    "J": "job-name", "k": "no-kill", "L": "licenses", "M": "clusters", "m": "distribution", "N": "nodes",
    "n": "ntasks", "O": "overcommit", "o": "output", "p": "partition", "Q": "quiet", "q": "qos", "S": "core-spec",
    "s": "oversubscribe", "t": "time", "W": "wait", "w": "nodelist", "x": "exclude",
}  # fmt: skip


def test_letters_are_those_of_sbatchs_manual() -> None:
    assert {flag.letter: flag.name for flag in FLAGS if flag.letter} == LETTERS


def test_what_the_launcher_treats_by_itself_is_in_the_table() -> None:
    assert REFUSED.keys() <= BY_NAME.keys()
    assert FULFILLED.keys() <= BY_NAME.keys()
    assert not REFUSED.keys() & FULFILLED.keys()
    assert not {"help", "usage", "version", "verbose"} & BY_NAME.keys(), "these have a meaning of their own here"


@pytest.mark.parametrize(
    ("word", "suggestion"),
    [
        ("--partitoin", "--partition"),
        ("--part", "--partition"),
        ("--gpu", "--gpus"),
        ("--tmie", "--time"),
        ("--tiem=2:00:00", "--time"),
        ("--reservaton=lab1", "--reservation"),
        ("--memory", "--mem"),
        ("qos", "--qos"),
        ("--name", "--job-name"),
        ("--nmae", "--job-name"),
        ("--typ", "--mail-type"),
        ("--node", "--nodes"),
        ("--xyzzyplugh", None),
        ("-Z", None),
        ("", None),
    ],
)
def test_the_closest_flag(word: str, suggestion: str | None) -> None:
    assert closest(word) == suggestion


def test_the_closest_flag_may_be_one_of_ours() -> None:
    assert closest("--dryrun", ("--dry-run", "--open")) == "--dry-run"


OWN = ("--dry-run", "--open", "--cluster", "--save", "--engine", "--no-node", "--bundled-image")


# of Pyxis and of other plugins; like the last part of a flag, or longer than a flag; and what people make up
@pytest.mark.parametrize("name", ["container-image", "container-mounts", "container-workdir", "container-kind",
                                  "uenv", "environment", "tmpfs", "tmpdir", "nvme", "lustre", "jobid", "image", "view",
                                  "name", "nmae", "walltime", "expedite",
                                  "ssd", "gpu-mps", "x11", "no-such-thing", "timing", "ear"])  # fmt: skip
def test_a_flag_unlike_all_others_may_be_one_of_a_newer_sbatch(name: str) -> None:
    assert may_be_newer(name, OWN)


SLIPS = ["partitoin", "part", "gpu", "tmie", "tiem", "reservaton", "memory", "timelimit", "dryrun", "sav",
         "time-mni", "cpus-per-gpuu", "ntasks-pr-node", "clustr", "times", "gpus-per-nod", "gres-flag"]  # fmt: skip
# what sbatch's parser would take for one of these, and what is none
ABBREVIATED = ["wra", "wr", "w", "arr", "test-on", "get-user", "expor", "pars", "autocomplete", "autoc", "help",
               "usage", "usag", "version", "vers", "wrap", "array", "time", "Wrap", "wrap_", "", "-wrap", "a b",
               "x" * 61, "é"]  # fmt: skip


@pytest.mark.parametrize("name", [*SLIPS, *ABBREVIATED])
def test_a_slip_or_an_abbreviation_is_none(name: str) -> None:
    assert not may_be_newer(name, OWN)


def test_no_flag_and_no_beginning_of_one_is_ever_taken_for_another() -> None:
    names = {*BY_NAME, *(name[:count] for name in BY_NAME for count in range(1, len(name)))}
    assert [name for name in names if may_be_newer(name)] == []


# --- from the command line to LaunchOptions -------------------------------------------------------------------------


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[LaunchOptions]:
    """What a launch was asked for, instead of the launch."""
    caught: list[LaunchOptions] = []

    def catch(launch_options: LaunchOptions, _where: Where, _typed: object, **_others: bool) -> int:
        caught.append(launch_options)
        return 0

    monkeypatch.setattr(launch, "_launch", catch)
    return caught


def spellings(flag: Flag) -> Iterator[tuple[list[str], str | None]]:
    """Yield each way to write a flag, and the value that must arrive."""
    long, short = f"--{flag.name}", f"-{flag.letter}"
    if flag.argument in ("none", "optional"):
        yield [long], None
        if flag.letter:
            yield [short], None
    if flag.argument in ("required", "optional"):
        yield [f"{long}=a b=c"], "a b=c"
        if flag.letter:
            yield [f"{short}7x"], "7x"
    if flag.argument == "required":
        yield [long, "7"], "7"
        yield [long, "-1"], "-1"
        if flag.letter:
            yield [short, "7"], "7"


def test_every_flag_arrives_in_every_spelling(asked: list[LaunchOptions]) -> None:
    """All flags at once, as often as one has spellings: the next one would miss what a flag took that is not its."""
    ways = {flag.name: list(spellings(flag)) for flag in FLAGS}
    for number in range(max(map(len, ways.values()))):
        chosen = {name: some[number % len(some)] for name, some in ways.items()}
        argv = [word for words, _ in chosen.values() for word in words]
        assert app.run(argv) == 0, argv
        assert asked.pop().flags == {name: value for name, (_, value) in chosen.items()}


def test_a_flag_without_its_value_is_refused(asked: list[LaunchOptions], capsys: pytest.CaptureFixture[str]) -> None:
    for name in (flag.name for flag in FLAGS if flag.argument == "required"):
        assert app.run([f"--{name}"]) == 2, name
        assert f"--{name}" in capsys.readouterr().err
        assert asked == []


def test_an_empty_value_stays_a_value(asked: list[LaunchOptions]) -> None:
    assert app.run(["--comment=", "--mail-user", ""]) == 0
    assert asked[0].flags == {"comment": "", "mail-user": ""}


@pytest.mark.parametrize("before", [["--json"], ["--cluster", "uni"], ["--host=login", "--json", "--engine", "auto"]])
def test_the_options_of_a_place_may_come_before_the_command(
    asked: list[LaunchOptions], capsys: pytest.CaptureFixture[str], before: list[str]
) -> None:
    assert app.run([*before, "copy", "--help"]) == 0
    assert "Usage: launch-notebook copy" in capsys.readouterr().out
    assert app.run([*before, "--", "copy"]) == 0
    assert asked[0].arguments == ("copy",)
    assert app.run(["--cluster", "list"]) == 0
    assert asked[1].cluster == "list"


def test_each_command_is_told_in_a_line_of_eighty_columns(capsys: pytest.CaptureFixture[str]) -> None:
    found = {name: app.find_command(name) for name in app.COMMANDS}
    commands = {name: command for name, command in found.items() if command and not command.hidden}
    assert len(commands) == len(found) - 1, "all but launch"
    texts = {name: text for name, text in app.COMMANDS.items() if text}
    assert texts.keys() == commands.keys()
    assert {name: text for name, text in texts.items() if len(text) > 55} == {}
    with pytest.MonkeyPatch.context() as terminal:
        terminal.setenv("COLUMNS", "80")
        assert app.run(["--help"]) == 0
    summary = capsys.readouterr().out.partition("Commands:")[2].partition("Options of a launch")[0]
    assert len(summary.strip().splitlines()) == len(commands)


def test_the_command_line_of_the_course(asked: list[LaunchOptions]) -> None:
    assert app.run(["-n", "4", "-p", "devcore", "--gres=gpu:t4:0", "--", "tf-mkl"]) == 0
    assert asked[0].flags == {"ntasks": "4", "partition": "devcore", "gres": "gpu:t4:0"}
    assert asked[0].arguments == ("tf-mkl",)


def test_the_last_of_two_values_counts(asked: list[LaunchOptions]) -> None:
    assert app.run(["-t", "1:00:00", "--time=2:00:00"]) == 0
    assert asked[0].flags == {"time": "2:00:00"}


@pytest.mark.parametrize("words", [["-x", "--dry-run"], ["--exclude", "--gpus", "1"], ["--comment", "--verbose"],
                                   ["-A", "--container-image=x"], ["-A", "--gpus=1"], ["--comment", "--fresh-nodes"],
                                   ["-p", "--no-open"]])  # fmt: skip
def test_a_flag_is_not_the_value_of_another(
    asked: list[LaunchOptions], capsys: pytest.CaptureFixture[str], words: list[str]
) -> None:
    """``-x --dry-run`` would exclude a node of that name, and start a job."""
    assert app.run(["--cluster", "uni", *words]) == 2
    assert f"needs a value; “{words[1]}” is a flag." in capsys.readouterr().err and asked == []


@pytest.mark.parametrize(
    ("words", "flags"),
    [
        (["--container-image=oci"], {"container-image": "oci"}),
        (["--container-image="], {"container-image": ""}),
        (["--container-image=a=b c"], {"container-image": "a=b c"}),
        (["--fresh-nodes", "-t", "5"], {"fresh-nodes": None, "time": "5"}),
        (["-t", "5", "--fresh-nodes"], {"fresh-nodes": None, "time": "5"}),
        (["--fresh-nodes", "--", "tf-mkl"], {"fresh-nodes": None}),
        (
            ["--fresh-nodes", "--container-image=a", "--container-image=a"],
            {"fresh-nodes": None, "container-image": "a"},
        ),
        (["--comment=--fresh-nodes", "--fresh-nodes"], {"comment": "--fresh-nodes", "fresh-nodes": None}),
        (["--module", "--fresh-nodes", "--nice=-5"], {"nice": "-5"}),
    ],
)
def test_a_flag_that_only_the_cluster_may_know_arrives(
    asked: list[LaunchOptions], words: list[str], flags: dict[str, str | None]
) -> None:
    assert app.run(["--host", "login", *words]) == 0
    assert asked[0].flags == flags and asked[0].host == "login"


def test_our_own_flags_are_not_the_schedulers(asked: list[LaunchOptions]) -> None:
    words = ["--cluster", "uni", "--ssh-config", "f", "--module", "a/1", "--module", "b/2", "--conda", "dl"]
    assert app.run([*words, "--venv", "v", "--clusters=snowy", "--", "tf-gpu", "-x.sif"]) == 0
    launch_options = asked[0]
    assert (launch_options.cluster, launch_options.ssh_config, launch_options.conda, launch_options.venv) == (
        "uni",
        "f",
        "dl",
        "v",
    )
    assert launch_options.modules == ("a/1", "b/2")
    assert launch_options.arguments == ("tf-gpu", "-x.sif")
    assert launch_options.flags == {"clusters": "snowy"}


# --- mistakes ------------------------------------------------------------------------------------------------


@pytest.fixture
def nothing_contacted(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Fail a test that starts a process or opens a connection."""

    def refuse(*arguments: Any, **_others: Any) -> NoReturn:
        raise AssertionError(f"something was contacted: {arguments}")

    monkeypatch.setenv("NOTEBOOK_LAUNCHER_CONFIG", str(tmp_path))
    monkeypatch.setattr(subprocess, "Popen", refuse)
    monkeypatch.setattr(socket, "create_connection", refuse)
    monkeypatch.setattr(socket.socket, "connect", refuse)


@pytest.mark.usefixtures("nothing_contacted")
@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--host", "login", "--partitoin=core"], "did you mean --partition?"),
        (["--cluster", "uni", "--gpu=1"], "did you mean --gpus?"),
        (["--host", "login", "--dryrun"], "did you mean --dry-run?"),
        (["--host", "login", "-Z"], "There is no flag -Z"),
        (["--follow"], "it is a flag of: launch-notebook connect or logs"),
        (["--zzz"], "list the flags with: launch-notebook --help"),
        (["--host", "login", "-t"], "-t"),
        (["--host", "login", "-t", "soon"], "“soon” is not a walltime"),
        (["--host", "login", "--array=1-3"], "--array cannot be used here: a notebook is one job"),
        (["--host", "login", "--wrap", "date"], "--wrap cannot be used here"),
        (["--host", "login", "--test-only"], "--dry-run"),
        (["--host", "login", "--wra", "date"], "did you mean --wrap?"),
        (["--host", "login", "--wra=date"], "did you mean --wrap?"),
        (["--host", "login", "--test-on"], "did you mean --test-only?"),
        (["--host", "login", "--autocomplete=bash"], "There is no flag --autocomplete"),
        (["--host", "login", "--container-image", "a b", "-t", "5"], "write --container-image='a b'"),
        (["--host", "login", "--container-mounts=/a", "--container-mounts=/b"], "write one: --container-mounts=VALUE"),
        (["--host", "login", "--shared-gpu", "--shared-gpu=half"], "--shared-gpu is there twice"),
        (
            ["--host", "login", "--walltime", "2:00:00"],
            "did you mean --time? If --walltime is a flag of your site, write --walltime=2:00:00",
        ),
        (["--host", "login", "--user", "alice"], "your user name comes before the address: --host NAME@LOGIN"),
        (["connect", "--user", "alice"], "launch-notebook clusters edit CLUSTER --user NAME"),
        (["--host", "login", "--no-node"], "it is a flag of: launch-notebook doctor"),
        (["--host", "login", "--no-probe"], "it is a flag of: launch-notebook init"),
        (["--host", "login", "--here=x"], "A launch has no flag --here"),
        (["--host", "login", "--login=x"], "A launch has no flag --login"),
        (["--host", "login", "--merged"], "it is a flag of: launch-notebook clusters"),
        (["--host", "login", "--set=a=b"], "A launch has no flag --set"),
        (["run", "--fresh-nodes", "train.ipynb"], "if --fresh-nodes takes no value, put it after train.ipynb"),
        (["--host", "login", "--container-image=a\nb"], "more than one line"),
        (["--cluster", "here", "--container-image=oci"], "There is no flag --container-image"),
        (["list", "--container-image=oci"], "“list” has no flag --container-image"),
        (["--host", "login", "--matrix=x"], "it is a flag of: launch-notebook bench"),
        (["--host", "login", "--comment", "a\nb"], "more than one line"),
        (["--host", "login", "--cluster", "uni"], "exclude each other"),
        (["--host", "login", "--", "a", "b", "c"], "no more"),
        (["--host", "login", "--", "a\nsetenv=X=1.sif"], "more than one line"),
        (["--host", "login", "--conda", "a\nsetenv=X=1"], "more than one line"),
        (["--host", "login", "--module", "a\rb"], "more than one line"),
        (["tf-mkl"], "launch-notebook -- tf-mkl"),
        (["conect"], "launch-notebook connect"),
        (["-n", "4", "tf-mkl"], "launch-notebook … -- tf-mkl"),
        (["-n", "4", "list"], "The command comes first: list"),
    ],
)
def test_a_mistake_is_told_before_anything_is_contacted(
    capsys: pytest.CaptureFixture[str], words: list[str], said: str
) -> None:
    assert app.run(words) == 2
    output = capsys.readouterr()
    assert said in output.err
    assert output.out == ""
    assert "Traceback" not in output.err


@pytest.mark.usefixtures("nothing_contacted")
@pytest.mark.parametrize(
    "words",
    [["course", "list"], ["clusters"], ["clusters", "show", "pelle"], ["env", "list", "--cluster", "pelle"],
     ["env", "show", "jupyterlab", "--cluster", "pelle"], ["image", "build", "no.def", "no.sif"]],
    ids=" ".join,
)  # fmt: skip
def test_json_may_stand_before_any_command(capsys: pytest.CaptureFixture[str], words: list[str]) -> None:
    first = app.run(["--json", *words])
    told = capsys.readouterr().out
    last = app.run([*words, "--json"])
    events = [[json.loads(line) for line in text.splitlines()] for text in (told, capsys.readouterr().out)]
    plain = [[{key: one[key] for key in one if key not in ("time", "elapsed")} for one in said] for said in events]
    assert (first, plain[0]) == (last, plain[1])
    assert events[0]
    assert "no flag" not in told
