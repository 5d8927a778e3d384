"""Jupyter behind a tunnel: its port file, its answer, its address."""

from __future__ import annotations

import http.server
import socket
import ssl
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from notebook_launcher.core.errors import JupyterSilent
from notebook_launcher.tunnel.forwarding import Endpoint, PortOwner, Tunnel, check_jupyter, port_owner
from notebook_launcher.tunnel.page_port import is_answered
from tests.unit.tunnel.far_end import SocketRoute, StartFar

pytestmark = [pytest.mark.timeout(120), pytest.mark.real_time]


class Jupyter:
    """A server that answers with these statuses, the last one again and again, and keeps what it was asked."""

    def __init__(self, *statuses: int, certificate: Path | None = None, body: bytes = b"") -> None:
        asked = self.asked = []  # type: ignore[var-annotated]
        left = list(statuses)

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                asked.append((self.path, self.headers["Authorization"]))
                self.send_response(left.pop(0) if len(left) > 1 else left[0])
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        if certificate:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(certificate)
            self.server.socket = context.wrap_socket(self.server.socket, server_side=True)
        self.port: int = self.server.server_address[1]
        threading.Thread(target=self.server.serve_forever, args=(0.05,), daemon=True).start()

    def __enter__(self) -> Jupyter:
        return self

    def __exit__(self, *_: object) -> None:
        self.server.shutdown()
        self.server.server_close()


@pytest.mark.parametrize(("status", "is_ours"), [(200, True), (403, False), (404, False)])
def test_whether_it_still_answers_with_the_token(ours: Tunnel, status: int, is_ours: bool) -> None:
    ours.run_over(SocketRoute())
    with Jupyter(status) as jupyter:
        endpoint = Endpoint(jupyter.port)
        local_port = ours.jupyter(endpoint)
        assert is_answered(local_port, endpoint, "secret") is is_ours
        assert jupyter.asked == [("/api/status", "token secret")]
    assert not is_answered(local_port, endpoint, "secret"), "nothing listens there any more"


def test_jupyter_answers(ours: Tunnel) -> None:
    ours.run_over(SocketRoute())
    with Jupyter(200) as jupyter:
        endpoint = Endpoint(jupyter.port, "/user/alice/")
        check_jupyter(ours.jupyter(endpoint), endpoint, "secret")
        assert jupyter.asked == [("/user/alice/api/status", "token secret")]


def test_jupyter_answers_after_a_while(ours: Tunnel) -> None:
    """Its port file is there a moment before it listens, and it listens before it is ready."""
    ours.run_over(SocketRoute())
    with Jupyter(503, 404, 200) as jupyter:
        endpoint = Endpoint(jupyter.port)
        check_jupyter(ours.jupyter(endpoint), endpoint, "secret")
        assert len(jupyter.asked) == 3


@pytest.mark.parametrize("status", [401, 403])
def test_another_s_jupyter_is_recognised_at_once(ours: Tunnel, status: int) -> None:
    ours.run_over(SocketRoute())
    with Jupyter(status) as jupyter:
        endpoint = Endpoint(jupyter.port)
        with pytest.raises(JupyterSilent) as caught:
            check_jupyter(ours.jupyter(endpoint), endpoint, "secret")
        assert str(status) in caught.value.what and "secret" not in str(vars(caught.value))
        assert len(jupyter.asked) == 1


def test_another_program_on_the_port(ours: Tunnel) -> None:
    ours.run_over(SocketRoute())
    with Jupyter(404) as jupyter:
        endpoint = Endpoint(jupyter.port)
        with pytest.raises(JupyterSilent, match="404"):
            check_jupyter(ours.jupyter(endpoint), endpoint, "secret", patience=0.2)


@pytest.mark.parametrize("act", [lambda connection: None, lambda connection: connection.sendall(b"SSH-2.0-x\r\n")],
                         ids=["hangs up", "no HTTP"])  # fmt: skip
