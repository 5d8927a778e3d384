"""Attacks by the author of a page, a course, a profile, a file or a name."""

from __future__ import annotations

import functools
import json
import re
import shlex

from notebook_launcher.core.text import printable
from tests.cluster_tests.attack import (
    ESCAPES,
    NODE,
    WEBSOCKET,
    Attack,
    By,
    Scene,
    assert_no_escapes,
    each_once,
    error_of,
    forged_session,
    nothing_was_run,
    printed_by,
    status,
)
from tests.conftest import PROFILE
from tests.doubles import wait_until

# --- pages of other sites in alice's browser -----------------------------------------------------------------------


def by_a_page(scene: Scene) -> str:
    """Send the requests that a page of another site can trigger in alice's browser: with her cookies and its origin."""
    url = f"http://127.0.0.1:{scene.port_here}"
    jar = ("-b", "/home/alice/jar", "-c", "/home/alice/jar")
    evil = ("-H", "Origin: http://evil.example")
    try:
        assert status(scene, "laptop", "alice", f"{url}/lab?token={scene.token}", *jar) == "200"
        assert status(scene, "laptop", "alice", f"{url}/api/contents", *jar) == "200", "the cookies are good"
        starts = f"curl -s -X POST -H 'Authorization: token {scene.token}' {url}/api/kernels"
        kernel = json.loads(scene.must("laptop", "alice", starts))["id"]
        channels = f"{url}/api/kernels/{kernel}/channels"
        opens = functools.partial(status, scene, "laptop", "alice", channels, *jar, *WEBSOCKET, "-m", "2")
        wait_until(lambda: opens() == "101", 60, "the websocket works")
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
    """Send what a page sends whose own host name resolves to 127.0.0.1 (DNS rebinding), here even with the token."""
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
    """Let a course list notebooks outside its folder."""
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
    """Let a value of a course contain line ends, so that what follows would be shown to alice as another setting."""
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
    """Offer such courses at URLs without a digest, and also a harmless one, whose setting is shown as it is."""
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
    """Let the host in a profile be a shell command or an option of ssh."""
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
    """Let a value of a profile have a second line, which session.env would contain as another key."""
    text = PROFILE + '\n[environments.evil]\nenv = {A = "x\\nactivate=touch /tmp/pwned"}\n'
    try:
        on_laptop(scene, ".config/notebook-launcher/clusters/evil.toml", text)
        code, printed = scene.launcher("--dry-run", "--cluster", "evil", "--", "evil")
        assert code != 0, printed
    finally:
        scene.must("laptop", "alice", "rm -f .config/notebook-launcher/clusters/evil.toml")
    return error_of(printed)


def completion_with_escapes(scene: Scene) -> str:
    """Let a session's record contain control characters in the environment's name, which zsh's completion shows."""
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
    """Let alice copy bob's folder, with hostile file names and a link to her keys, to the laptop and back."""
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
    """Run a job whose name, comment and image contain commands."""
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
    """Run a notebook whose name is an option and contains commands.

    The environment has no Jupyter, so the job ends soon, with an error that says so.
    """
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
           course_out_of_its_folder, "(.*?(course file's folder or below|leads out of)){5}.*",
           "names and links that lead out of the course's folder are refused"),
    Attack(By.CONTENT, "forge what alice agrees to", "a flag of a course with line ends, as in `x\\ncluster: yours`",
           forged_consent, ".*(more than one line|invisible).*", "a value must be one line of visible characters"),
    Attack(By.CONTENT, "the same, from a web server", "the same course at an address without a digest",
           forged_consent_from_the_web, ".*(more than one line|invisible).*", "the same, before anybody is asked"),
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
