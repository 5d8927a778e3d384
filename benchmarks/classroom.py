"""Forty students launch at the same moment, on a cluster with room for twenty-four sessions: see docs/performance.md.

    make bench-classroom      (root; uses the practice cluster, and brings it up if need be; ten minutes on two cores)

Forty users are created for it, each with a home and a key. All start ``launch-notebook`` at the same moment, through a
login node that throttles as OpenSSH does by default (``MaxStartups 10:30:60``). Twenty-four sessions with two cores
each fit on the nodes; the others must wait. It checks that

- each of the twenty-four works through its own tunnel with its own token, and with no other;
- the others are pending with a reason, which the teacher sees as well, and start when some sessions end;
- no job and no process is left at the end.

It prints these counts, the RPCs that slurmctld has answered, the connections of the login node, and the time from the
start to the address: the median and the maximum, beside that of one launch on the idle cluster.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import signal
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tests.conftest import clear, people_processes, write_profile
from tests.practice_cluster import PracticeCluster
from tests.practice_cluster.layout import BOXES, USERS, User
from tests.practice_cluster.sshd import CONFIGURATION

CORES = 2  # of each session
ROOM = 24  # sessions of two cores that fit beside HELD
HELD = (("node1", 4), ("node2", 4))  # cores used by another user: 16 are left on each node
THROTTLE = "10:30:60"  # OpenSSH's default
LOG = "/var/log/sshd-class.log"
FIRST_UID = 3001
TEACHER = "grace"

_ACCOUNT = 'useradd --no-create-home --uid "$2" --user-group --shell /bin/bash "$1"; usermod -p "*" "$1"'
_LOGGED = f"""\
sed -i "s/^MaxStartups .*/MaxStartups $1/" {CONFIGURATION}; sed -i '1i LogLevel VERBOSE' {CONFIGURATION}
pkill -o -x sshd; sleep 0.5; rm -f {LOG}; /usr/sbin/sshd -E {LOG}
"""
_UNLOGGED = f"""\
sed -i -e 's/^MaxStartups .*/MaxStartups 500/' -e '/^LogLevel VERBOSE$/d' {CONFIGURATION}
pkill -o -x sshd; sleep 0.5; /usr/sbin/sshd
"""


@dataclass
class Student:
    """One student's launch: the process, its events, and the time of the first of each kind, in seconds."""

    user: str
    process: subprocess.Popen[str] | None = None
    began: float = 0.0
    events: list[dict[str, Any]] = field(default_factory=list)
    at: dict[str, float] = field(default_factory=dict)

    def launch(self, cluster: PracticeCluster, words: Sequence[str]) -> None:
        """Start the launcher, and read its output."""
        argv = ["launch-notebook", "--cluster", "practice", "--json", "-n", str(CORES), "-t", "30", *words]
        self.began = time.monotonic()
        self.process = subprocess.Popen(
            cluster.argv("laptop", self.user, argv), stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL, text=True,
        )  # fmt: skip
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self.process is not None and self.process.stdout is not None
        for line in self.process.stdout:
            event = json.loads(line)
            self.at.setdefault(event["event"], time.monotonic() - self.began)
            self.events.append(event)

    def last(self, name: str) -> dict[str, Any]:
        """Return the last event of a kind; empty if there was none."""
        return next((event for event in reversed(self.events) if event["event"] == name), {})

    @property
    def is_ready(self) -> bool:
        """Whether JupyterLab has answered through the tunnel."""
        return "ready" in self.at

    @property
    def waits(self) -> bool:
        """Whether the job is pending, and the launcher has said why."""
        return not self.is_ready and bool(self.last("pending").get("reason")) and not self.last("running")

    @property
    def is_settled(self) -> bool:
        """Whether the session is ready or pending, or the launcher has given up."""
        return self.is_ready or self.waits or (self.process is not None and self.process.poll() is not None)

    @property
    def tries_again(self) -> bool:
        """Whether the login node was too busy at first."""
        return any("trying again" in event.get("text", "") for event in self.events if event["event"] == "querying")

    def end(self) -> int:
        """End the session, or the wait for it, as its user would; return the exit code."""
        assert self.process is not None and self.process.stdin is not None
        if self.process.poll() is None:
            if self.is_ready:
                self.process.stdin.write("\n")
                self.process.stdin.flush()
            else:
                self.process.send_signal(signal.SIGINT)
        return self.process.wait(180)


