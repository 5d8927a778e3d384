"""TAB in a real shell: commands, flags, sessions, profiles and environments, without contacting anything."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pexpect
import pytest
from click.shell_completion import ShellComplete

from notebook_launcher.cli.app import cli
from notebook_launcher.core import local_state

pytestmark = pytest.mark.real_time

BIN = Path(sys.executable).parent
PROFILE = """
presets.big = "--gpus 4"
environment = "tf-gpu"
[environments.tf-gpu]
description = "TensorFlow on the GPU"
[environments.tf-mkl]
"""


@pytest.fixture
def folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A profile ``uni``, a broken one, and two sessions that were seen."""
    monkeypatch.setenv("NOTEBOOK_LAUNCHER_CONFIG", str(tmp_path))
    monkeypatch.setenv("NOTEBOOK_LAUNCHER_STATE", str(tmp_path / "state"))
    (tmp_path / "clusters").mkdir()
    (tmp_path / "clusters" / "uni.toml").write_text(PROFILE)
    (tmp_path / "clusters" / "broken.toml").write_text("[")
    local_state.replace_known_sessions({"20261121-014455-k3f9": "running on gpu1"}, {"20261120-090000-zz22": "ended"})
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    for name in ("compute.ipynb", "comments.txt", ".compare.ipynb"):
        Path(name).touch()
    return tmp_path


@pytest.fixture
def bash(folders: Path) -> Iterator[pexpect.spawn]:
    environment = {**os.environ, "PATH": f"{BIN}:{os.environ['PATH']}", "TERM": "dumb", "INPUTRC": "/dev/null"}
    shell = pexpect.spawn("bash", ["--norc", "--noprofile"], env=environment, encoding="utf-8", timeout=20)
    shell.sendline(
        'PS1=; bind "set bell-style none"; eval "$(launch-notebook completion bash)"; echo is-$((1 + 1))-loaded'
    )
    shell.expect_exact("is-2-loaded")
    yield shell
    shell.close(force=True)


@pytest.mark.parametrize(
    ("typed", "completed"),
    [
        ("conn", ["connect"]),
        ("--parti", ["--partition"]),
        ("-p gpu --reserv", ["--reservation"]),
        ("connect --cluster u", ["uni"]),
        ("stop 20261121", ["20261121-014455-k3f9"]),
        ("stop ", ["k3f9"]),
        ("logs ", ["k3f9", "zz22"]),
        ("logs z", ["zz22"]),
        ("again b", ["big"]),
        ("run comp", ["compare", "compute.ipynb"]),
        ("copy login:res", []),
        ("copy login : res", []),  # as bash takes it apart
        ("--cluster uni -- tf-m", ["tf-mkl"]),
        ("shell --cluster uni -- tf-m", ["tf-mkl"]),
        ("shell 20261121", ["20261121-014455-k3f9"]),
        ("completion z", ["zsh"]),
        ("--cluster broken -- tf", []),
    ],
)
def test_what_completes_a_word(folders: Path, typed: str, completed: list[str]) -> None:
    *words, last = typed.split(" ")
    offered = ShellComplete(cli, {}, "launch-notebook", "_LAUNCH_NOTEBOOK_COMPLETE").get_completions(words, last)
    assert [item.value for item in offered] == completed


def test_the_same_four_letters_twice_are_no_name(folders: Path) -> None:
    twice = ["20261122-014455-k3f9", "20261121-014455-k3f9"]
    local_state.replace_known_sessions(dict.fromkeys(twice, "running"), {})
    offered = ShellComplete(cli, {}, "launch-notebook", "_LAUNCH_NOTEBOOK_COMPLETE").get_completions(["stop"], "")
    assert [item.value for item in offered] == twice


