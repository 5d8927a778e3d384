"""Which cookies a browser sends to a program of another user on the compute node; see also attacks_by_users.py."""

from __future__ import annotations

import contextlib
import json
import subprocess
from collections.abc import Callable, Iterator

from playwright.sync_api import Browser

from tests.cluster_tests import in_box
from tests.conftest import Session, assert_nothing_left, fetch
from tests.doubles import wait_until
from tests.practice_cluster import PracticeCluster

Start = Callable[..., Session]
LAUNCH = in_box.launch

# A web server whose page contains the cookies that the browser has sent.
SPY = """\
import http.server, sys
class Spy(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"cookies: " + self.headers.get("Cookie", "").encode())
http.server.ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Spy).serve_forever()
"""

# Requests a terminal of a JupyterLab with some headers, and prints the HTTP status, or 0 if there is no answer.
OPEN_A_TERMINAL = """\
import http.client, json, sys
port, headers = json.load(sys.stdin)
connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
try:
    connection.request("POST", "/api/terminals", b"{}", headers)
    print(connection.getresponse().status)
except (OSError, http.client.HTTPException) as error:
    print(0)
"""


@contextlib.contextmanager
def bobs_program(cluster: PracticeCluster, box: str, port: int) -> Iterator[None]:
    argv = cluster.argv(box, "bob", ["python3", "-c", SPY, str(port)])
    with subprocess.Popen(argv, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as spy:
        try:
            wait_until(lambda: fetch(cluster, box, f"http://127.0.0.1:{port}/", user="bob")[0] == 200, 30, "it listens")
            yield
        finally:
            spy.terminate()


def opens_a_terminal(cluster: PracticeCluster, box: str, user: str, port: int, headers: dict[str, str]) -> int:
    """Request a terminal of JupyterLab at a port of a box; return the HTTP status, or 0 if there is no answer."""
    asks, given = ["python3", "-c", OPEN_A_TERMINAL], json.dumps([port, headers])
    return int(cluster.run(box, user, asks, login=False, input=given, check=True).stdout)


def port_on_the_node(cluster: PracticeCluster, session: Session) -> int:
    path = f".notebook-launcher/sessions/{session.session_id}/endpoint.json"
    return int(json.loads(cluster.run("login", "alice", ["cat", path]).stdout)["port"])


def test_another_users_port_gets_no_cookie(cluster: PracticeCluster, start: Start, browser: Browser) -> None:
    """Under JupyterLab's own host name, bob's program gets cookies with which a terminal of alice's can be opened.

    The launcher therefore gives forwarded ports a host name of their own.
    """
    with bobs_program(cluster, "gpu1", 6006):
        session = start("-n", "1", "-w", "gpu1", "--forward", "6006", columns=200)
        page = browser.new_page(java_script_enabled=False)  # cookies come with the page itself
        page.goto(session.ready())
        session.expect("Port 6006 of gpu1 belongs to another user's program")
        session.send("f 6006\n")
        page.goto(session.expect(r"Port 6006 of gpu1: (http://\S+:6006)").group(1))
        assert page.inner_text("body").strip() == "cookies:"

        # if alice types the address with JupyterLab's host name, bob does get them
        page.goto("http://127.0.0.1:6006/")
        assert "username-127-0-0-1-" in page.inner_text("body"), "the attack is what it was"
        cookies = {cookie["name"]: cookie["value"] for cookie in page.context.cookies(session.url)}
        stolen = {
            "Cookie": "; ".join(f"{name}={value}" for name, value in cookies.items()),
            "X-XSRFToken": cookies["_xsrf"],
            "Host": session.url.split("/")[2],
        }
        port = port_on_the_node(cluster, session)
        assert opens_a_terminal(cluster, "gpu1", "alice", port, stolen) == 200, "these cookies are good"
        assert opens_a_terminal(cluster, "gpu1", "bob", port, stolen) == 0
    session.send("\n")
    assert session.end() == 0
    logs = in_box.launcher(cluster, "login", "alice", "logs", "-n", "0", session.session_id).stdout
    assert "a program of root or of another user was turned away" in logs
    assert_nothing_left(cluster)
