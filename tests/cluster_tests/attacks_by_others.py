"""Attacks by a login node, by a compute node, and by whoever wrote what alice is given."""

from __future__ import annotations

import contextlib
import functools
import json
import re
import shlex
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

from notebook_launcher.core.text import printable
from tests.cluster_tests.attack import (
    NODE,
    SESSIONS,
    WEBSOCKET,
    Act,
    Attack,
    By,
    Scene,
    assert_no_escapes,
    each_once,
    error_of,
    forged_session,
    printed_by,
    status,
)
from tests.cluster_tests.situation import venv
from tests.conftest import PROFILE
from tests.doubles import wait_until

ESCAPES = "\x1b]0;title\x07\x1b[2J\x1b]8;;http://evil.example\u200b\u202e\U000e0041"
KNOWN_HOSTS = "/home/alice/.ssh/known_hosts"
PWNED = "/tmp/pwned /home/*/pwned /pwned /home/*/.notebook-launcher/pwned"


def nothing_was_run(scene: Scene) -> None:
    """None of the commands that were hidden in names has left its mark anywhere."""
    for box in ("laptop", "login", NODE):
        scene.must(box, "root", f"! ls -d {PWNED} 2>/dev/null")


# --- a login node that is not what it seems -----------------------------------------------------------------------

MIDDLE_PORT = 2222


@contextlib.contextmanager
def another_sshd(scene: Scene, box: str, port: int, user: str = "root") -> Iterator[str]:
    """Run an SSH server with a key of its own, and yield the file in which it says who does what."""
    folder = scene.must(box, user, "mktemp -d").strip()
    scene.must(box, user, f"ssh-keygen -q -t ed25519 -N '' -f {folder}/key")
    options = f"-f /dev/null -h {folder}/key -p {port} -o PidFile={folder}/pid -E {folder}/log -o LogLevel=DEBUG1"
    try:
        scene.must(box, user, f"/usr/sbin/sshd {options}; until test -s {folder}/pid; do sleep 0.05; done")
        yield f"{folder}/log"
    finally:
        scene.must(box, "root", f"kill $(cat {folder}/pid); rm -rf {folder}")


def man_in_the_middle(known: bool, engine: str) -> Act:
    """Answer at the login node's name with another host key, where alice knows the right one or none."""

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
    """Let the login node answer to `copy` with other names than it was asked for."""

    def act(scene: Scene) -> str:
        look = "find ~ -path ~/.ssh/'*' -o -path '*/pwned*' -o -maxdepth 1 -name '.bash*' | sort | xargs ls -ld"
        scene.must("login", "alice", "mkdir -p results; echo evil >results/file; cp results/file .ssh/file")
        before = scene.must("laptop", "alice", look)
        # what frames the answer is let through: a pipe would hold its first line back
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
    """Let `squeue` print without end, where the launcher may have 1.5 GB of memory."""
    with scene.program("login", "squeue", "exec yes"):
        done = scene.run("laptop", "alice", "ulimit -v 1500000; launch-notebook list", login=True, timeout=120)
    printed = f"{done.stdout}{done.stderr}"
    assert "MemoryError" not in printed and "Traceback" not in printed and done.returncode >= 0, printed[-2000:]
    assert scene.session.session_id in printed, printed
    return "the list comes without the queue's states"


def odd_answers(scene: Scene) -> str:
    """Let `sbatch` answer with a command in the place of a number."""
    with scene.program("login", "sbatch", "echo '7;$(touch /tmp/pwned)'"):
        code, printed = scene.launcher("--new", "-b", "now+1hour")
    assert code != 0, printed
    nothing_was_run(scene)
    return error_of(printed)


def noisy_login(scene: Scene) -> str:
    """Let frank log in, whose banner, start-up files and errors are full of control characters."""
    session = scene.terminal("list", user="frank")
    session.end()
    assert_no_escapes(printed_by(session))
    return "nothing of it reaches the terminal"


