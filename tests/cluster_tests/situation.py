"""What describes a situation: its circumstances, the actions during the launch, and what the user sees."""

from __future__ import annotations

import contextlib
import re
import signal
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum

from notebook_launcher.core.errors import LauncherError
from tests.cluster_tests import in_box
from tests.conftest import Session, fetch
from tests.practice_cluster import PracticeCluster

Arrangement = Callable[[PracticeCluster], contextlib.AbstractContextManager[object]]
# An action during a launch. If it returns a text, the user has seen that in another terminal.
Act = Callable[[PracticeCluster, Session], str | None]


class Part(Enum):
    """The phases of a session, as in the headings of the documentation."""

    REFUSED = "Nothing is queued"
    NEVER = "Queued, and could never start"
    WAITS = "It has to wait"
    ENDS = "The job ends, or the scheduler does"
    SOFTWARE = "Something is missing or wrong on the compute node"
    INTERRUPTED = "The launcher is interrupted"


@dataclass(frozen=True)
class When:
    """Call ``then`` as soon as output matches ``printed``, within ``seconds``."""

    printed: str
    then: Act
    seconds: float = 60


@dataclass(frozen=True)
class Situation:
    """One situation.

    ``provoked``: how it is brought about, in words and commands; ``arguments``: those of launch-notebook, in which
    ``{}`` is replaced by the value that ``arranged`` yields; ``sees``: a regular expression for each sentence that the
    user must have seen; ``ends``: the error that the launch ends with, ``None`` if it succeeds; ``arranged``: the
    circumstances; ``acts``: the actions during the launch, in order; ``each_slurm``: whether it is also tested with the
    oldest release of Slurm, because releases differ in it; ``newest_slurm``: whether it is also tested with the newest
    one; ``killed``: whether the launcher is killed; ``alone``: whether it and other sessions would disturb each other;
    ``turn``: a resource that only one situation at a time may use (a node, a partition, a user's home); ``long``:
    whether it takes a minute or more.
    """

    part: Part
    name: str
    provoked: str
    arguments: tuple[str, ...]
    sees: tuple[str, ...]
    ends: type[LauncherError] | None
    arranged: Arrangement = contextlib.nullcontext
    acts: tuple[When, ...] = ()
    user: str = "alice"
    box: str = "laptop"
    each_slurm: bool = False
    newest_slurm: bool = False
    killed: bool = False
    alone: bool = False
    turn: str = ""
    long: bool = False

    @property
    def exit_code(self) -> int:
        """The exit code of the launch; if it was killed, as a shell reports it."""
        return 137 if self.killed else self.ends.exit_code if self.ends else 0

    @property
    def folders(self) -> int:
        """How many session directories it leaves: if a job was queued, the one with its log."""
        return 0 if self.part is Part.REFUSED else 1


# --- circumstances -------------------------------------------------------------------------------------------------


def root_does(box: str, script: str, undo: str) -> Arrangement:
    """Let root run a shell script in a box, and at the end another one that undoes it."""

    @contextlib.contextmanager
    def arranged(cluster: PracticeCluster) -> Iterator[None]:
        try:
            in_box.run(cluster, box, "root", ["sh", "-euc", script]).check_returncode()
            yield
        finally:
            in_box.run(cluster, box, "root", ["sh", "-euc", undo]).check_returncode()

    return arranged


def together(*arrangements: Arrangement) -> Arrangement:
    """Combine arrangements, which are entered in this order; it yields the value of the last one."""

    @contextlib.contextmanager
    def arranged(cluster: PracticeCluster) -> Iterator[object]:
        given: object = None
        with contextlib.ExitStack() as stack:
            for arrangement in arrangements:
                given = stack.enter_context(arrangement(cluster))
            yield given

    return arranged


def partition(name: str, setting: str, undo: str) -> Arrangement:
    """Change a setting of a partition; ``undo`` is its value before."""
    change = f"scontrol update partitionname={name}"
    return root_does("ctl", f"{change} {setting}", f"{change} {undo}")


def away(box: str, *paths: str) -> Arrangement:
    """Hide programs or folders of a box by renaming them."""
    hide, show = ("; ".join(f"mv {move.format(path)}" for path in paths) for move in ("{0} {0}.away", "{0}.away {0}"))
    return root_does(box, hide, show)


