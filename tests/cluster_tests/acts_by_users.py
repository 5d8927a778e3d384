"""What bob does in his attacks: he has an account on the laptop, on the login node and on the compute node."""

from __future__ import annotations

import contextlib
import json
import re
import shlex
import subprocess
import time
from collections.abc import Callable

from tests.cluster_tests.attack import (
    NODE,
    SESSIONS,
    WEBSOCKET,
    Act,
    Scene,
    complaint,
    each_once,
    error_of,
    fill,
    looked_for,
    said,
    status,
)
from tests.doubles import wait_until

WRONG = "d3Jvbmd3cm9uZ3dyb25nd3Jvbmd3cm9uZ3dyb25nd3Jv"


# --- JupyterLab's port ---------------------------------------------------------------------------------------------


def knocked(scene: Scene, box: str, port: int) -> str:
    """Let bob send requests to JupyterLab through a port of a box, also with alice's own token and cookies."""
    url = f"http://127.0.0.1:{port}"
    host = ("-H", f"Host: 127.0.0.1:{scene.port_here}")
    token = ("-H", f"Authorization: token {scene.token}")
    cookies = (*host, *stolen_cookies(scene))
    opens = (f"{url}/api/terminals", "-X", "POST")
    for good in (token, cookies):
        assert status(scene, box, "alice", *opens, *good) == "200", "these open a terminal for alice"
    wrong = ("-H", f"Authorization: token {WRONG}")
    seen = {
        status(scene, box, "bob", f"{url}/api/contents"),
        status(scene, box, "bob", f"{url}/api/contents?token={WRONG}"),
        status(scene, box, "bob", f"{url}/terminals/websocket/1", *WEBSOCKET, "-H", f"Cookie: username={WRONG}"),
        status(scene, box, "bob", f"{url}/terminals/websocket/1", *WEBSOCKET, *token),
        *(status(scene, box, "bob", *opens, *way) for way in (wrong, token, cookies)),
    }
    assert status(scene, box, "alice", f"{url}/api/contents") == "403", "alice herself needs the token"
    return each_once(sorted(seen))


def stolen_cookies(scene: Scene) -> tuple[str, ...]:
    """Return the cookie headers of alice's browser, which sends them to every port of 127.0.0.1."""
    visit = f"curl -s -o /dev/null -D - 'http://127.0.0.1:{scene.port_here}/lab?token={scene.token}'"
    found = dict(re.findall(r"(?mi)^set-cookie: ([^=]+)=([^;]*)", scene.must("laptop", "alice", visit)))
    jar = "; ".join(f"{name}={value}" for name, value in found.items())
    return ("-H", f"Cookie: {jar}", "-H", f"X-XSRFToken: {found['_xsrf']}")


def waited_behind_a_forwarded_port(scene: Scene) -> str:
    """Let bob's program occupy the port of the node that alice forwards."""
    with scene.running(NODE, "bob", ["python3", "-m", "http.server", "6006", "--bind", "127.0.0.1"]):
        wait_until(lambda: status(scene, NODE, "bob", "http://127.0.0.1:6006") == "200", 30, "bob's program listens")
        scene.session.send("f 6006\n")
        return f"“{scene.session.expect(r'Port 6006 of node1 belongs to [^.]*').group(0)}”"


def knocked_from_elsewhere(box: str, address: str, port: str) -> Act:
    """Let bob connect from another box."""

    def act(scene: Scene) -> str:
        return status(scene, box, "bob", f"http://{address}:{fill(scene, port)}/")

    return act


# --- taking a port -------------------------------------------------------------------------------------------------

BIND = """\
import socket, sys
for family, address in json.loads(sys.argv[2]):
    for option in (None, socket.SO_REUSEADDR, socket.SO_REUSEPORT):
        one = socket.socket(getattr(socket, family))
        try:
            if option: one.setsockopt(socket.SOL_SOCKET, option, 1)
            one.bind((address, int(sys.argv[1])))
            one.listen()
        except OSError as error:
            print(error.strerror)
        else:
            sys.exit(f"{address} was bound")
"""