def test_no_web_server_on_the_port(ours: Tunnel, far: StartFar, act: Callable[[socket.socket], None]) -> None:
    ours.run_over(SocketRoute())
    endpoint = Endpoint(far(act).port)
    with pytest.raises(JupyterSilent, match="does not answer"):
        check_jupyter(ours.jupyter(endpoint), endpoint, "secret", patience=0.2)


@pytest.mark.parametrize(
    ("status", "body", "owner"),
    [
        (200, b'{"owner": "yours"}', PortOwner.YOURS),
        (200, b'{"owner": "others"}', PortOwner.OTHERS),
        (200, b'{"owner": "nobody"}', PortOwner.NOBODY),
        (404, b'{"owner": "others"}', PortOwner.UNKNOWN),  # a session of an older version
        (200, b'{"owner": "alice"}', PortOwner.UNKNOWN),
        (200, b'{"owner": ["yours"]}', PortOwner.UNKNOWN),
        (200, b'["yours"]', PortOwner.UNKNOWN),
        (200, b"{}", PortOwner.UNKNOWN),
        (200, b"\xff<html>", PortOwner.UNKNOWN),
    ],
)
def test_whose_a_port_of_the_node_is(ours: Tunnel, status: int, body: bytes, owner: PortOwner) -> None:
    ours.run_over(SocketRoute())
    with Jupyter(status, body=body) as jupyter:
        endpoint = Endpoint(jupyter.port, "/user/alice/")
        assert port_owner(ours.jupyter(endpoint), endpoint, "secret", 6006) is owner
        assert jupyter.asked == [("/user/alice/api/notebook-launcher/ports/6006", "token secret")]


def test_whose_a_port_is_when_nothing_answers(ours: Tunnel, far: StartFar) -> None:
    ours.run_over(SocketRoute())
    endpoint = Endpoint(far(lambda connection: None).port)
    assert port_owner(ours.jupyter(endpoint), endpoint, "secret", 6006) is PortOwner.UNKNOWN


def test_a_jupyter_with_a_certificate_of_its_own(ours: Tunnel, tmp_path: Path) -> None:
    pem = tmp_path / "both.pem"
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1", "-subj", "/CN=node1",
               "-keyout", pem, "-out", tmp_path / "cert.pem"]  # fmt: skip
    subprocess.run(command, check=True, capture_output=True)
    pem.write_text(pem.read_text() + (tmp_path / "cert.pem").read_text())
    ours.run_over(SocketRoute())
    with Jupyter(200, certificate=pem) as jupyter:
        endpoint = Endpoint(jupyter.port, secure=True)
        check_jupyter(ours.jupyter(endpoint), endpoint, "secret")
        assert len(jupyter.asked) == 1


def test_the_address_for_the_browser() -> None:
    assert Endpoint(4242).url(50001, "a b&c/d") == "http://127.0.0.1:50001/lab?token=a%20b%26c%2Fd"
    assert Endpoint(4242, "/user/a/", secure=True).url(1, "x") == "https://127.0.0.1:1/user/a/lab?token=x"


ANYTHING = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=9) | st.just([{}])

TEXTS = st.sampled_from(["/", "/user/a/", "@evil.org/", ":1@evil.org/", "x", "\\", "//evil.org/"]) | ANYTHING

FILES = st.fixed_dictionaries(
    {}, optional={"port": ANYTHING, "base_url": TEXTS, "secure": ANYTHING, "address": ANYTHING, "x": ANYTHING}
)


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(FILES)
def test_a_damaged_port_file_gives_a_port_or_our_error(data: dict[str, object]) -> None:
    port = data.get("port")
    try:
        endpoint = Endpoint.from_file(data)
    except JupyterSilent:
        assert type(port) is not int or not 0 < port < 65536
    else:
        assert type(endpoint.port) is int and 0 < endpoint.port < 65536
        assert isinstance(endpoint.address, str) and endpoint.address


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(TEXTS)
def test_the_token_is_sent_nowhere_else(base_url: object) -> None:
    url = urlsplit(Endpoint.from_file({"port": 4242, "base_url": base_url}).url(50001, "secret"))
    assert (url.hostname, url.port, url.username) == ("127.0.0.1", 50001, None)