# --- a compute node that is not what it seems ---------------------------------------------------------------------


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
    """Connect to the session once more, and return the error that this ends with."""
    words = ("connect", name or scene.session.session_id, "--engine", "openssh", "--route", route)
    session = scene.terminal(*words)
    code = session.end(timeout=40)
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
    """Let bob's SSH server have the port that the session's had, as after a job that was put back into the queue."""
    with another_sshd(scene, NODE, 62222, "bob"), forged_session(scene, started={"ssh_port": 62222}) as name:
        return connected(scene, "job-sshd", name)


def names_in_started(scene: Scene) -> str:
    """Let the job report names of its node that would be options, or commands."""
    touch = "touch /tmp/pwned"
    bad = [f"-oProxyCommand={touch}", f"$({touch})", f"node1;{touch}", f"node1\n{touch}"]
    with forged_session(scene, started={"node_names": bad}) as name:
        error = connected(scene, "node-ssh", name)
    nothing_was_run(scene)
    return error


def lead_elsewhere(scene: Scene) -> str:
    """Let the job report other places than JupyterLab's, and connect to all of them at once."""
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
    """Let a job that is over say why it ended, in control characters."""
    changes = {"version": 1, "cause": "jupyter-failed", "exit_code": 1, "message": f"a{ESCAPES}b", "ended": ESCAPES}
    shown = ""
    with forged_session(scene, exit=changes) as name:
        # the queue has forgotten this one
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
    """Let a job print control characters, and fail: its log is shown."""
    script = f"printf %s {shlex.quote(ESCAPES)}; echo; echo visible; exit 1"
    with venv("evil", script)(scene.cluster):
        session = scene.terminal("--new", "-n", "1", "-w", NODE, "--venv", "~/evil", "--", "plain")
        assert session.end() != 0
    assert "visible" in session.printed
    assert_no_escapes(printed_by(session))
    return "the log is shown without them"


# --- pages of other sites in alice's browser -----------------------------------------------------------------------


def by_a_page(scene: Scene) -> str:
    """Send what a page of another site can make alice's browser send: with her cookies, and with another origin."""
    url = f"http://127.0.0.1:{scene.port_here}"
    jar = ("-b", "/home/alice/jar", "-c", "/home/alice/jar")
    evil = ("-H", "Origin: http://evil.example")
    try:
        assert status(scene, "laptop", "alice", f"{url}/lab?token={scene.token}", *jar) == "200"
        assert status(scene, "laptop", "alice", f"{url}/api/contents", *jar) == "200", "the cookies are good"
        starts = f"curl -s -X POST -H 'Authorization: token {scene.token}' {url}/api/kernels"
        kernel = json.loads(scene.must("laptop", "alice", starts))["id"]
        channels = f"{url}/api/kernels/{kernel}/channels"
        opens = functools.partial(status, scene, "laptop", "alice", channels, *jar, *WEBSOCKET)
        wait_until(lambda: opens() == "101", 20, "the websocket works")
        seen = {
            "post": status(scene, "laptop", "alice", f"{url}/api/terminals", *jar, *evil, "-X", "POST"),
            "post without origin": status(scene, "laptop", "alice", f"{url}/api/terminals", *jar, "-X", "POST"),
            "websocket": status(scene, "laptop", "alice", channels, *jar, *WEBSOCKET, *evil),
        }
        headers = scene.run("laptop", "alice", shlex.join(["curl", "-si", *jar, *evil, f"{url}/api/contents"])).stdout
        assert "access-control-allow-origin" not in headers.lower(), headers
    finally:
        scene.must("laptop", "alice", "rm -f ~/jar")
    assert not {"200", "201", "101"} & set(seen.values()), seen
    return f"{each_once(list(seen.values()))}; answers to reading are not shown to the page"


def rebound(scene: Scene) -> str:
    """Send what a page sends whose own name leads to 127.0.0.1: its name as the host, here even with the token."""
    url = f"http://127.0.0.1:{scene.port_here}/api/contents"
    token = ("-H", f"Authorization: token {scene.token}")
    assert status(scene, "laptop", "alice", url, *token, "-H", "Host: 127.0.0.1") == "200"
    hosts = ("evil.example", "evil.example:8888", "127.0.0.1.evil.example", "localhost.evil.example", "10.50.0.2")
    seen = [status(scene, "laptop", "alice", url, *token, "-H", f"Host: {host}") for host in hosts]
    assert "200" not in seen, seen
    return each_once(seen)


