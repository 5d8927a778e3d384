"""reverse.sh: the job connects to the login node that calls it, and both ends meet there."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import paramiko
import psutil
import pytest

from tests.doubles import wait_until
from tests.unit.jobscripts.job import BASH, Job, as_user, permissions
from tests.unit.jobscripts.test_sshd import Door, hand_over, new_sshd_job, without_sshd

pytestmark = pytest.mark.real_time

# Both machines are this one. `ssh-says` in the home is what becomes of an attempt, if not a connection.
SSH = r"""#!/bin/bash
printf '%s\n' "$*" >>~/ssh-words
if [[ -e ~/ssh-says ]]; then cat ~/ssh-says >&2; exit 255; fi
if [[ -e ~/ssh-elsewhere ]]; then printf '\nnl-call-%s elsewhere\n' "${@##* }"; exit; fi
printf 'Welcome!\nnl-call-00000000 open\nwithout an end'
exec bash -c "${@: -1}"
"""


@pytest.fixture
def job() -> Iterator[Job]:
    """A job that answers calls, not yet started."""
    job = new_sshd_job()
    job.ask("reverse=yes")
    job.tool("ssh", SSH)
    hand_over(job)
    yield job
    job.end()
    shutil.rmtree(job.root)


def alter(job: Job, name: str, old: str, new: str) -> None:
    script = job.dir / name
    assert old in script.read_text()
    script.write_text(script.read_text().replace(old, new))


def call(job: Job, *words: str, server: str = "10.0.0.2 8822") -> str:
    """Call the job, or another verb of the script, and return what it prints; ``server``: of SSH there."""
    argv = [BASH, str(job.dir / "reverse.sh"), *(words or ("call",))]
    argv[3:3] = [str(job.dir)]
    done = subprocess.run(
        argv, env={**job.env, "SSH_CONNECTION": f"10.0.0.1 5 {server}"}, capture_output=True, text=True,
        stdin=subprocess.DEVNULL, timeout=60, **as_user(job.user),
    )  # fmt: skip
    return done.stdout


def called(job: Job) -> str:
    """Call the job, and return the tag of the connection."""
    answer = call(job)
    found = re.fullmatch(r"open ([0-9A-Za-z]{8})\n", answer)
    assert found, answer + job.log.read_text()
    return found[1]


def joined(job: Job, tag: str) -> paramiko.Transport:
    """Log in as a launcher does, over the connection."""
    ours, its = socket.socketpair()
    with its, job.log.open("ab") as log:
        subprocess.Popen(
            [BASH, str(job.dir / "reverse.sh"), "join", str(job.dir), tag],
            env=job.env, stdin=its.fileno(), stdout=its.fileno(), stderr=log, **as_user(job.user),
        )  # fmt: skip
    transport = paramiko.Transport(ours)
    transport.start_client(timeout=60)
    assert transport.get_remote_server_key().get_base64() in (job.dir / "ssh_host_key.pub").read_text()
    transport.auth_publickey(Door(job, None).user, paramiko.Ed25519Key.from_private_key_file(str(job.root / "key")))
    return transport


def in_use(job: Job) -> list[str]:
    return [one for one in job.commands() if re.search(r"reverse\.sh (join|meet)|^cat$|sshd -i|sshd\.sh|^sshd: ", one)]


def test_a_call_leads_to_the_node_and_nothing_of_it_is_left(job: Job) -> None:
    job.start()
    port = job.endpoint()["port"]
    for last in (False, True):
        tag = called(job)
        folder = Path(f"/tmp/nl-call-{tag}")
        assert permissions(folder) == 0o700 and {permissions(one) for one in folder.iterdir()} == {0o600}
        transport = joined(job, tag)
        channel = transport.open_channel("direct-tcpip", ("127.0.0.1", port), ("127.0.0.1", 0))
        channel.sendall(b"GET / HTTP/1.0\r\n\r\n")
        assert channel.makefile("rb").read().startswith(b"HTTP/1.0 403")
        assert not folder.exists(), "nobody else can come any more"
        if not last:
            transport.close()  # the launcher leaves, and the job goes on
            wait_until(lambda: not in_use(job), 30)
    assert "ssh_port" not in job.started(), "nothing listens"
    job.send(signal.SIGTERM)
    assert job.exit()["cause"] == "stopped"
    wait_until(lambda: not job.processes(), 30)
    wait_until(lambda: not transport.is_active(), 30)
    assert [one.name for one in (job.dir / "runtime" / "reverse").iterdir()] == ["calls"]


def test_the_job_knows_the_login_node_and_asks_its_user_nothing(job: Job) -> None:
    job.dir = job.dir.rename(job.dir.with_name("it's 100%h a #name"))
    job.script = job.dir / "jupyterlab.sh"
    job.start()
    job.started()
    tag = called(job)
    hosts = (job.dir / "runtime" / "reverse" / f"{tag}.hosts").read_text().splitlines()
    keys = [" ".join(file.read_text().split()[:2]) for file in sorted(Path("/etc/ssh").glob("ssh_host_*_key.pub"))]
    assert hosts == [f"login-node {key}" for key in keys]
    words = (job.home / "ssh-words").read_text()
    known = (f"UserKnownHostsFile={tag}.hosts", "GlobalKnownHostsFile=/dev/null", "HostKeyAlias=login-node")
    for option in ("BatchMode=yes", "StrictHostKeyChecking=yes", *known, f"-l {Door(job, None).user} -p 8822"):
        assert option in words
    joined(job, tag).close()


@pytest.mark.parametrize("how", [signal.SIGKILL, "ssh"])
def test_a_connection_ends_with_the_job_and_with_its_ssh(job: Job, how: signal.Signals | str) -> None:
    job.start()
    job.started()
    transport = joined(job, called(job))
    if how == "ssh":  # the network between the two
        meeting = next(one for one in job.processes() if "meet" in one.cmdline())
        for process in (meeting, *meeting.children()):
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        wait_until(lambda: not in_use(job), 30)
        wait_until(lambda: not transport.is_active(), 30)
        joined(job, called(job)).close()
        return
    assert job.process is not None
    os.killpg(job.process.pid, signal.SIGKILL)  # as a scheduler kills what it has started
    for process in job.processes():
        with contextlib.suppress(psutil.Error):  # it ends while it is looked at
            if "jupyter-lab" in " ".join(process.cmdline()):
                process.kill()
    wait_until(lambda: not job.processes(), 30)


@pytest.mark.parametrize(
    ("says", "answer", "tries"),
    [
        ("someone@host: Permission denied (publickey).\n", "denied someone@host: Permission denied (publickey).", 1),
        ("No ED25519 host key is known\nHost key verification failed.\r\n", "unknown-host Host key verification", None),
        ("ssh: connect to x: \x1b[2JConnection refused\n", "unreached ssh: connect to x:  [2JConnection", None),
    ],
)
def test_why_the_login_node_is_not_reached(job: Job, says: str, answer: str, tries: int | None) -> None:
    (job.home / "ssh-says").write_text(says)
    job.start()
    job.started()
    assert call(job).startswith(answer)
    assert len((job.home / "ssh-words").read_text().splitlines()) == tries or tries is None
    assert not list(Path("/tmp").glob(f"nl-call-{last_tag(job)}"))


def test_addresses_that_do_not_answer_are_left_out(job: Job) -> None:
    """The first one is tried in any case; each of the others would take seconds where packets are dropped."""
    (job.home / "ssh-says").write_text("Connection timed out\n")
    alter(job, "reverse.sh", "$name != 127.*", "$name != 127.0.0.1")
    job.start()
    job.started()
    with socket.create_server(("", 0)) as server, socket.create_server(("", 0)) as other:
        port, silent = server.getsockname()[1], other.getsockname()[1]
        other.close()
        for number in (port, silent):
            assert call(job, server=f"127.0.0.2 {number}").startswith("unreached")
    words = (job.home / "ssh-words").read_text()
    assert words.count(f"-p {silent} ") == 1 < words.count(f"-p {port} "), words
    wait_until(lambda: not [one for one in job.commands() if "reverse.sh" in one][1:], 30, "no look is left")


def test_without_its_file_no_calls_are_waited_for(job: Job) -> None:
    job.start()
    job.started()
    assert [one for one in job.commands() if "reverse.sh answer" in one]
    (job.dir / "runtime" / "reverse" / "calls").unlink()
    wait_until(lambda: not [one for one in job.commands() if "reverse.sh answer" in one], 30)
    assert call(job) == "closed \n"


def last_tag(job: Job) -> str:
    return (job.dir / "runtime" / "reverse" / "calls").read_text().split()[-1]


def test_another_machine_that_answers_is_told_apart(job: Job) -> None:
    (job.home / "ssh-elsewhere").touch()
    job.start()
    job.started()
    assert call(job) == "elsewhere \n"


def test_what_is_missing_is_named(job: Job) -> None:
    assert call(job) == "closed \n", "there is no job"
    without_sshd(job)
    job.start()
    job.started()
    assert "sshd is not installed" in call(job)
    alter(job, "lib.sh", "/etc/ssh/ssh_host", "/nowhere/ssh_host")
    assert call(job) == "no-host-key \n"


def test_a_call_that_nobody_joins_is_over(job: Job) -> None:
    alter(job, "reverse.sh", "JOIN_SECONDS=30", "JOIN_SECONDS=1")
    job.start()
    job.started()
    tag = called(job)
    wait_until(lambda: not Path(f"/tmp/nl-call-{tag}").exists() and not in_use(job), 30)
    assert call(job, "join", tag) == ""
    assert files_of_calls(job) == ["calls"]


def files_of_calls(job: Job) -> list[str]:
    return [one.name for one in (job.dir / "runtime" / "reverse").iterdir()]


def test_what_is_left_of_calls_that_were_killed_goes_with_the_next(job: Job) -> None:
    (job.home / "ssh-elsewhere").touch()
    job.start()
    job.started()
    place, folders = job.dir / "runtime" / "reverse", [Path(f"/tmp/nl-call-{tag}") for tag in ("old00000", "new00000")]
    new = [place / "new00000", place / "new00000.answer"]
    old = [place / "old00000", place / "old00000.hosts", place / "old00000.answer"]
    try:
        for folder in folders:
            folder.mkdir()
        for file in (*old, *new):
            file.touch()
        for one in (*folders, *old, *new):
            os.chown(one, place.stat().st_uid, -1)
        for one in (folders[0], *old):
            os.utime(one, (time.time() - 700,) * 2)
        assert call(job) == "elsewhere \n"
        assert [folder.exists() for folder in folders] == [False, True]
        assert sorted(files_of_calls(job)) == ["calls", "new00000", "new00000.answer"]
    finally:
        for folder in folders:
            shutil.rmtree(folder, ignore_errors=True)


@pytest.mark.skipif(os.geteuid() != 0, reason="other users are needed")
def test_folders_of_others_are_no_place_to_meet(job: Job) -> None:
    """They may have made one of that name, or a link, after the real one was gone."""
    theirs = Path("/tmp/nl-call-theirs00")
    theirs.mkdir()
    try:
        for name in ("up", "down"):
            os.mkfifo(theirs / name)
        theirs.chmod(0o777)
        (theirs.parent / "nl-call-alink000").symlink_to(theirs)
        for tag in ("theirs00", "alink000", "nothing0"):
            assert call(job, "meet", tag) == f"\nnl-call-{tag} elsewhere\n"
            assert call(job, "join", tag) == ""
        assert call(job, "join", "../../x0") == ""
    finally:
        shutil.rmtree(theirs)
        (theirs.parent / "nl-call-alink000").unlink(missing_ok=True)