def bound(box: str, port: str, *addresses: tuple[str, str]) -> Act:
    """Let bob try to bind a port that is in use, with each socket option that lets programs share a port."""

    def act(scene: Scene) -> str:
        words = ("python3", "-c", f"import json\n{BIND}", fill(scene, port), json.dumps(addresses))
        free = scene.run(box, "bob", shlex.join([*words[:3], "60123", words[4]]))
        assert "was bound" in free.stderr, "a free port can be bound"
        done = scene.run(box, "bob", shlex.join(words))
        assert done.returncode == 0, said(done)
        return each_once(done.stdout.splitlines())

    return act


# --- the session's SSH server --------------------------------------------------------------------------------------

SSH = (
    "ssh -F none -o BatchMode=yes -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null -o ConnectTimeout=5 "
    "-o LogLevel=ERROR -p SSHPORT"
)


def without_the_key(scene: Scene) -> str:
    """Let bob log in with his own key, and alice with her own, which is not the session's."""
    tries = [scene.run("login", user, fill(scene, f"{SSH} alice@{NODE} true")) for user in ("bob", "alice")]
    assert all("Permission denied" in done.stderr for done in tries), tries
    scene.must("login", "alice", f"ssh -F none -o BatchMode=yes -o StrictHostKeyChecking=no {NODE} true")
    return each_once([complaint(done) for done in tries])


def with_a_stolen_key(scene: Scene) -> str:
    """Give bob the session's key, which may only forward to JupyterLab, and let him try what else a key can allow."""
    key = scene.must("laptop", "root", f"cat {scene.socket_folder}/key")
    scene.must("login", "bob", "umask 077; cat >/tmp/stolen", input=key)
    ssh = fill(scene, f"{SSH} -i /tmp/stolen -o IdentitiesOnly=yes")
    try:
        port = fill(scene, "127.0.0.1:PORT")
        asks = f"{ssh} -N -L 60321:{port} alice@{NODE}"
        with scene.running("login", "bob", shlex.split(asks)):
            forwarded = "http://127.0.0.1:60321/api/contents"
            wait_until(lambda: status(scene, "login", "bob", forwarded) == "403", 30, "what the key is for")
        tries = {
            "a command": f"{ssh} alice@{NODE} id",
            "a shell": f"{ssh} -tt alice@{NODE}",
            "files": f"sftp -F none -o BatchMode=yes -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null "
            f"-P {scene.ssh_port} -i /tmp/stolen -b /dev/null alice@{NODE}",
            "another host": f"timeout 30 {ssh} -W login:22 alice@{NODE}",
            "another address of the node": f"timeout 30 {ssh} -W {NODE}:22 alice@{NODE}",
            "a socket": f"timeout 30 {ssh} -N -o ExitOnForwardFailure=yes -R /tmp/bobs.sock:127.0.0.1:22 alice@{NODE}",
            "a remote port": f"timeout 30 {ssh} -N -o ExitOnForwardFailure=yes -R 60999:127.0.0.1:22 alice@{NODE}",
        }
        for what, script in tries.items():
            done = scene.run("login", "bob", f"{script} </dev/null")
            assert done.returncode not in (0, 124), f"{what} was given: {said(done)}"
            assert "uid=" not in done.stdout and "SSH-2.0" not in done.stdout, said(done)
    finally:
        scene.must("login", "bob", "rm -f /tmp/stolen")
    return f"all refused: {', '.join(tries)}"


FLOOD = """\
import socket, sys, time
held = [socket.create_connection((sys.argv[1], int(sys.argv[2])), 5) for _ in range(150)]
print("flooded", flush=True)
time.sleep(60)
"""