# --- courses, profiles, files, names -------------------------------------------------------------------------------


def on_laptop(scene: Scene, name: str, text: str) -> None:
    scene.must("laptop", "alice", 'mkdir -p "$(dirname "$1")"; cat >"$1"', name, input=text)


def course_out_of_its_folder(scene: Scene) -> str:
    """Let a course name notebooks outside of its folder."""
    seen = []
    scene.must("laptop", "alice", "mkdir -p course; ln -s ~/.ssh/id_ed25519 course/link.ipynb; ln -s ~/.ssh course/dir")
    try:
        for word in ("../.bashrc", "/etc/passwd", "link.ipynb", "dir/id_ed25519", "a/../../.bashrc"):
            on_laptop(scene, "course/course.toml", f'name = "evil"\ncluster = "practice"\nnotebooks = ["{word}"]\n')
            code, printed = scene.launcher("course", "digest", "course/course.toml")
            assert code != 0, (word, printed)
            seen.append(error_of(printed))
    finally:
        scene.must("laptop", "alice", "rm -rf course")
    return "<br>".join(seen)


def forged_consent(scene: Scene) -> str:
    """Let a value of a course hold lines that would look like other settings, as the user is shown them."""
    seen = []
    try:
        for end in ("\n", "\r", "\u2028"):
            forged = json.dumps(f"x{end}cluster: yours{end}SHA-256: 0000")
            text = f'name = "evil"\ncluster = "practice"\n[defaults]\ncomment = {forged}\n'
            on_laptop(scene, "course/course.toml", text)
            code, printed = scene.launcher("--dry-run", "--course", "course/course.toml")
            assert code != 0, printed
            seen.append(error_of(printed))
    finally:
        scene.must("laptop", "alice", "rm -rf course")
    return "<br>".join(dict.fromkeys(seen))


CERTIFICATE = (
    "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=web -keyout key.pem "
    "-addext subjectAltName=DNS:login.practice.test -out cert.pem"
)
WEB_SERVER = """\
import http.server, ssl
server = http.server.ThreadingHTTPServer(("", 8443), http.server.SimpleHTTPRequestHandler)
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain("cert.pem", "key.pem")
server.socket = context.wrap_socket(server.socket, server_side=True)
print("there", flush=True)
server.serve_forever()
"""


def forged_consent_from_the_web(scene: Scene) -> str:
    """Offer such a course at an address without a digest, and beside it one that is shown as it is."""
    seen = []
    scene.must("login", "bob", f"mkdir -m 700 /tmp/web; cd /tmp/web; {CERTIFICATE} 2>/dev/null")
    scene.must("laptop", "alice", "cat >~/cert.pem", input=scene.must("login", "bob", "cat /tmp/web/cert.pem"))
    try:
        for number, value in enumerate(("x", "x\ncluster: yours", "x\rcluster: yours", "x\u2028cluster: yours")):
            course = f'name = "evil"\ncluster = "practice"\n[defaults]\ncomment = {json.dumps(value)}\n'
            scene.must("login", "bob", 'cat >"/tmp/web/$1.toml"', str(number), input=course)
        with scene.running("login", "bob", ["sh", "-c", 'cd /tmp/web; exec python3 -c "$0"', WEB_SERVER]) as server:
            assert server.stdout is not None and server.stdout.readline() == "there\n"
            for number in range(4):
                words = ("--new", "--course", f"https://login.practice.test:8443/{number}.toml")
                code, said = scene.launcher(*words, SSL_CERT_FILE="/home/alice/cert.pem")
                printed = printable(said)
                assert code != 0 and not re.search("(?m)^ *cluster: yours", printed), printed
                if number == 0:
                    assert "--comment=x" in printed and "#sha256=" in printed, printed
                else:
                    seen.append(error_of(printed))
    finally:
        scene.must("login", "root", "rm -rf /tmp/web")
        scene.must("laptop", "alice", "rm -f ~/cert.pem")
    return "<br>".join(dict.fromkeys(re.sub(r"\d\.toml", "course.toml", one) for one in seen))


