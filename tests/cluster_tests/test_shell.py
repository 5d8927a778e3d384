"""``shell``: a terminal or a command in a running session and in a job of its own."""

from __future__ import annotations

import fcntl
import signal
import struct
import subprocess
import termios
import time
from collections.abc import Callable

import pytest

from tests.cluster_tests import in_box
from tests.conftest import Session, assert_nothing_left
from tests.doubles import wait_until
from tests.practice_cluster import PracticeCluster

LAUNCH = in_box.launch

Start = Callable[..., Session]
each_slurm = pytest.mark.each_slurm
INSIDE = r"\(tf-gpu on \w+\) alice:~\$ "
OUTSIDE = r"\(outside the container, \w+\) alice:~\$ "


@each_slurm
def test_a_terminal_in_a_running_session(cluster: PracticeCluster, start: Start) -> None:
    """Inside the container are the image's Python and the job's GPU, outside is sbatch; the size is the terminal's."""
    held = start("-t", "10", "--gpus", "1", "-n", "2")
    held.ready()
    inside = start("shell", held.session_id, columns=111)
    inside.expect(INSIDE)
    inside.send("stty size; which python3; command -v sbatch; echo GPU=$CUDA_VISIBLE_DEVICES $JUPYTER_TOKEN; tty\r")
    inside.expect(r"24 111\n/opt/jupyterlab/bin/python3\nGPU=0\n/dev/pts".replace("\\n", "\\r\\n"))
    fcntl.ioctl(inside.child.child_fd, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 90, 0, 0))
    inside.send("until stty size | grep '40 90'; do sleep 0.2; done\r")
    inside.expect("40 90\r\n")
    outside = start("shell", "--outside", "--engine", "openssh", held.session_id[-4:])
    outside.expect(OUTSIDE)
    outside.send("command -v sbatch; echo over there\r")
    outside.expect("/sbatch\r\n")
    for session, code in ((inside, 0), (outside, 5)):
        session.send(f"exit {code}\r")
        assert session.end() == code
        assert "srun:" not in session.printed
    script = "nproc; echo $SLURM_JOB_ID; sbatch --version; printf 'half a line' >&2; exit 3"
    command = start("shell", "--outside", "-c", script, held.session_id, box="login")
    assert command.end() == 3
    assert "srun:" not in command.printed and "half a line" in command.printed
    lines = command.printed.replace("half a line", "").splitlines()  # from standard error, at an unpredictable place
    assert lines[-3:-1] == ["2", held.job_id]
    assert lines[-1].startswith("slurm")
    held.send("\n")
    assert held.end() == 0
    assert_nothing_left(cluster)


@each_slurm
def test_a_job_for_a_terminal(cluster: PracticeCluster, start: Start) -> None:
    session = start("shell", "-t", "0:05:00", "--gpus", "1", "--", "tf-gpu")
    session.expect(r"A terminal on gpu1, in tf-gpu: exit closes it and ends job \d+")
    session.expect(INSIDE)
    session.send("echo $COURSE_ENVIRONMENT; sleep 60 || echo stopped\r")
    session.expect("tf-gpu\r\n")
    time.sleep(0.5)
    session.send("\x03")
    session.expect(INSIDE)
    session.send("exit\r")
    assert session.end() in (0, 130)
    assert f"Job {session.job_id} has ended." in session.printed
    assert_nothing_left(cluster)


def test_the_job_of_a_terminal_ends_with_a_launcher_that_is_killed(cluster: PracticeCluster, start: Start) -> None:
    session = start("shell", "-t", "5", "-n", "1", "--engine", "openssh", "--", "plain")
    session.expect(r"\(plain on \w+\) alice:~\$ ")
    session.child.kill(signal.SIGKILL)
    began = time.monotonic()
    wait_until(lambda: not cluster.squeue(), 60, "the job has ended")
    print(f"the job had ended {time.monotonic() - began:.1f} s after the launcher was killed")
    assert_nothing_left(cluster)


def test_a_closed_terminal_ends_the_job(cluster: PracticeCluster, start: Start) -> None:
    session = start("shell", "-t", "5", "-n", "1", "--", "plain", box="login")
    session.expect(r"\(plain on \w+\) alice:~\$ ")
    session.child.kill(signal.SIGHUP)
    wait_until(lambda: not cluster.squeue(), 60, "the job has ended")
    assert_nothing_left(cluster)


def test_ctrl_c_while_the_job_of_a_terminal_waits(cluster: PracticeCluster, start: Start) -> None:
    session = start("shell", "-b", "now+1hour", "-n", "1")
    session.expect("waits for its begin time")
    session.send("\x03")
    assert session.end() == 130
    assert "Interrupted before the job had started" in session.printed
    assert_nothing_left(cluster)


def test_a_command_of_several_lines_in_a_job_of_its_own_where_the_shell_is_tcsh(cluster: PracticeCluster) -> None:
    """The output is the command's alone, without what the start-up files print."""
    script = "echo 'wow!now'\necho '\\n'; python3 -c 'print(6 * 7)'; exit 4"
    words = ["launch-notebook", "shell", "-t", "5", "-n", "1", "-c", script, "--", "tf-gpu"]
    done = subprocess.run(cluster.argv("laptop", "frank", words), capture_output=True, timeout=120, check=False)
    assert (done.stdout, done.returncode) == (b"wow!now\n\\n\n42\n", 4)
    assert_nothing_left(cluster)


def test_an_environment_that_does_not_work_is_told_in_the_terminal(cluster: PracticeCluster, start: Start) -> None:
    session = start("shell", "-t", "5", "-n", "1", "--", "broken")
    assert session.end() == 1
    assert "Module broken/1 could not be loaded on" in session.printed
    assert_nothing_left(cluster)