def flooded(scene: Scene) -> str:
    """Let bob open 150 connections to the session's SSH server and keep them open; the tunnel still works."""
    argv = ["python3", "-c", FLOOD, NODE, str(scene.ssh_port)]
    with scene.running("login", "bob", argv) as flood:
        assert flood.stdout is not None and flood.stdout.readline() == "flooded\n"
        token = ("-H", f"Authorization: token {scene.token}")
        for _ in range(3):
            assert status(scene, "laptop", "alice", f"http://127.0.0.1:{scene.port_here}/api/contents", *token) == "200"
    return "the open tunnel works as before"


# --- processes -----------------------------------------------------------------------------------------------------

HOGS = """\
import ctypes, sys, time
ctypes.CDLL(None).prctl(15, sys.argv[1].encode())
kept = b"x" * (700 << 20)
print("there", flush=True)
time.sleep(300)
"""


def counted_as_hers(scene: Scene) -> str:
    """Give bob's process of 700 MiB a name that makes it look like a child of alice's job in /proc/PID/stat."""
    name = f"a) S 1 1 {scene.process(NODE, 'slurm_script')} "

    def rows() -> list[str]:
        return scene.must("login", "root", f"cat {scene.directory}/usage.csv").splitlines()

    with scene.running(NODE, "bob", ["python3", "-c", HOGS, name]) as hog:
        assert hog.stdout is not None and hog.stdout.readline() == "there\n"
        before = len(rows())
        wait_until(lambda: len(rows()) > before + 1, 60, "two more samples")
    header, *_, last = rows()
    used = dict(zip(header.split(","), last.split(","), strict=True))
    assert 20 < int(used["memory_mib"]) < 600, used
    return "bob's 700 MiB are not in alice's usage"


# --- kernels -------------------------------------------------------------------------------------------------------

PYTHON = "/sw/jupyterlab/bin/python3"

# Subscribes to each TCP port on which a user listens, and prints everything received within a minute.
LISTENS = """\
import pathlib, sys, time, zmq
socket = zmq.Context().socket(zmq.SUB)
socket.subscribe(b"")
for row in pathlib.Path("/proc/net/tcp").read_text().splitlines()[1:]:
    fields = row.split()
    if fields[3] == "0A" and fields[7] == sys.argv[1]:
        socket.connect("tcp://127.0.0.1:%d" % int(fields[1].partition(":")[2], 16))
print("listening", flush=True)
end = time.monotonic() + 60
while time.monotonic() < end:
    if socket.poll(100):
        print(socket.recv_multipart(), flush=True)
"""

# Runs a cell in the kernel whose connection file is given.
CELL = """\
import sys
from jupyter_client import BlockingKernelClient
client = BlockingKernelClient()
client.load_connection_file(sys.argv[1])
client.start_channels()
client.wait_for_ready(timeout=60)
client.execute_interactive("print('what ' + 'alice computes')", timeout=60)
"""


def kernels_overheard(scene: Scene) -> str:
    """Let bob subscribe to all of alice's ports while one of her cells prints."""
    starts = f"curl -s -X POST -H 'Authorization: token {scene.token}' http://127.0.0.1:{scene.port}/api/kernels"
    kernel = json.loads(scene.must(NODE, "alice", starts))["id"]
    record = f"{scene.directory}/runtime/kernel-{kernel}.json"
    with scene.running(NODE, "bob", [PYTHON, "-c", LISTENS, "2001"]) as spy:
        assert spy.stdout is not None and spy.stdout.readline() == "listening\n"
        printed = scene.must(NODE, "alice", shlex.join([PYTHON, "-c", CELL, record]))
        assert "what alice computes" in printed, printed
        time.sleep(0.5)
        spy.kill()
        heard = spy.stdout.read()
    assert heard == "", heard
    folder = str(json.loads(scene.must(NODE, "alice", f"cat {record}"))["ip"]).rpartition("/")[0]
    return f"nothing is heard; the sockets: {looked_for(NODE, {f'ls {folder}': '(?m)-1$'})(scene)}"


# --- leftovers of launch-notebook on the laptop --------------------------------------------------------------------

CACHE = "/home/alice/.cache/notebook-launcher"


