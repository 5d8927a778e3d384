"""shell.sh, the shell in a session's job, and the job that is queued for a shell alone.

The container command is a stand-in that notes how it was called.
"""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
import time
from pathlib import Path

import pexpect
import psutil  # type: ignore[import-untyped]
import pytest

from notebook_launcher.core.package_data import LIBRARY, job_script
from tests.doubles import wait_until
from tests.unit.jobscripts.job import BASH, Job, image, library, permissions

pytestmark = [pytest.mark.timeout(60), pytest.mark.real_time]


# --- shell.sh ----------------------------------------------------------------------------------------------------


def prepared(job: Job, *lines: str) -> Job:
    """A session's directory as it is while its job runs."""
    job.ask(*lines)
    for name in ("shell.sh", *LIBRARY, "image.sh"):
        (job.dir / name).write_bytes(job_script(name).read_bytes())
    (job.dir / "runtime").mkdir()
    (job.dir / "runtime" / "folder").write_text(f"{job.work}\n")
    record = '{"id":"x","flags":{"environment":"prgenv"},"environment":"tf-gpu","route":null}'  # a flag of that name
    (job.dir / "session.json").write_text(f"{record}\n")
    return job


def output_of(job: Job, command: str, where: str = "inside") -> subprocess.CompletedProcess[str]:
    words = [BASH, str(job.dir / "shell.sh"), str(job.dir), where, command]
    return subprocess.run(words, env=job.env, cwd=job.root, capture_output=True, text=True, check=False, timeout=20)


def opened(job: Job, where: str = "inside") -> pexpect.spawn:
    child = pexpect.spawn(
        BASH,
        [str(job.dir / "shell.sh"), str(job.dir), where],
        env={**job.env, "TERM": "dumb"},
        cwd=str(job.root),
        encoding="utf-8",
        timeout=30,
        dimensions=(24, 200),
    )
    child.delaybeforesend = 0
    return child


def marks(job: Job) -> list[str]:
    return sorted(path.name for path in (job.dir / "runtime").iterdir() if path.name not in ("folder", "first-shell"))


NODE = os.uname().nodename.partition(".")[0]


def test_what_a_shell_leaves_in_the_background_ends_with_it(boxed: Job) -> None:
    """What it left would hold the container, the step and the job; and a program may not want to end."""
    prepared(boxed, image(boxed), "gpu=none")
    stays = "nohup setsid bash -c 'trap \"\" TERM; echo $$ >left; exec sleep 300' >/dev/null 2>&1 & "
    done = output_of(boxed, f"{stays} sleep 301 & until [ -s left ]; do sleep 0.05; done; kill -9 $$")
    assert done.returncode == 137
    left = int((boxed.work / "left").read_text())
    wait_until(lambda: not psutil.pid_exists(left) or psutil.Process(left).status() == "zombie", what="its end")
    assert re.fullmatch(r"notebook-launcher: ended what still ran in the background \([2-9]\)\n", done.stderr)


def test_a_program_that_is_just_being_started_is_not_overlooked() -> None:
    """Until the kernel has set it up it has no environment: here, when it is first looked at."""
    code = """
    A=b sleep 60 & child=$!
    until is_tagged $child A=b; do pause 0.01; done
    eval "real_$(declare -f is_tagged)"
    asked=''
    is_tagged() {
      if [[ $1 == "$child" && -z $asked ]]; then asked=yes seen=''; return 1; fi
      real_is_tagged "$@"
    }
    list_tagged A=b; kill $child
    [[ ${tagged[*]} == "$child" ]] && echo found
    """
    assert library(code) == "found\n"


