"""The networks: a network namespace as a switch, with a bridge for each network."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from . import processes
from .errors import ClusterError
from .layout import BOXES, LOGIN_FULL_NAME, LOGIN_INSIDE_NAME, Box

HERE = Path(__file__).resolve().parent
OUTSIDE, MIDDLE, INSIDE = "outside", "middle", "inside"
BRIDGES = (OUTSIDE, MIDDLE, INSIDE)


def start(mark: Path, pids: Mapping[str, int]) -> int:
    """Connect the boxes, and return the process that keeps the switch alive.

    All interfaces are in namespaces, so none is ever visible on the host, and all disappear with the last process.
    """
    switch = _start_switch(mark)
    plugs = [f"link add {bridge} type bridge" for bridge in BRIDGES]
    plugs += [f"link set {bridge} up" for bridge in BRIDGES]
    for name, pid in pids.items():
        for bridge, interface, _address in _interfaces(name):
            port = _port(name, bridge)
            plugs.append(f"link add {port} type veth peer name {interface} netns {pid}")
            plugs.append(f"link set {port} master {bridge} up")
    ip(switch, plugs)
    for name, pid in pids.items():
        addresses = []
        for _bridge, interface, address in _interfaces(name):
            addresses += [f"address add {address}/24 dev {interface}", f"link set {interface} up"]
        ip(pid, addresses)
    return switch


def _interfaces(name: str) -> list[tuple[str, str, str]]:
    """Return (bridge, interface, address) of each of a box's links, the innermost first and the outermost last."""
    box = BOXES[name]
    links = ((INSIDE, box.inside), (MIDDLE, box.middle), (OUTSIDE, box.outside))
    used = [(bridge, address) for bridge, address in links if address]
    return [(bridge, f"eth{number}", address) for number, (bridge, address) in enumerate(used)]


def _port(name: str, bridge: str) -> str:
    return f"{name}-{bridge[:3]}"


def unplug(switch: int, name: str, *, carrier: bool) -> None:
    """Cut a box's outermost link; with `carrier`, the box does not notice, and its packets are lost."""
    bridge, _interface, _address = _interfaces(name)[-1]
    cut = f"{_plugged(switch, name)} nomaster" if carrier else f"{_port(name, bridge)} down"
    ip(switch, [f"link set {cut}"])


def plug(switch: int, name: str) -> None:
    """Undo `unplug`, with or without `carrier`; has no effect on a link that is not cut."""
    bridge, _interface, _address = _interfaces(name)[-1]
    ip(switch, [f"link set {_port(name, bridge)} up", f"link set {_plugged(switch, name)} master {bridge}"])


def _plugged(switch: int, name: str) -> str:
    """Return the port that connects a box's outermost link with its bridge: the far end of a delay line, if any."""
    bridge, _interface, _address = _interfaces(name)[-1]
    try:
        ip(switch, [f"link show dev {_line(name)[1]}"])
    except ClusterError:
        return _port(name, bridge)
    return _line(name)[1]


def _line(name: str) -> tuple[str, str]:
    """Return the two ends of the interface pair that delays a box's link: network_delay.py's, and the bridge's."""
    return f"{name}-near", f"{name}-far"


@contextmanager
def delayed(switch: int, name: str, milliseconds: float, mark: Path) -> Iterator[None]:
    """Let a round trip over a box's outermost link take longer, by half of it in each direction."""
    bridge, _interface, _address = _interfaces(name)[-1]
    port, (near, far) = _port(name, bridge), _line(name)
    ip(switch, [f"link add {near} type veth peer name {far}", f"link set {near} up", f"link set {far} up"])
    delay = [sys.executable, "-I", "-S", str(HERE / "network_delay.py"), str(milliseconds / 2000), port, near]
    carrier = subprocess.Popen(
        ["nsenter", f"--net=/proc/{switch}/ns/net", *delay],
        env={"PATH": os.environ.get("PATH", os.defpath), processes.MARK: str(mark)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
    )
    with carrier:
        try:
            if carrier.stdout is None or carrier.stdout.readline() != "ready\n":
                raise ClusterError("The long line could not be made: network_delay.py did not start.")
            ip(switch, [f"link set {port} nomaster", f"link set {far} master {bridge}"])
            yield
        finally:
            carrier.kill()
            ip(switch, [f"link delete {near}", f"link set {port} master {bridge}"])


def give_address(pid: int, name: str, address: str) -> None:
    """Give a box `address` on its outermost network, in place of all its addresses there."""
    _bridge, interface, _address = _interfaces(name)[-1]
    ip(pid, [f"address flush dev {interface} scope global", f"address add {address}/24 dev {interface}"])


def forget_neighbours(pid: int, name: str) -> None:
    """Clear a box's ARP table for its outermost network."""
    _bridge, interface, _address = _interfaces(name)[-1]
    ip(pid, [f"neighbour flush dev {interface}"])


def _start_switch(mark: Path) -> int:
    """Start the process whose network namespace is the switch; `unshare` execs it, so its process id is known."""
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


def ip(pid: int, lines: list[str]) -> None:
    """Run the lines of one `ip -batch` in the network namespace of `pid`."""
    _in_network(pid, ["ip", "-batch", "-"], "\n".join(lines) + "\n")


def _in_network(pid: int, argv: list[str], stdin: str = "") -> None:
    entry = ["nsenter", f"--net=/proc/{pid}/ns/net"]
    result = subprocess.run([*entry, *argv], input=stdin, capture_output=True, text=True)
    if result.returncode != 0:
        raise ClusterError(f"The network could not be made: {argv[0]} says '{result.stderr.strip()}'.")


def hosts_of(box: Box) -> str:
    """Return a box's /etc/hosts, with the machines that share a network with it."""
    if box.is_laptop:
        return hosts_of_laptop()
    inside = [(other.inside, other.name) for other in BOXES.values() if other.inside and box.inside]
    middle = [(other.middle, other.name) for other in BOXES.values() if other.middle and box.middle]
    own_names = [(BOXES["login"].inside, LOGIN_INSIDE_NAME)] if box.inside else []
    return _hosts([*inside, *own_names, *middle])


def hosts_of_laptop(login: str | None = None) -> str:
    """Return /etc/hosts for the laptop, which knows only the machines outside the cluster's network.

    With `login`, the login node's names resolve to that address.
    """
    addresses = {name: box.outside for name, box in BOXES.items() if box.outside}
    addresses["login"] = login or addresses["login"]
    names = {"login": f"login {LOGIN_FULL_NAME}"}
    return _hosts([(address, names.get(name, name)) for name, address in addresses.items()])


def _hosts(entries: list[tuple[str | None, str]]) -> str:
    lines = ["127.0.0.1 localhost", "::1 localhost ip6-localhost", *(f"{ip} {name}" for ip, name in entries)]
    return "\n".join(lines) + "\n"