def page_of_a_killed_launcher(scene: Scene) -> str:
    """Kill a launcher after it has written the page that takes the token to the browser, and let bob look for the page.

    The next launcher removes the page.
    """
    opens = ["launch-notebook", "open", scene.session.session_id]
    argv = scene.cluster.argv("laptop", "alice", opens, env={"BROWSER": "/bin/true"})
    found = f"cat {CACHE}/launch-notebook-*.html"
    with contextlib.ExitStack() as stack:
        program = stack.enter_context(
            subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        )
        wait_until(lambda: scene.token in scene.run("laptop", "alice", found).stdout, 60, "the page is there")
        scene.must("laptop", "root", "pkill -KILL -f 'launch-notebook open'")
        program.wait()
    assert scene.token in scene.run("laptop", "alice", found).stdout, "it is left"
    done = scene.run("laptop", "bob", f"{found} || ls {CACHE}")
    assert done.returncode != 0 and scene.token not in done.stdout
    scene.must("laptop", "alice", f"touch -d '-5 minutes' {CACHE}/launch-notebook-*.html")
    scene.launcher(*opens[1:], BROWSER="/bin/false")
    scene.must("laptop", "alice", f"! ls {CACHE}/launch-notebook-*.html")
    return f"“{complaint(done)}”; the next `--open` removes it"


PORT_TAKER = """\
import http.server, sys
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        print(self.path, flush=True)
        self.send_response(200)
        self.end_headers()
http.server.HTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
"""


def heard_by_bob(scene: Scene, box: str, port: int, meanwhile: Callable[[], object]) -> str:
    """Let bob's program take a port as soon as it is free; return everything that is sent to it."""
    listens = f"ss -Htnl 'sport = {port}' | grep -q ."
    wait_until(lambda: scene.run(box, "bob", listens).returncode != 0, 30, "the port is free")
    with scene.running(box, "bob", ["python3", "-c", PORT_TAKER, str(port)]) as taker:
        wait_until(lambda: scene.run(box, "bob", listens).returncode == 0, 30, "bob listens")
        meanwhile()
        taker.kill()
        assert taker.stdout is not None
        return taker.stdout.read()


def port_after_detaching(scene: Scene) -> str:
    """Detach, let bob take the port, and connect again.

    This has to be the last attack on the laptop: it replaces alice's launcher and its port.
    """
    port = scene.port_here
    scene.session.send("d\n")
    assert scene.session.end() == 0

    def connect_again() -> None:
        scene.session = scene.terminal("connect", scene.session.session_id)
        scene.session.ready(started_here=False)

    heard = heard_by_bob(scene, "laptop", port, connect_again)
    assert scene.token not in heard, heard
    assert scene.port_here != port
    warned = re.findall(r"(Port \d+ of this machine, which led to this session before, .*?)\.", scene.session.printed)
    return f"another port, and a warning: “{re.sub(r'[0-9]+', '8888', warned[0])}”" if warned else "no warning"


def port_of_the_run_before(scene: Scene) -> str:
    """Requeue a job, let bob take the port of its JupyterLab, and send a request from the tab that was left open."""
    node = "node2"
    session = scene.terminal("--new", "-n", "1", "-w", node, "--", "module")
    session.ready()
    port = json.loads(scene.must("login", "root", f"cat {SESSIONS}/{session.session_id}/endpoint.json"))["port"]
    here = f"http://127.0.0.1:{session.url.split(':')[2].partition('/')[0]}/lab?token={session.token}"

    def answers() -> bool:
        return status(scene, "laptop", "alice", here) == "200"

    assert answers()
    scene.must("login", "root", f"scontrol requeue {session.job_id}")
    heard = heard_by_bob(scene, node, port, lambda: wait_until(answers, 60, "the next run answers the tab"))
    scene.must("login", "root", f"scancel {session.job_id}")
    session.end()
    assert not heard, heard
    return "the next run answers the tab, and bob receives nothing"


