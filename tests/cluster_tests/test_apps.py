"""Programs beside JupyterLab (``--app``): alice reaches them through the tunnel, and bob does not."""

from __future__ import annotations

import json
from collections.abc import Callable

from tests.cluster_tests import in_box
from tests.cluster_tests.situation import profile_of
from tests.conftest import Session, assert_nothing_left, fetch
from tests.doubles import wait_until
from tests.practice_cluster import PracticeCluster

LAUNCH = in_box.launch

PROFILE = """\
base = "practice"
[apps.small]
title = "Small"
command = ["python3", "/home/alice/small.py", "{socket}"]
[apps.brief]
title = "Brief"
command = ["sh", "-c", "sleep 8; exit 127", "{socket}"]
"""

SMALL = """\
import http.server, socketserver, sys
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"it is me")
    def address_string(self):
        return ""
socketserver.UnixStreamServer(sys.argv[1], Handler).serve_forever()
"""


def opened(cluster: PracticeCluster, box: str, user: str, url: str, *options: str) -> str:
    """Return what a user of a box gets from an address, with cookies and redirections, as in a browser."""
    return cluster.run(box, user, ["curl", "-sLm", "10", "-b", "", *options, url], login=False).stdout


def test_a_program_of_the_profile(cluster: PracticeCluster, start: Callable[..., Session]) -> None:
    cluster.run("login", "alice", ["sh", "-c", "cat >small.py"], input=SMALL, check=True)
    with profile_of("alice", "apps", PROFILE)(cluster):
        session = start("-t", "10", "--cluster", "apps", "--app", "small", "--app", "brief")
        session.ready()
        url = session.expect(r"Small: (http://port-\d+\.localhost:\d+/\?nl-token=[\w-]+)").group(1)
        session.read_along()
        wait_until(lambda: opened(cluster, "laptop", "alice", url) == "it is me", 30, "it answers")
        assert "Open it again" in opened(cluster, "laptop", "alice", url.partition("?")[0])
        assert opened(cluster, "laptop", "bob", url) == ""

        status, text = fetch(
            cluster, "laptop", f"{session.api.rpartition('/')[0]}/notebook-launcher/apps", session.token
        )
        app, _brief = json.loads(text)["apps"]
        assert (status, app["state"], app["url"]) == (200, "running", url), "the page opens it by the same address"
        node = json.loads(
            cluster.run("login", "alice", ["sh", "-c", f"cat {ENDPOINT.format(session.session_id)}"]).stdout
        )
        there = f"http://127.0.0.1:{app['port']}/?nl-token={app['secret']}"
        named = ("-H", "Host: port-1.localhost:1")
        assert opened(cluster, node["node"], "alice", there, "--max-redirs", "0", "-w", "%{http_code}", *named) == "303"
        assert opened(cluster, node["node"], "bob", there, *named) == ""
        record = cluster.run("laptop", "alice", ["launch-notebook", "status", "--json", "--cluster", "apps",
                                                 session.session_id], check=True).stdout  # fmt: skip
        shown, _brief = json.loads(record.splitlines()[-1])["apps"]
        assert (shown["state"], shown["restarts"], shown["url"]) == ("running", 0, url.partition("?")[0])
        assert app["secret"] not in record
        session.saw(r"Brief is not running\. It ended with exit code 127\.")  # no such program: it is not restarted
        session.send("\n")
        assert session.end() == 0
    assert_nothing_left(cluster)


ENDPOINT = "~/.notebook-launcher/sessions/{}/endpoint.json"
