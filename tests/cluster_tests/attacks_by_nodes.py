"""Attacks by a forged login node and a forged compute node."""

from __future__ import annotations

import contextlib
import functools
import shlex
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

from tests.cluster_tests.attack import (
    ESCAPES,
    NODE,
    SESSIONS,
    Act,
    Attack,
    By,
    Scene,
    assert_no_escapes,
    error_of,
    forged_session,
    nothing_was_run,
    printed_by,
)
from tests.cluster_tests.situation import venv

KNOWN_HOSTS = "/home/alice/.ssh/known_hosts"


# --- a forged login node ------------------------------------------------------------------------------------------

MIDDLE_PORT = 2222


@contextlib.contextmanager
def another_sshd(scene: Scene, box: str, port: int, user: str = "root") -> Iterator[str]:
    """Run an SSH server with another key, and yield the file in which it logs requests."""
    folder = scene.must(box, user, "mktemp -d").strip()
    scene.must(box, user, f"ssh-keygen -q -t ed25519 -N '' -f {folder}/key")
    options = f"-f /dev/null -h {folder}/key -p {port} -o PidFile={folder}/pid -E {folder}/log -o LogLevel=DEBUG1"
    try:
        scene.must(box, user, f"/usr/sbin/sshd {options}; until test -s {folder}/pid; do sleep 0.05; done")
        yield f"{folder}/log"
    finally:
        scene.must(box, "root", f"kill $(cat {folder}/pid); rm -rf {folder}")


def man_in_the_middle(known: bool, engine: str) -> Act:
    """Answer as the login node, but with another host key. ``known``: whether alice's known_hosts has the right one."""

    def act(scene: Scene) -> str:
        name = f"[login.practice.test]:{MIDDLE_PORT}"
        learn = f"sed -n 's/^login,\\S* /{name} /p' {KNOWN_HOSTS} | head -n 1 >>{KNOWN_HOSTS}"
        scene.must("laptop", "alice", f"cp {KNOWN_HOSTS} ~/kept; {learn if known else 'true'}")
        with another_sshd(scene, "login", MIDDLE_PORT) as log:
            try:
                code, printed = scene.launcher("list", "--engine", engine, "--host", f"login:{MIDDLE_PORT}")
                assert code != 0, printed
                heard = scene.must("login", "root", f"cat {log}")
                assert "Connection from" in heard and "userauth" not in heard, heard
                trusting = "ssh -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null -o BatchMode=yes"
                scene.run("laptop", "alice", f"{trusting} -p {MIDDLE_PORT} login true")
                assert "userauth" in scene.must("login", "root", f"cat {log}"), "who trusts it tells it who they are"
            finally:
                scene.must("laptop", "alice", f"mv ~/kept {KNOWN_HOSTS}")
        return error_of(printed)

    return act


def other_names(replaced: str) -> Act:
    """Let the login node answer `copy` with other file names than requested. ``replaced``: a command of sed."""

    def act(scene: Scene) -> str:
        look = "find ~ -path ~/.ssh/'*' -o -path '*/pwned*' -o -maxdepth 1 -name '.bash*' | sort | xargs ls -ld"
        scene.must("login", "alice", "mkdir -p results; echo evil >results/file; cp results/file .ssh/file")
        before = scene.must("laptop", "alice", look)
        # bash --norc, which frames the answer, runs unchanged: the pipe would delay its first line
        fake = 'test "$HOME" = /home/alice && test "$1" != --norc || exec /bin/bash "$@"'
        fake += f'\n/bin/bash "$@" | sed {shlex.quote(replaced)}'
        try:
            with scene.program("login", "bash", fake):
                code, printed = scene.launcher("copy", "login:results", ".")
            assert scene.must("laptop", "alice", look) == before
            there = scene.must("laptop", "alice", "ls -A results 2>/dev/null; rm -rf results").split()
            scene.must("laptop", "root", "! ls -d /home/pwned /home/alice/pwned 2>/dev/null")
        finally:
            scene.must("login", "alice", "rm -rf results .ssh/file")
        return f"copied to results/{there[0]}" if code == 0 and there else error_of(printed)

    return act


def endless_output(scene: Scene) -> str:
    """Let `squeue` print without end, and limit the launcher's memory to 1.5 GB."""
    with scene.program("login", "squeue", "exec yes"):
        done = scene.run("laptop", "alice", "ulimit -v 1500000; launch-notebook list", login=True, timeout=120)
    printed = f"{done.stdout}{done.stderr}"
    assert "MemoryError" not in printed and "Traceback" not in printed and done.returncode >= 0, printed[-2000:]
    assert scene.session.session_id in printed, printed
    return "the list comes without the queue's states"


