"""The cluster on paper: generations, boxes, addresses, people and accounts. Data only, no behaviour."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True)
class Generation:
    """One version of Slurm and the Debian release that ships it."""

    slurm: str
    suite: str
    python: str
    libslurm: str
    cgroup_plugin: str
    """What stands for "no cgroups": 22.05 does not know `disabled`, 24.11 tries to use cgroups without it."""
    sshd_options: tuple[str, ...] = ()


GENERATIONS = {
    "24.11": Generation(
        slurm="24.11",
        suite="trixie",
        python="3.13",
        libslurm="libslurm42t64",
        cgroup_plugin="disabled",
        # OpenSSH 9.8 and later lock an address out after failed logins; tests fail logins on purpose.
        sshd_options=("PerSourcePenalties no",),
    ),
    "22.05": Generation(
        slurm="22.05",
        suite="bookworm",
        python="3.11",
        libslurm="libslurm38",
        cgroup_plugin="cgroup/v1",
    ),
}
DEFAULT_GENERATION = "24.11"


@dataclass(frozen=True)
class Box:
    """One machine of the cluster: a set of Linux namespaces with its own root file system.

    `inside` is the address on the cluster's network, `outside` the one on the network that the laptop is on.
    """

    name: str
    inside: str | None = None
    outside: str | None = None
    devices: tuple[str, ...] = ()
    """Names in /dev that behave like /dev/null: GPUs to be counted and handed out, not to be computed on."""

    @property
    def is_laptop(self) -> bool:
        return self.inside is None


COMPUTE_NODES = ("node1", "node2", "gpu1")
BOXES = {
    box.name: box
    for box in (
        Box("laptop", outside="10.50.0.2"),
        Box("login", inside="10.60.0.1", outside="10.50.0.1"),
        Box("ctl", inside="10.60.0.2"),
        Box("node1", inside="10.60.0.11"),
        # The cluster snowy has its only GPU here. It is not called nvidia0: for the main cluster this node has none.
        Box("node2", inside="10.60.0.12", devices=("t4-0",)),
        Box("gpu1", inside="10.60.0.21", devices=(*(f"nvidia{i}" for i in range(6)), "nvidiactl")),
    )
}
LOGIN_FULL_NAME = "login.practice.test"


@dataclass(frozen=True)
class User:
    """A person with a home on the cluster and another one on the laptop. Group id and user id are the same."""

    name: str
    uid: int
    accounts: tuple[str, ...]
    """Slurm accounts on the main cluster; the first one is the default."""
    snowy_accounts: tuple[str, ...] = ()
    password: str | None = None
    """A user with a password has no key at all."""

    @property
    def home(self) -> Path:
        return Path("/home") / self.name


USERS = {
    user.name: user
    for user in (
        User("alice", 2001, ("proj1", "proj2"), snowy_accounts=("proj1",)),
        User("bob", 2002, ("proj2",)),
        User("carol", 2003, ("proj1",), password="practice-carol"),
    )
}


@dataclass(frozen=True)
class Bind:
    """A directory or file of the host that shows up in a box. For a file, something must be at the target."""

    source: Path
    target: str
    writable: bool = False


@dataclass
class BoxPlan:
    """Everything `boxes.start` needs to know to bring one box up."""

    name: str
    rootfs: Path
    state: Path
    """A directory of the box's own: what it writes to its root file system, and its log."""
    binds: list[Bind] = field(default_factory=list)
    services: list[str] = field(default_factory=list)
    devices: tuple[str, ...] = ()