@pytest.mark.parametrize(
    ("stat", "may"),
    [
        ("7 (a) b) S 1 7 7 0 -1 4194304 100", "yes"),
        ("7 (a) Z 1 7 7 0 -1 4194304 100", "no"),
        ("2 (kthreadd) S 0 0 0 0 -1 2129984 0", "no"),  # PF_KTHREAD
        ("", "no"),
    ],
    ids=["usual", "dead", "thread of the kernel", "gone"],
)
def test_what_may_still_get_an_environment(tmp_path: Path, stat: str, may: str) -> None:
    (tmp_path / "stat").write_text(stat)
    elsewhere = 'eval "$(declare -f may_get_environment | sed "s,/proc/\\$1,$1,")"'
    code = f'{elsewhere}; may_get_environment "$1" && echo yes || echo no'
    assert library(code, str(tmp_path)) == f"{may}\n"


def test_a_shell_inside(boxed: Job) -> None:
    """~/.bashrc counts, but the environment's programs come first; what is set up leaves no traces."""
    prepared(boxed, image(boxed), "gpu=none", "activate=export ACTIVATED=$INSIDE", "setenv=NASTY=it's")
    (boxed.home / ".bashrc").write_text(
        "export PATH=$HOME/mine:$PATH EDITOR=ed\nlog() { echo my own log; }\nalias rm='rm -i' printf=false\nset -o vi\n"
        "PROMPT_COMMAND=\n"
    )
    boxed.env |= {"JUPYTER_TOKEN": "secret", "XDG_RUNTIME_DIR": "/run/user/0", "TMOUT": "700"}
    boxed.env["PROMPT_COMMAND"] = 'PS1="Apptainer> "; unset PROMPT_COMMAND'
    child = opened(boxed)
    child.expect(rf"\(tf-gpu on {NODE}\) \S+:.*[$#] ")
    assert [name.partition("-")[0] for name in marks(boxed)] == ["inside", "shell"]
    assert {permissions(boxed.dir / "runtime" / name) for name in marks(boxed)} == {0o600}
    child.sendline('echo "<$ACTIVATED|$NASTY|$EDITOR|$TMOUT|$PWD|$JUPYTER_TOKEN$XDG_RUNTIME_DIR>"')
    child.expect_exact(f"<yes|it's|ed|700|{boxed.work}|>")
    child.sendline("log; type -t alias_of read_settings; alias rm; echo ${PATH%%:*} $(compgen -v want_)")
    child.expect_exact("my own log\r\nalias rm='rm -i'\r\n")
    child.expect_exact(f"{boxed.home}/inside\r\n")
    child.sendline(
        "env | grep NBL_ | grep -vc ^NBL_SHELL_RUN=; (exit 7)"
    )  # but the mark by which its programs are found
    child.expect_exact("\r\n0\r\n")
    child.sendline("exit")
    child.expect(pexpect.EOF)
    child.close()
    assert child.exitstatus == 7
    assert marks(boxed) == []
    session = str(boxed.dir)
    words = (boxed.home / "called").read_text().splitlines()
    assert words[:6] == ["exec", "--bind", session, "--pwd", str(boxed.work), f"{boxed.root}/an image.sif"]


def test_a_shell_outside(boxed: Job) -> None:
    prepared(boxed, image(boxed), "activate=export ACTIVATED=yes", "module=not-there")
    child = opened(boxed, "outside")
    child.expect(rf"\(outside the container, {NODE}\) \S+:.*[$#] ")
    child.sendline('echo "<$INSIDE$ACTIVATED>"; kill -HUP $PPID; exit')
    child.expect_exact("\n<>")
    child.expect(pexpect.EOF)
    assert not (boxed.home / "called").exists()


def test_one_command(boxed: Job) -> None:
    prepared(boxed, image(boxed), "activate=export ACTIVATED=$INSIDE")
    done = output_of(boxed, "echo \"$ACTIVATED 'it' $(pwd)\"; echo wrong >&2; exit 3")
    assert (done.stdout, done.stderr, done.returncode) == (f"yes 'it' {boxed.work}\n", "wrong\n", 3)
    assert output_of(boxed, 'echo "<$ACTIVATED>"', "outside").stdout == "<>\n"
    assert marks(boxed) == []