def make_students(cluster: PracticeCluster, count: int) -> list[Student]:
    """Create the users on each box, with homes and keys, and with the account."""
    names = [f"s{number:02d}" for number in range(1, count + 1)]
    for number, name in enumerate(names):
        USERS[name] = User(name, FIRST_UID + number, ("proj1",))
    lines = "\n".join(f"set -- {name} {USERS[name].uid}; {_ACCOUNT}" for name in names)
    for box in (name for name, box in BOXES.items() if box.is_laptop or box.has_slurm):
        cluster.root(box, ["sh", "-c", f"cp /etc/passwd /etc/passwd.before; {lines}"])
    there, here = cluster.directory / "home", cluster.directory / "laptop-home"
    for name in names:
        for place in (there, here):
            (place / name / ".ssh").mkdir(mode=0o700, parents=True)
        key = here / name / ".ssh/id_ed25519"
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(key)], check=True)
        for file in ("config", "known_hosts"):
            shutil.copy(here / "alice/.ssh" / file, here / name / ".ssh" / file)
        (there / name / ".ssh/authorized_keys").write_text(key.with_suffix(".pub").read_text())
        for place in (there, here):
            subprocess.run(["chown", "-R", f"{USERS[name].uid}:{USERS[name].uid}", str(place / name)], check=True)
            subprocess.run(["chmod", "-R", "go-w", str(place / name)], check=True)
    cluster.root("ctl", ["sacctmgr", "-i", "add", "user", ",".join(names), "account=proj1"], check=True)
    return [Student(name) for name in names]


def forget_students(cluster: PracticeCluster, students: Sequence[Student]) -> None:
    """Remove the users again."""
    names = [one.user for one in students]
    cluster.root("ctl", ["sacctmgr", "-i", "delete", "user", ",".join(names)])
    for box in (name for name, box in BOXES.items() if box.is_laptop or box.has_slurm):
        cluster.root(box, ["sh", "-c", "for user do userdel $user; done", "forget", *names])
    for name in names:
        for place in ("home", "laptop-home"):
            shutil.rmtree(cluster.directory / place / name, ignore_errors=True)
        USERS.pop(name, None)


def rpcs(cluster: PracticeCluster, *users: str) -> dict[str, int]:
    """Return how many RPCs of each of these users the controller has answered since its counters were reset."""
    text = cluster.root("ctl", ["sdiag"], check=True).stdout
    found = {user: int(count) for user, count in re.findall(r"^\s+(\w+)\s+\(\s*\d+\) count:(\d+)", text, re.M)}
    return {user: found.get(user, 0) for user in users}


def until(condition: Callable[[], bool], what: str, seconds: float) -> bool:
    """Wait for a condition, and return whether it came true; print a message if it did not."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            print(f"not within {seconds:.0f} s: {what}", flush=True)
            return False
        time.sleep(0.3)
    return True


def answers(cluster: PracticeCluster, student: Student, token: str, user: str) -> int:
    """Return the status of a student's JupyterLab through the tunnel, for a user of the laptop; 0: no answer."""
    port = student.last("ready")["local_port"]
    words = ["curl", "-s", "-o", "/dev/null", "-m", "20", "-w", "%{http_code}", "-H", "@-"]
    done = cluster.run("laptop", user, [*words, f"http://127.0.0.1:{port}/api/kernels"], login=False,
                       input=f"Authorization: token {token}\n")  # fmt: skip
    return int(done.stdout or 0)


def token_of(student: Student) -> str:
    """Return the token of a student's session."""
    return str(student.last("ready")["url"]).partition("token=")[2]


def check_tunnels(cluster: PracticeCluster, ready: Sequence[Student]) -> dict[str, int]:
    """Count the answers to each student's own token, to another student's, and to another user with the right one."""
    counts = {"own": 0, "others": 0, "strangers": 0}
    for student, neighbour in zip(ready, [*ready[1:], ready[0]], strict=True):
        counts["own"] += answers(cluster, student, token_of(student), student.user) == 200
        counts["others"] += answers(cluster, student, token_of(neighbour), student.user) == 403
        counts["strangers"] += answers(cluster, student, token_of(student), neighbour.user) == 0
    return counts


def seen_by_teacher(cluster: PracticeCluster, students: Sequence[Student]) -> dict[str, Any]:
    """Return the state of the class from ``classroom watch``."""
    roster = "".join(f"{one.user}\n" for one in students)
    cluster.run("laptop", TEACHER, ["sh", "-c", "cat >students.csv"], login=False, input=roster)
    words = ["launch-notebook", "classroom", "watch", "students.csv", "--once", "--json", "--cluster", "practice"]
    lines = cluster.run("laptop", TEACHER, words).stdout.splitlines()
    return dict(json.loads(next(line for line in lines if '"event": "class"' in line)))


def connections(cluster: PracticeCluster) -> dict[str, int]:
    """Return how many logins the login node has accepted, and how many connections it has dropped before login."""
    log = cluster.root("login", ["cat", LOG]).stdout
    return {
        "connections": len(re.findall(r"^Connection from ", log, re.M)),
        "logins": len(re.findall(r"^Accepted publickey for s\d", log, re.M)),
        "throttled": sum(
            int(count) for count in re.findall(r"exited MaxStartups throttling after .*?, (\d+) connec", log)
        ),
        "dropped": len(re.findall(r"^drop connection ", log, re.M)),
    }