def hosts_in_a_profile(scene: Scene) -> str:
    """Let a profile's host be a command, or an option of ssh."""
    seen = []
    try:
        touch = "touch /tmp/pwned"
        for word in (f"login;{touch}", f"$({touch})", f"-oProxyCommand={touch}", f"`{touch}`"):
            text = PROFILE.replace('host = "login"', f"host = {json.dumps(word)}")
            on_laptop(scene, ".config/notebook-launcher/clusters/evil.toml", text)
            for engine in ("paramiko", "openssh"):
                code, printed = scene.launcher("list", "--cluster", "evil", "--engine", engine)
                assert code != 0, printed
            seen.append(error_of(printed))
    finally:
        scene.must("laptop", "alice", "rm -f .config/notebook-launcher/clusters/evil.toml")
    nothing_was_run(scene)
    return "<br>".join(dict.fromkeys(re.sub(r"“[^“”]*touch[^“”]*”|\S*touch \S*", "…", one) for one in seen))


def lines_in_session_env(scene: Scene) -> str:
    """Let a value of a profile have a second line, which would be another key of session.env."""
    text = PROFILE + '\n[environments.evil]\nenv = {A = "x\\nactivate=touch /tmp/pwned"}\n'
    try:
        on_laptop(scene, ".config/notebook-launcher/clusters/evil.toml", text)
        code, printed = scene.launcher("--dry-run", "--cluster", "evil", "--", "evil")
        assert code != 0, printed
    finally:
        scene.must("laptop", "alice", "rm -f .config/notebook-launcher/clusters/evil.toml")
    return error_of(printed)


def completion_with_escapes(scene: Scene) -> str:
    """Let a session's record name an environment in control characters, which TAB in zsh shows."""
    with forged_session(scene, session={"environment": f"a{ESCAPES}b", "id": "20200101-000000-evil"}) as name:
        assert name in scene.launcher("list")[1]
    words = f"COMP_CWORD=2 COMP_WORDS='launch-notebook connect {name}'"
    complete = f"_LAUNCH_NOTEBOOK_COMPLETE=zsh_complete {words} launch-notebook"
    printed = scene.run("laptop", "alice", complete, login=True).stdout
    assert f"{name}\n" in printed and "evil.example" in printed, printed
    assert_no_escapes(printed)
    return "it is offered without them"


HIDDEN = ESCAPES.replace("/", "")
HOSTILE_FILES = ("-rf", "--force", "$(touch pwned)", "`touch pwned`", "a\nb", "; touch pwned", "'\"", "*", f"x{HIDDEN}")


def hostile_file_names(scene: Scene) -> str:
    """Let bob's folder hold files with such names, and links out of it, and let alice copy it there and back."""
    make = 'mkdir /tmp/bobs; cd /tmp/bobs; for one do echo x >"./$one"; done; ln -s /home/alice/.ssh keys'
    scene.must("login", "bob", make, *HOSTILE_FILES)
    try:
        session = scene.terminal("copy", "login:/tmp/bobs", "down")
        assert session.end() == 0, session.printed
        assert_no_escapes(printed_by(session))
        back = scene.terminal("copy", "down", "login:up")
        assert back.end() == 0, back.printed
        there = "cd; if test -e down/keys -o -e up/keys; then exit 9; fi; find down up -type f -print0; true"
        for box in ("laptop", "login"):
            names = {one.rpartition("/")[2] for one in scene.must(box, "alice", there).split("\0")}
            assert names >= set(HOSTILE_FILES), (box, names)
    finally:
        for box in ("laptop", "login"):
            scene.must(box, "alice", "rm -rf ~/down ~/up")
        scene.must("login", "root", "rm -rf /tmp/bobs")
    nothing_was_run(scene)
    return "copied as they are named; the folder that a link leads to is not"