# what is typed, and what TAB adds
COMPLETED = (
    ("launch-notebook conn", "ect "),
    ("launch-notebook stop 20261121", "-014455-k3f9 "),
    ("launch-notebook stop k", "3f9 "),
    ("launch-notebook --cluster uni -- tf-m", "kl "),
    ("launch-notebook --cluster broken -- tf", ""),  # and nothing is said
    ("launch-notebook run game", "-of-life "),
    ("launch-notebook copy comm", "ents.txt "),
    ("launch-notebook copy login:", ""),
    ("launch-notebook copy login:comm", ""),
)


def test_tab_completes_in_bash(bash: pexpect.spawn) -> None:
    for typed, completed in COMPLETED:
        bash.send(f"{typed}\t")
        bash.send("END")
        bash.expect_exact(f"{typed}{completed}END")
        bash.send("\x15")


# "show" prints the line, and begins another one
ZSH = """\
autoload -Uz compinit; compinit -u -D
eval "$(launch-notebook completion zsh)"
show() { print -r -- "<$BUFFER>"; BUFFER= }
zle -N show; bindkey '^X' show; PS1=; echo is-$((1 + 1))-loaded
"""


@pytest.mark.skipif(sys.platform != "linux", reason="only there it is installed for the tests")
def test_tab_completes_in_zsh(folders: Path) -> None:
    environment = {**os.environ, "PATH": f"{BIN}:{os.environ['PATH']}", "TERM": "dumb", "ZDOTDIR": str(folders)}
    (folders / ".zshrc").write_text(ZSH)
    zsh = pexpect.spawn("zsh", ["-d", "-i"], env=environment, encoding="utf-8", timeout=20, dimensions=(24, 200))
    try:
        zsh.expect_exact("is-2-loaded")
        for typed, completed in COMPLETED:
            zsh.send(f"{typed}\t\x18")
            zsh.expect(r"<([^>]*)>")
            assert zsh.match[1] == f"{typed}{completed}"
            echo = zsh.before.rstrip("\a").rpartition("\r")[2].rpartition("\x1b[?2004h")[2]
            assert (echo, zsh.before.count("\n")) == (f"{typed}{completed}", 1), "nothing else is said"
    finally:
        zsh.close(force=True)


@pytest.mark.skipif(sys.platform != "linux", reason="only there it is installed for the tests")
def test_tab_completes_in_fish(folders: Path) -> None:
    lines = ["launch-notebook run comp", "launch-notebook stop ", *(typed for typed, _ in COMPLETED)]
    quoted = " ".join(f"'{line}'" for line in lines)
    script = f"launch-notebook completion fish | source; for line in {quoted}; complete -C $line; echo -; end"
    environment = {**os.environ, "PATH": f"{BIN}:{os.environ['PATH']}", "XDG_CONFIG_HOME": str(folders)}
    done = subprocess.run(
        ["fish", "--no-config", "-c", script], env=environment, capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, done.stderr) == (0, "")
    several, described, *offered = [part.splitlines() for part in done.stdout.split("-\n")[:-1]]
    assert [line.partition("\t")[0] for line in several] == ["compare", "compute.ipynb"]
    assert described == ["k3f9\trunning on gpu1"]
    words = [f"{typed}{completed}".split()[-1] if completed else "" for typed, completed in COMPLETED]
    assert ["".join(line.partition("\t")[0] for line in each) for each in offered] == words


def test_what_a_cluster_or_a_course_says_reaches_the_shell_as_plain_text(folders: Path) -> None:
    """zsh and fish print the help beside each name; a state of a job, for example, is the scheduler's own word."""
    local_state.replace_known_sessions({"20261121-014455-k3f9": "running\x1b]0;title\x07 on\n\x1b[2Jgpu1\u202e"}, {})
    shown = {"_LAUNCH_NOTEBOOK_COMPLETE": "fish_complete", "COMP_WORDS": "launch-notebook stop ", "COMP_CWORD": ""}
    printed, code = pexpect.run(
        f"{BIN}/launch-notebook", env={**os.environ, **shown}, withexitstatus=True, encoding="utf-8"
    )
    assert code == 0
    assert printed.splitlines() == ["plain,k3f9\trunning on gpu1"]
