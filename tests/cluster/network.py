"""The two networks: a switch without a machine around it, one bridge for the outside and one for the cluster."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path

from . import processes
from .errors import ClusterError
from .layout import BOXES, LOGIN_FULL_NAME

OUTSIDE, INSIDE = "outside", "inside"


def start(mark: Path, pids: Mapping[str, int]) -> int:
    """Connect the boxes and return the process that keeps the switch alive.

    All interfaces lie in namespaces, so none is ever seen on the host and all go with the last process.
    """
    switch = _start_switch(mark)
    plugs = [f"link add {bridge} type bridge" for bridge in (OUTSIDE, INSIDE)]
    plugs += [f"link set {bridge} up" for bridge in (OUTSIDE, INSIDE)]
    for name, pid in pids.items():
        for bridge, interface, _address in _interfaces(name):
            port = f"{name}-{bridge[:3]}"
            plugs.append(f"link add {port} type veth peer name {interface} netns {pid}")
            plugs.append(f"link set {port} master {bridge} up")
    _ip(switch, plugs)
    for name, pid in pids.items():
        addresses = []
        for _bridge, interface, address in _interfaces(name):
            addresses += [f"address add {address}/24 dev {interface}", f"link set {interface} up"]
        _ip(pid, addresses)
    return switch


def _interfaces(name: str) -> list[tuple[str, str, str]]:
    box = BOXES[name]
    found = []
    if box.inside:
        found.append((INSIDE, "eth0", box.inside))
    if box.outside:
        found.append((OUTSIDE, "eth1" if box.inside else "eth0", box.outside))
    return found


def _start_switch(mark: Path) -> int:
    """Start the process whose network namespace is the switch; `unshare` execs it, so its number is known."""
    process = subprocess.run(
        ["sh", "-c", "setsid unshare --net sleep infinity >/dev/null 2>&1 & echo $!"],
        env={"PATH": os.environ.get("PATH", os.defpath), processes.MARK: str(mark)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    pid = int(process.stdout)
    here = Path("/proc/self/ns/net").readlink()
    for _ in range(200):
        try:
            if Path(f"/proc/{pid}/ns/net").readlink() != here:
                return pid
        except OSError:
            break
        time.sleep(0.01)
    raise ClusterError("The switch did not start: this kernel makes no network namespaces.")


def _ip(pid: int, lines: list[str]) -> None:
    """Run the lines of one `ip -batch` in the network namespace of `pid`."""
    result = subprocess.run(
        ["nsenter", f"--net=/proc/{pid}/ns/net", "ip", "-batch", "-"],
        input="\n".join(lines) + "\n",
        capture_output=True,
        text=True,
    )
    if result.returncode != 0:
        raise ClusterError(f"The network could not be made: ip says '{result.stderr.strip()}'.")


def hosts_of_cluster() -> str:
    """Return /etc/hosts for the boxes that are part of the cluster."""
    return _hosts([(box.inside, box.name) for box in BOXES.values() if box.inside])


def hosts_of_laptop() -> str:
    """Return /etc/hosts for the laptop, which knows the login node and nothing behind it."""
    names = {"login": f"login {LOGIN_FULL_NAME}"}
    return _hosts([(box.outside, names.get(box.name, box.name)) for box in BOXES.values() if box.outside])


def _hosts(entries: list[tuple[str | None, str]]) -> str:
    lines = ["127.0.0.1 localhost", "::1 localhost ip6-localhost", *(f"{ip} {name}" for ip, name in entries)]
    return "\n".join(lines) + "\n"
