"""The layout of the cluster: generations, boxes, addresses, users and accounts. Data only, no behaviour."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True)
class Generation:
    """One version of Slurm and the Debian release that ships it."""

    slurm: str
    suite: str
    cgroup_plugin: str
    """The value for "no cgroups": 22.05 does not know `disabled`, and 24.11 tries to use cgroups without it."""
    python: str = ""
    libslurm: str = ""
    sshd_options: tuple[str, ...] = ()
    restarts_slurmd: bool = True
    """Whether `scontrol reconfigure` restarts each slurmd, as since 23.11."""
    versions: tuple[str, ...] = ()
    """For a release that changes: the versions of its packages, such as "slurmctld 26.05.5-1"; see `rolling`."""

    @property
    def is_rolling(self) -> bool:
        """Whether the release changes daily, so that the mirror must be queried for its versions."""
        return self.suite == "sid"


GENERATIONS = {
    "24.11": Generation(
        slurm="24.11",
        suite="trixie",
        python="3.13",
        libslurm="libslurm42t64",
        cgroup_plugin="disabled",
        # OpenSSH 9.8 and later block an address after failed logins, which tests make on purpose.
        sshd_options=("PerSourcePenalties no",),
    ),
    "22.05": Generation(
        slurm="22.05",
        suite="bookworm",
        python="3.11",
        libslurm="libslurm38",
        cgroup_plugin="cgroup/v1",
        restarts_slurmd=False,
    ),
    # The current version of Debian sid; its sshd blocks addresses, as on any site with a new OpenSSH.
    "sid": Generation(slurm="sid", suite="sid", cgroup_plugin="disabled"),
}
DEFAULT_GENERATION = "24.11"


@dataclass(frozen=True)
class Box:
    """One machine of the cluster: a set of Linux namespaces with its own root file system.

    `inside` is the address on the cluster's network, `outside` the one on the network that the laptop is on, `middle`
    the one on a network between the two, which only the gates know.
    """

    name: str
    role: str
    """The role of the machine: laptop, login, control, node or gate."""
    inside: str | None = None
    outside: str | None = None
    middle: str | None = None
    devices: tuple[str, ...] = ()
    """Names in /dev that behave like /dev/null: GPUs that are counted and allocated, but cannot compute."""

    @property
    def is_laptop(self) -> bool:
        return self.role == "laptop"

    @property
    def has_slurm(self) -> bool:
        """Whether the machine is part of the cluster proper, with Slurm, modules and images."""
        return self.role in ("login", "control", "node")

    @property
    def has_sshd(self) -> bool:
        return self.role in ("login", "node", "gate")


BOXES = {
    box.name: box
    for box in (
        Box("laptop", "laptop", outside="10.50.0.2"),
        Box("login", "login", inside="10.60.0.1", outside="10.50.0.1"),
        Box("login2", "login", inside="10.60.0.4", outside="10.50.0.4"),
        Box("gate1", "gate", outside="10.50.0.3", middle="10.55.0.1"),
        Box("gate2", "gate", inside="10.60.0.3", middle="10.55.0.2"),
        Box("ctl", "control", inside="10.60.0.2"),
        Box("node1", "node", inside="10.60.0.11"),
        # The cluster snowy has its only GPU here. It is not called nvidia0: for the main cluster this node has none.
        Box("node2", "node", inside="10.60.0.12", devices=("t4-0",)),
        Box("gpu1", "node", inside="10.60.0.21", devices=(*(f"nvidia{i}" for i in range(6)), "nvidiactl")),
    )
}
COMPUTE_NODES = tuple(name for name, box in BOXES.items() if box.role == "node")
LOGIN_NODES = tuple(name for name, box in BOXES.items() if box.role == "login")
LOGIN_FULL_NAME = "login.practice.test"
LOGIN_INSIDE_NAME = "login-inside"
"""The login node's name inside the cluster, and behind the gates."""
LOGIN_PORTS = (22, 8822)
MOVED_LOGIN = "10.50.0.77"
"""The login node's address after it has moved."""


