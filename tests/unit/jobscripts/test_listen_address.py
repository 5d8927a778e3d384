"""The address where JupyterLab listens."""

from __future__ import annotations

import ipaddress
import os
import re
import socket
import sys
from pathlib import Path

import psutil
import pytest

from notebook_launcher.core.package_data import job_script
from tests.unit.jobscripts.job import VENV_BIN, Job, library, token_of, write_evil_settings

pytestmark = pytest.mark.real_time


def addresses(getent: dict[str, str], own: str, tmp_path: Path) -> str:
    """What find_listen_address finds where the name service and the interfaces say this."""
    cases = "".join(f"{name}) echo '{address}  STREAM';;\n" for name, address in getent.items())
    for name, text in {
        "getent": f'case "$2" in\n{cases}*) exit 2;;\nesac',
        "hostname": f"echo '{own}'",
        "uname": "echo node1",
    }.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{text}\n")
        (tmp_path / name).chmod(0o755)
    code = 'node=node1 node_names=(node1 s1) want_listen=node; find_listen_address 2>&1; echo "$listen_address"'
    return library(code, env={"PATH": f"{tmp_path}:/usr/bin:/bin"})


@pytest.mark.parametrize(
    ("getent", "own", "address"),
    [
        ({"node1": "10.60.0.11"}, "192.168.7.7 10.60.0.11 fd00::2 ", "10.60.0.11"),
        ({"node1": "127.0.1.1"}, "10.60.0.11 172.17.0.1", "10.60.0.11"),
        ({"node1": "127.0.1.1", "s1": "10.61.0.11"}, "10.60.0.11 10.61.0.11", "10.61.0.11"),
        ({"node1": "10.9.9.9"}, "10.60.0.11", "10.60.0.11"),
        ({"node1": "10.60.0.11"}, "", "10.60.0.11"),
        ({}, "169.254.3.3 fe80::1 10.60.0.11", "10.60.0.11"),
        ({"node1": "127.0.1.1"}, "", "127.0.0.1"),
        ({"node1": "0.0.0.0"}, "fd00::2", "127.0.0.1"),
    ],
)
def test_the_nodes_own_address(getent: dict[str, str], own: str, address: str, tmp_path: Path) -> None:
    said, found = addresses(getent, own, tmp_path).rstrip("\n").rsplit("\n", 1)
    assert found == address
    assert ("no address of node1 was found" in said) == (address == "127.0.0.1")


def ask_server(address: str, port: int, *headers: str) -> int:
    """Return the HTTP status of a request with exactly these headers."""
    with socket.create_connection((address, port), 10) as connection:
        connection.sendall("".join(f"{line}\r\n" for line in ("GET /api/status HTTP/1.0", *headers, "")).encode())
        return int(connection.makefile("rb").readline().split()[1])


@pytest.fixture
def node_address() -> str:
    found = library('find_node_names; want_listen=node; find_listen_address 2>/dev/null; printf %s "$listen_address"')
    if found == "127.0.0.1":
        pytest.skip("this machine has no address but the loopback's")
    return found


def test_jupyterlab_on_the_nodes_address(job: Job, node_address: str) -> None:
    job.env |= {"NBL_LISTEN": "0.0.0.0"}
    write_evil_settings(job.home)
    job.ask(f"path={VENV_BIN}", "listen=node", "setenv=NBL_LISTEN=0.0.0.0")
    job.start()
    endpoint = job.endpoint()
    port, token = endpoint["port"], f"Authorization: token {token_of(job)}"
    assert endpoint["address"] == node_address
    listening = {c.laddr for c in psutil.Process(endpoint["pid"]).net_connections("tcp") if c.status == "LISTEN"}
    assert {address for address, each in listening if each == port} == {node_address}
    assert {address for address, each in listening if each != port} <= {"127.0.0.1"}
    with pytest.raises(ConnectionRefusedError):
        ask_server("127.0.0.1", port)
    here = "Host: 127.0.0.1:9999"
    assert ask_server(node_address, port, here) == 403
    assert ask_server(node_address, port, here, "Authorization: token evil") == 403
    assert ask_server(node_address, port, here, token) == 200
    for elsewhere in (f"{node_address}:{port}", "evil.example", f"{os.uname().nodename}:{port}"):
        assert ask_server(node_address, port, f"Host: {elsewhere}", token) == 403, "the name may be anybody's"
    assert f"will listen on {node_address}: whoever" in job.log.read_text()
    assert token_of(job) not in job.log.read_text()


def test_jupyterlab_elsewhere_than_asked_is_ended(quick: Job, node_address: str) -> None:
    """The stand-in does not know listen=node, and listens on 127.0.0.1."""
    quick.ask("listen=node")
    assert f"listens on other addresses than {node_address}" in quick.run()["message"]
    assert quick.processes() == []


@pytest.mark.parametrize("address", ["0.0.0.0", "::", "node1"])
def test_jupyterlab_never_listens_on_every_address(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = job_script("jupyter_server_config.py").read_text()
    (function,) = re.findall(r"^def listening_address.*?^    return address\n", settings, re.M | re.S)
    names = {"os": os, "sys": sys, "ipaddress": ipaddress}
    exec(function, names)
    monkeypatch.setenv("NBL_LISTEN", address)
    with pytest.raises(SystemExit, match=f"cannot listen on NBL_LISTEN='{address}'"):
        eval("listening_address()", names)