def hostile_names_of_jobs(scene: Scene) -> str:
    """Let the job's name, its comment and the image be commands, in a job that runs."""
    bad = "$(touch pwned)`touch pwned`; touch pwned #'\"\\"
    scene.must("login", "alice", 'echo no image >"$1"', f"{bad}.sif")
    try:
        flags = ("-J", bad, f"--comment={bad}", "-n", "1", "-w", NODE)
        session = scene.terminal("--new", *flags, "--", f"/home/alice/{bad}.sif")
        assert session.end() != 0
        shown = scene.must("login", "alice", f"sacct -j {session.job_id} -X -n -P -o jobname").strip()
        assert shown.startswith("$(touch pwned)`touch pwned`; "), shown
    finally:
        scene.must("login", "alice", 'rm -f "$1"', f"{bad}.sif")
    nothing_was_run(scene)
    return re.sub(r"/home/alice/\$.*?\.sif", "…", error_of(session.printed))


def hostile_notebook_name(scene: Scene) -> str:
    """Run a notebook whose name is an option and a command; the environment has no Jupyter, and the job says so."""
    name = "-h $(touch ~/pwned); touch pwned 'x.ipynb"
    cell = {"cell_type": "code", "source": "1", "id": "a", "metadata": {}, "outputs": [], "execution_count": None}
    text = {"cells": [cell], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}
    on_laptop(scene, f"./{name}", json.dumps(text))
    try:
        session = scene.terminal("run", f"./{name}", "-n", "1", "-w", NODE, "--", "plain")
        session.end()
    finally:
        scene.must("laptop", "alice", 'rm -f "./$1"; rm -rf ./-h*', name)
    nothing_was_run(scene)
    return error_of(session.printed)


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

CONTENT = (
    Attack(By.CONTENT, "use JupyterLab from a page of another site", "with alice's cookies and the page's `Origin`: "
           "open a terminal, a kernel's websocket, read files",
           by_a_page, "“40\\d”(, “40\\d”)*; answers to reading are not shown to the page",
           "JupyterLab's checks of the origin and of `_xsrf`, whatever alice's own configuration allows"),
    Attack(By.CONTENT, "use JupyterLab from a page whose own name leads to 127.0.0.1",
           "requests with `Host: evil.example` and the like, here even with the token",
           rebound, "“403”", "JupyterLab answers to 127.0.0.1 and localhost alone"),
    Attack(By.CONTENT, "read other files of alice's by a course",
           "notebooks `../.bashrc`, `/etc/passwd`, and links out",
           course_out_of_its_folder, "(.*?(does not lie beside|leads out of)){5}.*",
           "names and links that lead out of the course's folder are refused"),
    Attack(By.CONTENT, "forge what alice agrees to", "a flag of a course with line ends, as in `x\\ncluster: yours`",
           forged_consent, ".*(more than one line|cannot be seen).*", "a value must be one line of visible characters"),
    Attack(By.CONTENT, "the same, from a web server", "the same course at an address without a digest",
           forged_consent_from_the_web, ".*(more than one line|cannot be seen).*", "the same, before anybody is asked"),
    Attack(By.CONTENT, "have a command run by a profile's host",
           "`login;touch /tmp/pwned`, `$(…)`, `-oProxyCommand=…`",
           hosts_in_a_profile, ".*is not the name of a host.*",
           "a host's name has no characters that a shell would interpret"),
    Attack(By.CONTENT, "add a setting to the job",
           "an environment variable in a profile, with a second line `activate=…`",
           lines_in_session_env, ".*has more than one line.*", "values with more than one line are refused"),
    Attack(By.CONTENT, "write to the terminal by TAB", "control characters in the record of a session, `connect` TAB",
           completion_with_escapes, "it is offered without them", "control characters are left out"),
    Attack(By.CONTENT, "have a command run by names of files",
           "`-rf`, `--force`, `$(touch pwned)`, line ends, quotes, `*`, control characters; links out; copied and back",
           hostile_file_names, "copied as they are named; the folder that a link leads to is not",
           "names never reach a shell unquoted, and no link to a folder is followed"),
    Attack(By.CONTENT, "have a command run by names of jobs and images",
           "`$(touch pwned)` and the like, in a job that runs",
           hostile_names_of_jobs, ".*could not run bash in ….*", "the job script reads `session.env` as data"),
    Attack(By.CONTENT, "have a command run by the name of a notebook",
           "`run './-h $(touch ~/pwned); …ipynb'`, in an environment without Jupyter",
           hostile_notebook_name, ".*There is no Python that can run notebooks.*", "the same"),
)  # fmt: skip