def job_of(user: str, *words: str, comes_to: str = "RUNNING", runs: str = "exec sleep 600") -> Arrangement:
    """Let a user queue a job with these arguments of sbatch, and continue when it is in the given state.

    Yields its id; it is cancelled at the end.
    """

    @contextlib.contextmanager
    def arranged(cluster: PracticeCluster) -> Iterator[str]:
        submit = ["sbatch", "--parsable", "--output=/dev/null", "--time=30", *words, "--wrap", runs]
        submitted = in_box.run(cluster, "login", user, submit)
        submitted.check_returncode()
        job = submitted.stdout.strip()
        try:
            wait_in(cluster, "ctl", f'[ "$(squeue -h --states=all -j {job} -o %T)" = {comes_to} ]', 60)
            yield job
        finally:
            cluster.root("ctl", ["scancel", job], check=True)

    return arranged


@contextlib.contextmanager
def past_reservation(cluster: PracticeCluster) -> Iterator[None]:
    """Create a reservation ``past`` of one minute, and wait until it has ended."""
    words = ["ReservationName=past", "StartTime=now", "Duration=1", "Users=bob", "Nodes=node1", "CoreCnt=1"]
    cluster.root("ctl", ["scontrol", "create", "reservation", *words], check=True)
    wait_in(cluster, "ctl", "! scontrol show reservation past", 120, every=2)
    yield


# With an unknown key, so that every login fails. Each failure adds a penalty of 15 s, and from 40 s on the server
# refuses the address: after three failures, or after four if one more had begun.
FAIL_TO_LOG_IN = """\
cd "$(mktemp -d)" && ssh-keygen -q -t ed25519 -N '' -f key
for i in 1 2 3 4 5; do ssh -F none -o BatchMode=yes -o IdentitiesOnly=yes -i key login true; done
rm -r "$PWD"
"""


@contextlib.contextmanager
def refused_address(cluster: PracticeCluster) -> Iterator[None]:
    """Let the login node refuse the laptop's address, for 45 seconds or somewhat longer."""
    with cluster.penalties("login"):
        failed = cluster.run("laptop", "alice", ["sh", "-c", FAIL_TO_LOG_IN])
        assert "Permission denied" in failed.stderr
        assert failed.stderr.count("Permission denied") < 5, "the server refuses the address"
        yield


def profile_of(user: str, name: str, text: str) -> Arrangement:
    """Give a user one more profile on the laptop."""

    @contextlib.contextmanager
    def arranged(cluster: PracticeCluster) -> Iterator[None]:
        path = f".config/notebook-launcher/clusters/{name}.toml"
        cluster.run("laptop", user, ["sh", "-c", f"cat >{path}"], input=text, check=True)
        try:
            yield
        finally:
            cluster.run("laptop", user, ["rm", path], check=True)

    return arranged


def wait_in(cluster: PracticeCluster, box: str, condition: str, seconds: int, every: float = 0.2) -> None:
    """Wait until a shell condition is true, in a loop inside the box: to enter it for each check would cost more."""
    waits = f"until {condition}; do sleep {every}; done >/dev/null 2>&1"
    in_box.run(cluster, box, "root", ["timeout", str(seconds), "sh", "-c", waits]).check_returncode()


def venv(name: str, jupyterlab: str, user: str = "alice") -> Arrangement:
    """Give a user a virtual environment ``name`` in their home, whose ``jupyter-lab`` is this shell script."""
    folder = f"/home/{user}/{name}"
    make = (
        f"mkdir -p {folder}/bin; cd {folder}/bin; ln -s /usr/bin/python3 python; "
        f"echo 'PATH={folder}/bin:$PATH' >activate; "
        f"cat >jupyter-lab <<'END'\n#!/bin/bash\n{jupyterlab}\nEND\n"
        f"chmod 755 jupyter-lab; chown -R {user}: {folder}"
    )
    return root_does("login", make, f"rm -rf {folder}")


# A stand-in for JupyterLab that starts at once: to the launcher it answers as JupyterLab does, and it checks the token.
STAND_IN = """\
exec python3 -Sc "
import http.server, json, os, pathlib
session = pathlib.Path(os.environ['NBL_SESSION_DIR'])
token = (session / 'token').read_text()
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200 if self.headers['Authorization'] == 'token ' + token else 403)
        self.end_headers()
        self.wfile.write(b'[]' if self.path.endswith('/api/kernels') else b'')
server = http.server.HTTPServer(('127.0.0.1', 0), Handler)
told = dict(base_url='/', hostname='127.0.0.1', pid=os.getpid(), port=server.server_port, secure=False, token=token)
(session / 'runtime' / f'jpserver-{os.getpid()}.json').write_text(json.dumps(told))
server.serve_forever()
"
"""