def odd_answers(scene: Scene) -> str:
    """Let `sbatch` print a job id that contains a command."""
    with scene.program("login", "sbatch", "echo '7;$(touch /tmp/pwned)'"):
        code, printed = scene.launcher("--new", "-b", "now+1hour")
    assert code != 0, printed
    nothing_was_run(scene)
    return error_of(printed)


def noisy_login(scene: Scene) -> str:
    """Let frank log in, whose banner and start-up files print control characters."""
    session = scene.terminal("list", user="frank")
    session.end()
    assert_no_escapes(printed_by(session))
    return "nothing of it reaches the terminal"


# --- a forged compute node ----------------------------------------------------------------------------------------


@contextlib.contextmanager
def another_key_on_the_node(scene: Scene) -> Iterator[None]:
    """Let another SSH server answer on port 22 of the node."""
    scene.must(NODE, "root", "kill $(cat /run/sshd.pid); sleep 0.2")
    try:
        with another_sshd(scene, NODE, 22):
            yield
    finally:
        scene.must(NODE, "root", "sleep 0.2; /usr/sbin/sshd")


def connected(scene: Scene, route: str, name: str = "") -> str:
    """Connect to the session again, and return the error."""
    words = ("connect", name or scene.session.session_id, "--engine", "openssh", "--route", route)
    session = scene.terminal(*words)
    code = session.end(timeout=90)
    assert code != 0, session.printed
    assert "http://127.0.0.1" not in session.printed, session.printed
    assert_no_escapes(printed_by(session))
    return error_of(session.printed)


def other_node_key(scene: Scene) -> str:
    with another_key_on_the_node(scene):
        return connected(scene, "node-ssh")


def revoked_node_key(scene: Scene) -> str:
    """Revoke the key that the job reports, which is the node's own."""
    key = scene.record("started.json")["host_keys"][0]
    scene.must("laptop", "alice", f"cp {KNOWN_HOSTS} ~/kept; echo '@revoked * {key}' >>{KNOWN_HOSTS}")
    try:
        return connected(scene, "node-ssh")
    finally:
        scene.must("laptop", "alice", f"mv ~/kept {KNOWN_HOSTS}")


def stranger_on_the_sshd_port(scene: Scene) -> str:
    """Run bob's SSH server on the port that the session's server had, as is possible once a job was requeued."""
    with another_sshd(scene, NODE, 62222, "bob"), forged_session(scene, started={"ssh_port": 62222}) as name:
        return connected(scene, "job-sshd", name)


def names_in_started(scene: Scene) -> str:
    """Let the job report node names that are options of ssh or contain commands."""
    touch = "touch /tmp/pwned"
    bad = [f"-oProxyCommand={touch}", f"$({touch})", f"node1;{touch}", f"node1\n{touch}"]
    with forged_session(scene, started={"node_names": bad}) as name:
        error = connected(scene, "node-ssh", name)
    nothing_was_run(scene)
    return error


def lead_elsewhere(scene: Scene) -> str:
    """Let three copies of the session each report another address than JupyterLab's, and connect to all at once."""
    places: dict[str, dict[str, object]] = {
        "step": {"address": "10.60.0.1", "port": 22},
        "node-ssh": {"port": 22},
        "auto": {"base_url": "//evil.example/"},
    }
    with contextlib.ExitStack() as stack:
        names = [
            stack.enter_context(forged_session(scene, f"20200101-00000{number}-evil", endpoint=changes))
            for number, changes in enumerate(places.values())
        ]
        with ThreadPoolExecutor(len(places)) as pool:
            return "<br>".join(pool.map(functools.partial(connected, scene), places, names))


def escapes_in_exit(scene: Scene) -> str:
    """Let a job that has ended report why it ended in a record full of control characters."""
    changes = {"version": 1, "cause": "jupyter-failed", "exit_code": 1, "message": f"a{ESCAPES}b", "ended": ESCAPES}
    shown = ""
    with forged_session(scene, exit=changes) as name:
        # the id of a job that is not in the queue, as after its end
        other = """sed -i 's/"job":"[0-9]*/"job":"999999/' *.json"""
        scene.must("login", "alice", f"cd {SESSIONS}/{name}; echo 999999 >job; {other}")
        for words in (("status", name), ("connect", name)):
            session = scene.terminal(*words)
            session.end()
            assert_no_escapes(printed_by(session))
            shown += session.printed
    assert "evil.example" in shown, shown
    return "none of them reaches the terminal"