@dataclass(frozen=True)
class User:
    """A user with a home on the cluster and another one on the laptop. Group id and user id are the same.

    Some users stand for a kind of site: the sshds have special settings for them, all defined here.
    """

    name: str
    uid: int
    accounts: tuple[str, ...]
    """Slurm accounts on the main cluster; the first one is the default."""
    snowy_accounts: tuple[str, ...] = ()
    password: str | None = None
    """A user with a password has no key at all."""
    shell: str = "/bin/bash"
    login_sshd: tuple[str, ...] = ()
    """Settings for this user in the sshd of the login nodes."""
    node_sshd: tuple[str, ...] = ()
    """Settings for this user in the sshd of the compute nodes."""
    totp_secret: str | None = None
    """A user with a secret is asked for a one-time code, after the password if there is one."""
    totp_on: tuple[str, ...] = ()
    """The roles of the boxes that ask for the code."""
    home_files: tuple[tuple[str, bytes], ...] = ()
    """Additional files in the home on the cluster."""
    home_mebibytes: int | None = None
    """The size of the home on the cluster if it is a separate file system, shared by all boxes."""
    greeting: bytes = b""
    """The banner of a login node's sshd for this user, and its message of the day."""

    @property
    def home(self) -> Path:
        return Path("/home") / self.name


NOISE = (
    b"\033]0;the terminal's new title\007\033[31mWelcome to the noisy site\033[0m\007\n"
    b"\033[2J\rDisk quota: 93 % used\r\nInvalid UTF-8: \377\376\303(\n"
)
"""Text that a site prints at every login, with everything that can confuse a terminal or a program that reads it."""

# The same line for csh, sh and bash.
_MAKE_NOISE = b"cat ~/.noise; sh -c 'cat ~/.noise >&2'\n"
_NOISY_FILES = (".bashrc", ".bash_profile", ".profile", ".cshrc")

# "Match" enables it for single users: for everybody else, the methods remain key and password.
_ASK = "KbdInteractiveAuthentication yes"

USERS = {
    user.name: user
    for user in (
        User("alice", 2001, ("proj1", "proj2"), snowy_accounts=("proj1",)),
        User("bob", 2002, ("proj2",)),
        User("carol", 2003, ("proj1",), password="practice-carol"),
        User(
            *("dave", 2004, ("proj1",)),
            password="practice-dave",
            login_sshd=(_ASK, "AuthenticationMethods keyboard-interactive"),
            node_sshd=(_ASK, "AuthenticationMethods keyboard-interactive"),
            totp_secret="PRACTICEDAVE2345PRACTICEDAVE2345",
            totp_on=("login", "node"),
        ),
        User(
            *("erin", 2005, ("proj1",)),
            login_sshd=("AllowTcpForwarding no",),
            node_sshd=("DenyUsers erin",),
        ),
        User(
            *("frank", 2006, ("proj1",)),
            shell="/bin/tcsh",
            home_files=((".noise", NOISE), *((name, _MAKE_NOISE) for name in _NOISY_FILES)),
            greeting=NOISE,
        ),
        User("grace", 2007, ("proj1",), node_sshd=("DenyUsers grace",)),
        User(
            *("heidi", 2008, ("proj1",)),
            login_sshd=(_ASK, "AuthenticationMethods publickey,keyboard-interactive"),
            totp_secret="PRACTICEHEIDI234PRACTICEHEIDI234",
            totp_on=("login",),
        ),
        User("ivan", 2009, ("proj1",), home_mebibytes=8),
        User("judy", 2010, ("proj1",)),
    )
}


@dataclass(frozen=True)
class Bind:
    """A directory or file of the host that is mounted in a box. For a file, the target must exist."""

    source: Path
    target: str
    writable: bool = False


@dataclass
class BoxPlan:
    """Everything `boxes.start` needs to know to bring one box up."""

    name: str
    rootfs: Path
    state: Path
    """The box's directory: for the changes of its root file system, and its log."""
    binds: list[Bind] = field(default_factory=list)
    services: list[str] = field(default_factory=list)
    devices: tuple[str, ...] = ()