def main() -> None:
    """Create the class, let it launch, and print the results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--students", type=int, default=40)
    parser.add_argument("--throttle", default=THROTTLE, help="MaxStartups of the login node: 2:60:6 is far too little")
    parser.add_argument("--slurm", default="24.11", help="the practice cluster's release of Slurm: 24.11 or 22.05")
    parser.add_argument("words", nargs="*", default=["--", "module"], help="what is launched; by default -- module")
    arguments = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended"))  # so that everything is removed
    cluster = PracticeCluster(arguments.slurm)
    was_up = cluster.is_up()
    cluster.up(until_end_of=None if was_up else os.getpid())
    with ExitStack() as at_the_end:
        students = make_students(cluster, arguments.students)
        at_the_end.callback(forget_students, cluster, students)
        at_the_end.callback(clear, cluster)
        clear(cluster)
        for user in (TEACHER, *(one.user for one in students)):
            write_profile(cluster, "laptop", user)
        cluster.root("login", ["sh", "-c", _LOGGED, "log", arguments.throttle], check=True)
        at_the_end.callback(cluster.root, "login", ["sh", "-c", _UNLOGGED])
        for node, cores in HELD:
            words = ["sbatch", "-w", node, "-n", str(cores), "-t", "60", "--output=/dev/null", "--wrap=sleep 3600"]
            cluster.run("login", "erin", words, check=True)
        measure(cluster, students, arguments.words)


def measure(cluster: PracticeCluster, students: Sequence[Student], words: Sequence[str]) -> None:
    """Let one launch alone, then all at once; print each figure as it is known."""
    alone = Student(students[0].user)
    alone.launch(cluster, words)
    until(lambda: alone.is_ready, "the address of one launch alone", 120)
    floor = alone.at.get("ready", 0.0)
    alone.end()
    print(f"one launch alone: {floor:.1f} s to the address", flush=True)

    names = [one.user for one in students]
    before, logins_before = rpcs(cluster, *names, TEACHER), connections(cluster)
    began = time.monotonic()
    for student in students:
        student.launch(cluster, words)
    print(f"{len(students)} launches started within {time.monotonic() - began:.1f} s", flush=True)
    until(lambda: all(one.is_settled for one in students), "each session works or is pending", 420)
    room = min(ROOM, sum(one.is_ready or one.waits for one in students))
    until(lambda: sum(one.is_ready for one in students) >= room, f"{room} sessions work", 420)
    ready = [one for one in students if one.is_ready]
    pending = [one for one in students if one.waits]
    print(f"work: {len(ready)}; pending: {len(pending)}; lost: {len(students) - len(ready) - len(pending)}", flush=True)
    for one in students:
        if failed := one.last("error"):
            print(f"  {one.user}: {failed['kind']}: {failed['what']} {failed['why']}")
    print(f"reasons: {sorted({str(one.last('pending')['reason']) for one in pending})}", flush=True)
    print(f"tried again at the login: {sum(one.tries_again for one in students)}", flush=True)
    counts = check_tunnels(cluster, ready)
    print(f"own token, 200: {counts['own']}; another's token, 403: {counts['others']}; "
          f"another user with the right token, no answer: {counts['strangers']}", flush=True)  # fmt: skip
    seen = seen_by_teacher(cluster, students)
    print(
        f"the teacher sees: {seen['counts']}, by {rpcs(cluster, TEACHER)[TEACHER] - before[TEACHER]} RPCs", flush=True
    )
    took = sorted(one.at["ready"] for one in ready)
    print(f"to the address: median {statistics.median(took):.1f} s, worst {took[-1]:.1f} s", flush=True)
    used = rpcs(cluster, *names)
    each = [used[name] - before[name] for name in names]
    print(
        f"RPCs of a student until then: median {statistics.median(each)}, most {max(each)}, all {sum(each)}", flush=True
    )
    after = connections(cluster)
    print(f"login node: { {key: after[key] - logins_before[key] for key in after} }", flush=True)

    leaving = ready[: len(pending)]
    codes = [one.end() for one in leaving]
    until(lambda: all(one.is_ready for one in pending), "those who waited work", 420)
    late = [one for one in pending if one.is_ready]
    print(f"{len(leaving)} ended (exit codes {sorted(set(codes))}); of those who waited, {len(late)} work", flush=True)
    codes = [one.end() for one in students]
    everywhere = tuple(box for box in BOXES if box != "ctl")
    cluster.root("ctl", ["scancel", "-u", "erin"])
    is_clear = until(lambda: not cluster.squeue() and not people_processes(cluster, everywhere), "nothing is left", 60)
    print(f"exit codes at the end: {sorted(set(codes))}; nothing left: {is_clear}", flush=True)
    if not is_clear or len(late) < len(pending) or len(ready) + len(pending) < len(students):
        sys.exit(1)


if __name__ == "__main__":
    main()