def digest_of_another_image(scene: Scene) -> str:
    """Let bob save a wrong digest for alice's image in a folder that several users share for their sessions."""
    top, name = "/tmp/all", scene.session.session_id
    try:
        scene.must(NODE, "root", f"mkdir -m 1777 {top}")
        scene.must(NODE, "alice", f"head -c 4096 /dev/urandom >{top}/i.sif; mkdir {top}/{name}")
        scene.must(NODE, "alice", f"echo container={top}/i.sif >{top}/{name}/session.env")
        identity = scene.must(NODE, "bob", f"stat -c %i-%s-%Y-%Z {top}/i.sif").strip()
        note = f"mkdir -m 755 {top}/image-digests; echo sha256:{'6' * 64} >{top}/image-digests/{identity}"
        scene.must(NODE, "bob", note)
        scene.must(NODE, "alice", f"bash {scene.directory}/image.sh note {top}/{name}")
        found = json.loads(scene.must(NODE, "alice", f"cat {top}/{name}/image.json"))
        assert found["digest"].split(":")[1] == scene.must(NODE, "alice", f"sha256sum <{top}/i.sif").split()[0]
        return str(found["told_by"]).replace("this session", "bob's file is not read; the digest is calculated")
    finally:
        scene.must(NODE, "root", f"rm -rf {top}")


def closed_to_others(folders: str) -> str:
    """Return a command that lists alice's files below these folders that other users may read, write or execute."""
    return f"find {folders} -xdev -user alice ! -type l -perm /077 ! -path '*/ask' 2>/dev/null"


def left_in_temporary_folders(box: str) -> Act:
    """Let bob look in the folders for temporary files for files of alice that he may read and folders he may enter."""
    look = "find /tmp /var/tmp /dev/shm /run -user alice"

    def act(scene: Scene) -> str:
        scene.must(box, "alice", "rm -rf /tmp/torchinductor_alice")  # left by PyTorch in earlier tests
        scene.must(box, "alice", "echo x >/tmp/alices; chmod 644 /tmp/alices")
        one = f"{look} -type f -readable 2>/dev/null; {look} -type d -executable 2>/dev/null; true"
        try:
            found = scene.run(box, "bob", one).stdout.split()
            assert found == ["/tmp/alices"], found
        finally:
            scene.must(box, "alice", "rm -f /tmp/alices")
        assert scene.run(box, "bob", one).stdout == ""
        return "nothing that bob may read or enter"

    return act


def in_no_list(box: str, *lists: str) -> Act:
    """Let bob read lists that are open to everybody: they contain the session's name, but no token."""

    def act(scene: Scene) -> str:
        for one in lists:
            printed = scene.must(box, "bob", fill(scene, one))
            assert scene.session.session_id in printed, f"the session is not in it: {one}"
            assert scene.token not in printed, f"the token is in it: {one}"
        return "the session is there, the token is not"

    return act


def queued_under_her_name(scene: Scene) -> str:
    """Let bob queue a job with the name of alice's session; her commands must still find hers."""
    name = scene.session.session_id
    job = scene.must("login", "bob", f"sbatch --parsable -H -J {name} -o /dev/null --wrap true").strip()
    try:
        code, printed = scene.launcher("status", name)
        assert code == 0 and f"Session {name} runs on" in printed, printed
        assert f"job {job}," not in printed, printed
    finally:
        scene.must("login", "bob", f"scancel {job}")
    return "alice's commands find her own job"


def shared_session_root(scene: Scene) -> str:
    """Let alice launch with a session_root in a folder in which bob may rename entries: the launcher refuses."""
    profile = "/home/alice/.config/notebook-launcher/clusters"
    scene.must("login", "root", "mkdir -m 777 -p /home/shared")
    try:
        root = "echo 'session_root = \"/home/shared/sessions\"'"
        scene.must("laptop", "alice", f"({root}; cat {profile}/practice.toml) >{profile}/shared.toml")
        code, printed = scene.launcher("--new", "--cluster", "shared", "-b", "now+1hour")
        assert code != 0, printed
        scene.must("login", "root", 'test -z "$(find /home/shared -name submit.sh)"')
    finally:
        scene.must("laptop", "alice", f"rm -f {profile}/shared.toml")
        scene.must("login", "root", "rm -rf /home/shared")
    return error_of(printed)