def test_no_shell_in_another_image_than_the_environment_demands(boxed: Job) -> None:
    (boxed.root / "an image.sif").write_bytes(b"another one")
    prepared(boxed, image(boxed), f"digest=sha256:{hashlib.sha256(b'the one').hexdigest()}")
    done = output_of(boxed, "echo never")
    assert done.stdout == "" and done.returncode != 0
    assert "is not the one that the environment demands" in " ".join(done.stderr.split())
    assert not (boxed.home / "called").exists(), "the container command was not called"
    assert marks(boxed) == []
    (boxed.dir / "session.env").write_text(
        f"{image(boxed)}\ndigest=sha256:{hashlib.sha256(b'another one').hexdigest()}\n"
    )
    assert output_of(boxed, "echo there").stdout == "there\n"


def test_what_goes_wrong_is_told_as_the_job_tells_it(boxed: Job) -> None:
    """Behind the container's door, and before it."""
    prepared(boxed, image(boxed), "activate=no-such-command")
    done = output_of(boxed, "echo never")
    assert done.stdout == "" and done.returncode != 0
    assert "notebook-launcher: " in done.stderr and "failed with exit code 127" in done.stderr
    assert "the job's log" not in done.stderr, "there is none here"
    boxed.ask(f"container={boxed.root}/none.sif")
    child = opened(boxed)
    child.expect_exact("There is no container image")
    child.expect(pexpect.EOF)
    child.close()
    assert child.exitstatus != 0
    assert marks(boxed) == []
    assert not (boxed.dir / "runtime" / "cause").exists(), "the job itself has not failed"


def test_an_image_without_a_shell(boxed: Job) -> None:
    prepared(boxed, image(boxed))
    boxed.env["BREAK"] = "yes"
    done = output_of(boxed, "true")
    assert done.returncode == 255
    assert "could not run bash in" in done.stderr


# --- the job of a shell ------------------------------------------------------------------------------------------


def test_a_job_for_shells_ends_soon_after_the_last_one(job: Job) -> None:
    job.in_a_scheduler()
    job.ask("program=shell")
    job.start()
    job.started()
    (job.dir / "shell.sh").write_bytes(job_script("shell.sh").read_bytes())
    first, second = opened(job), opened(job)
    for child in (first, second):
        child.expect(r"[$#] ")
    first.sendline("exit")
    first.expect(pexpect.EOF)
    time.sleep(6)
    assert job.process is not None and job.process.poll() is None, "there is another shell"
    os.kill(second.pid, 9)  # without a word
    second.close(force=True)
    began = time.monotonic()
    assert job.exit()["message"] == "The last shell was closed."
    print(f"the job had ended {time.monotonic() - began:.1f} s after its last shell")
    assert time.monotonic() - began < 60
    assert job.processes() == []


def test_a_shell_that_was_open_for_a_moment_counts(job: Job) -> None:
    job.in_a_scheduler()
    job.ask("program=shell")
    job.start()
    job.started()
    (job.dir / "shell.sh").write_bytes(job_script("shell.sh").read_bytes())
    began = time.monotonic()
    assert output_of(job, "true").returncode == 0
    assert job.exit()["message"] == "The last shell was closed."
    assert time.monotonic() - began < 60


def test_a_job_for_shells_does_not_wait_for_ever(job: Job) -> None:
    job.in_a_scheduler()
    job.ask("program=shell")
    job.env["NBL_FIRST_SHELL_SECONDS"] = "2"
    report = job.run()
    assert (report["cause"], report["message"]) == ("finished", "Nobody opened a shell within 2 seconds.")


def test_a_job_for_shells_answers_signals_and_ends_its_survey_of_the_node(job: Job) -> None:
    job.in_a_scheduler()
    job.ask("program=shell", "survey=yes")
    (job.dir / "survey.sh").write_text("timeout 302 sleep 301\n")  # in a process group of its own
    job.start()
    job.started()
    job.process_with("sleep 301")
    job.send(15)
    assert job.exit()["cause"] == "stopped"
    wait_until(lambda: job.processes() == [], 30, "nothing is left")