def slow_container_of(user: str, seconds: int) -> Arrangement:
    """Delay the start of a user's containers on node1 by some seconds."""
    return _for_one("node1", "apptainer", user, f"sleep {seconds}")


def failing_squeue_of(user: str) -> Arrangement:
    """Let squeue fail for one user, as if slurmctld did not answer in time."""
    words = "slurm_load_jobs error: Socket timed out on send/recv operation"
    return _for_one("login", "squeue", user, f"echo {words} >&2; exit 1")


def _for_one(box: str, program: str, user: str, first: str) -> Arrangement:
    """Let a program of a box run a command of the shell first, for one user only."""
    script = f'#!/bin/sh\ntest "$(id -un)" != {user} || {{ {first}; }}\nexec /usr/bin/{program} "$@"\n'
    path = f"/usr/local/bin/{program}"
    return root_does(box, f"cat >{path} <<'END'\n{script}END\nchmod 755 {path}", f"rm {path}")


# --- actions -------------------------------------------------------------------------------------------------------


def press(keys: str) -> Act:
    """Return an action: the user presses keys."""

    def act(_cluster: PracticeCluster, session: Session) -> None:
        session.send(keys)

    return act


def do(box: str, command: str, user: str = "root") -> Act:
    """Return an action: a user runs a command in a box, in which ``JOB`` is replaced by the id of the launch's job."""

    def act(cluster: PracticeCluster, session: Session) -> None:
        words = ["sh", "-euc", re.sub(r"\bJOB\b", lambda _: session.job_id, command)]
        in_box.run(cluster, box, user, words).check_returncode()

    return act


def during(arrangement: Arrangement, printed: str, *acts: Act, seconds: float = 60) -> Act:
    """Return an action: change the circumstances, do ``acts``, and change them back once output matches ``printed``."""

    def act(cluster: PracticeCluster, session: Session) -> None:
        with arrangement(cluster):
            for one in acts:
                one(cluster, session)
            session.expect(printed, timeout=seconds)

    return act


def killed_and_stopped(cluster: PracticeCluster, session: Session) -> str:
    """Kill ivan's launcher, and let him stop the session with another command."""
    session.child.kill(signal.SIGKILL)
    stopped = in_box.launcher(cluster, "laptop", "ivan", "stop", session.session_id)
    return f"{stopped.stdout}\n{stopped.stderr}"


def killed_and_forgotten(cluster: PracticeCluster, session: Session) -> None:
    """Kill all processes of the job, and let squeue fail until the controller has forgotten the job."""
    with cluster.failing_squeue():
        cluster.root("node1", ["pkill", "-KILL", "-u", "alice"], check=True)
        wait_in(cluster, "ctl", f"! scontrol show job {session.job_id}", 90, every=1)


def still_answers(arrangement: Arrangement) -> Act:
    """Return an action: JupyterLab answers through the tunnel while the circumstances are changed."""

    def act(cluster: PracticeCluster, session: Session) -> None:
        session.url = re.findall(r"http://127\.0\.0\.1:\d+/lab\?token=[\w-]+", session.printed)[-1]
        with arrangement(cluster):
            assert fetch(cluster, "laptop", session.api, session.token)[0] == 200

    return act


READY = "ENTER or Ctrl-C ends"
ERROR = "launch-notebook: "
ENTER = When(READY, press("\n"))
CTRL_C = press("\x03")


# --- the output ----------------------------------------------------------------------------------------------------

SPINNER = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"


def shown(printed: str) -> list[str]:
    """Return what a terminal has shown, in order: lines, each state of the line with the spinner, and whole errors."""
    paragraphs: list[str] = []
    for line in re.split(rf"[\n{SPINNER}]", printed):
        text = re.sub(r"^ *\d+:\d\d  ", "", line.rstrip())
        if re.match(r"(\d+ (days?|h|min|s) )+left", text):  # the status line's countdown while attached
            continue
        if text.startswith("  ") and paragraphs:
            paragraphs[-1] += f"\n{text}"
        elif text.strip() and text.strip() not in paragraphs[-1:]:
            paragraphs.append(text.strip())
    return paragraphs


def matching(pattern: str, paragraphs: Sequence[str]) -> str | None:
    """Return the last paragraph that contains a pattern."""
    return next((one for one in reversed(paragraphs) if re.search(pattern, one)), None)


def assert_no_noise(session: Session) -> None:
    """Check that no control sequence of a noisy site has reached the terminal."""
    raw = f"{session._seen}{session.child.buffer or ''}"
    assert [bad for bad in ("\x1b]", "\x1b[2J", "\x07", "\x9b", "\x9d") if bad in raw] == []