def log_with_escapes(scene: Scene) -> str:
    """Let a job print control characters and fail, so that the launcher shows its log."""
    script = f"printf %s {shlex.quote(ESCAPES)}; echo; echo visible; exit 1"
    with venv("evil", script)(scene.cluster):
        session = scene.terminal("--new", "-n", "1", "-w", NODE, "--venv", "~/evil", "--", "plain")
        assert session.end() != 0
    assert "visible" in session.printed
    assert_no_escapes(printed_by(session))
    return "the log is shown without them"


BAD_LOGIN = (
    Attack(By.BAD_LOGIN, "be taken for the login node at the first login",
           "an SSH server with another key; alice has no key of it, and nobody can be asked",
           man_in_the_middle(False, "paramiko"), ".*is not known.*",
           "an unknown key has to be confirmed; nothing is sent before"),
    Attack(By.BAD_LOGIN, "be taken for the login node at a later login",
           "the same, where `known_hosts` has the right key (engine `paramiko`)",
           man_in_the_middle(True, "paramiko"), ".*is not the one that is known.*",
           "a changed key is refused; not even the user's name is sent"),
    Attack(By.BAD_LOGIN, "the same, of `ssh`", "the same with the engine `openssh`",
           man_in_the_middle(True, "openssh"), ".*is not the one that is known.*",
           "a changed key is refused; not even the user's name is sent"),
    Attack(By.BAD_LOGIN, "write into `~/.ssh` of the laptop",
           "`copy login:results .`, answered with `.ssh` in the place of `results`",
           other_names("s,/results,/.ssh,g"), "copied to results/file", "what is copied gets the name that was typed"),
    Attack(By.BAD_LOGIN, "write outside of the folder that is copied",
           "the same, answered with the file `../pwned`",
           other_names("s,\\x00file\\x00,\\x00../pwned\\x00,g"), ".*is a name that leads out of.*",
           "names that lead out are refused"),
    Attack(By.BAD_LOGIN, "fill the laptop's memory", "a `squeue` that prints without end, and 1.5 GB of memory",
           endless_output, "the list comes without the queue's states", "what a command prints is read up to 64 MiB"),
    Attack(By.BAD_LOGIN, "have a command run by the launcher", "`sbatch` answers `7;$(touch /tmp/pwned)`",
           odd_answers, ".*may have been queued.*", "a job's id has digits, letters and dots alone"),
    Attack(By.BAD_LOGIN, "write to the terminal", "banner, start-up files and errors full of control characters",
           noisy_login, "nothing of it reaches the terminal", "control characters are left out"),
)  # fmt: skip

BAD_NODE = (
    Attack(By.BAD_NODE, "be taken for the compute node", "another SSH server on port 22 of the node; `connect`",
           other_node_key, ".*is not the one that is known.*",
           "the job reports the node's keys over the checked connection"),
    Attack(By.BAD_NODE, "use a key that is known to be stolen",
           "`@revoked *` and the node's key in `known_hosts`; `connect`",
           revoked_node_key, ".*is revoked.*", "revocations count, whatever the job reports"),
    Attack(By.BAD_NODE, "be taken for the session's SSH server",
           "bob's SSH server has the port that the job had reported",
           stranger_on_the_sshd_port, ".*is not the one that is known.*", "the session has a host key of its own"),
    Attack(By.BAD_NODE, "have a command run by the launcher",
           "`started.json` with the node's name `-oProxyCommand=…`, `$(…)`, `node1;…`",
           names_in_started, ".*No route to the node.*", "such names are left out"),
    Attack(By.BAD_NODE, "lead the tunnel or the browser elsewhere",
           "`endpoint.json` with the login node's address and port 22, with port 22 of the node, and with the base_url "
           "`//evil.example/`", lead_elsewhere, "(“.*(does not answer|answers 404).*”(<br>)?){3}",
           "the session's SSH server forwards to 127.0.0.1 alone, and the browser gets no address before JupyterLab "
           "has answered. (What answers in its place gets the token; whoever can write this file can read that, too.)"),
    Attack(By.BAD_NODE, "write to the terminal by a record",
           "`exit.json` with `ESC ]` without end, invisible characters, a title",
           escapes_in_exit, "none of them reaches the terminal", "control characters are left out"),
    Attack(By.BAD_NODE, "write to the terminal by the job's log", "the same, printed by a job that fails",
           log_with_escapes, "the log is shown without them", "the same"),
)  # fmt: skip