def swapped_before_an_upload(scene: Scene) -> str:
    """Let bob put links to alice's files into a shared folder, under the names that she is about to copy there."""
    scene.must("login", "root", "mkdir -m 777 /tmp/shared")
    scene.must("login", "alice", "echo hers >~/precious; mkdir -p ~/inside")
    try:
        scene.must("laptop", "alice", "mkdir -p up/inner; echo new >up/inner/a; echo new >up.txt")
        links = "ln -s /home/alice/inside up; ln -s /home/alice/precious up.txt"
        scene.must("login", "bob", f"cd /tmp/shared; {links}")
        _, folder = scene.launcher("copy", "up", "login:/tmp/shared")
        code, _ = scene.launcher("copy", "--force", "up.txt", "login:/tmp/shared")
        assert scene.must("login", "alice", "cat ~/precious; ls ~/inside") == "hers\n"
        kept = scene.must("login", "root", "test -L /tmp/shared/up.txt && echo kept || echo replaced").strip()
        assert (code, kept) == (0, "replaced")
    finally:
        scene.must("laptop", "alice", "rm -rf up up.txt")
        scene.must("login", "alice", "rm -rf ~/precious ~/inside")
        scene.must("login", "root", "rm -rf /tmp/shared")
    return f"the folder: {error_of(folder)}; the file: the link itself is replaced"


# Replaces each folder and each file that appears in the working directory by a link, some at once, some a bit later.
SWAPS = """\
import itertools, os, time
due, delays = {}, itertools.cycle([0.25, 0, 0.05, 0.15])
print("there", flush=True)
while True:
    for one in os.scandir("."):
        try:
            # A folder of hers cannot be moved into another one, so it stays here under another name.
            if one.is_symlink() or one.name.startswith("away-"):
                continue
            if one.name not in due:
                due[one.name] = time.monotonic() + next(delays)
            if due[one.name] <= time.monotonic():
                leads = "/home/alice/private" if one.is_dir(follow_symlinks=False) else "/home/alice/private/secret"
                os.rename(one.name, f"away-{one.name}")
                os.symlink(leads, one.name)
                print(one.name, flush=True)
        except OSError:
            pass
"""


def swapped_during_an_upload(scene: Scene) -> str:
    """Let bob replace everything that appears in a shared folder while alice copies into it, several times."""
    scene.must("login", "root", "mkdir -m 777 /tmp/shared")
    scene.must("login", "alice", "mkdir -m 700 ~/private; umask 077; echo hers >~/private/secret")
    look = "cd ~/private; stat -c '%a %n' . *; cat secret"
    before = scene.must("login", "alice", look)
    names = ["up0", "file0", "up1", "file1", "up2", "up3"]
    make = "for one; do case $one in up*) mkdir -p $one/inner; echo new >$one/inner/a;; *) echo new >$one;; esac; done"
    try:
        scene.must("laptop", "alice", make, *names)
        with scene.running("login", "bob", ["sh", "-c", 'cd /tmp/shared; exec python3 -c "$0"', SWAPS]) as swapper:
            assert swapper.stdout is not None and swapper.stdout.readline() == "there\n"
            came = [scene.launcher("copy", name, "login:/tmp/shared") for name in names]
            swapper.kill()
            swapped = swapper.stdout.read().split()
        assert any(one.startswith("up") for one in swapped) and any("file" in one for one in swapped), (swapped, came)
        assert scene.must("login", "alice", look) == before
    finally:
        scene.must("laptop", "alice", 'rm -rf "$@"', *names)
        scene.must("login", "root", "rm -rf /tmp/shared ~alice/private")
    return "alice's own folder and file keep their modes, and nothing is written there"
