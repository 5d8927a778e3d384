"""Homes and keys: their owners, and which machine knows which key.

The cluster's homes are shared by its boxes, the laptop has its own. Homes are readable by everybody, as on many
clusters: private files must be protected explicitly.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

from .errors import ClusterError
from .layout import BOXES, LOGIN_FULL_NAME, LOGIN_INSIDE_NAME, LOGIN_NODES, LOGIN_PORTS, USERS, Box, User

LAPTOP_SSH_CONFIG = f"""\
Host login
    HostName {LOGIN_FULL_NAME}

# The same machine by two jumps, as at sites that let nobody in directly.
Host deep
    HostName {LOGIN_INSIDE_NAME}
    ProxyJump gate1,gate2
"""

LAPTOP_PROFILE = """\
# The practice cluster, as seen from its laptop.
host = "login"
scheduler = "slurm"
environment = "jupyterlab"

[environments.jupyterlab]
container = "/sw/images/jupyterlab.sif"

[environments.module]
modules = ["jupyterlab/4"]
"""

# Keys are made by the root file system's ssh-keygen, so the host needs none. The mount is in a new namespace, and is
# gone when the shell ends.
_MAKE_KEYS = """\
set -eu
rootfs=$1 keys=$2
shift 2
mount --bind "$keys" "$rootfs/mnt"
for name in "$@"; do
    chroot "$rootfs" ssh-keygen -q -t ed25519 -N '' -C "$name" -f "/mnt/$name"
done
"""


def make_keys(rootfs: Path, directory: Path) -> None:
    """Make a host key for every box with an sshd (host-BOX), and two keys for each user with keys (USER@PLACE)."""
    directory.mkdir(mode=0o700)
    names = [f"host-{name}" for name, box in BOXES.items() if box.has_sshd]
    names += [f"{user.name}@{place}" for user in _with_keys() for place in ("laptop", "cluster")]
    result = subprocess.run(
        ["unshare", "--mount", "sh", "-c", _MAKE_KEYS, "sh", str(rootfs), str(directory), *names],
        capture_output=True,
        text=True,
    )
    if result.returncode != 0:
        raise ClusterError(f"The ssh keys could not be made: {result.stderr.strip()}.")


def _with_keys() -> list[User]:
    return [user for user in USERS.values() if user.password is None]


def host_key(keys: Path, box: str) -> str:
    """Return the public key of a box's sshd as known_hosts writes it: type and key."""
    return " ".join((keys / f"host-{box}.pub").read_text().split()[:2])


def known_hosts_of_laptop(keys: Path) -> str:
    """Return known_hosts for the laptop, with the keys of only the login nodes and the gates.

    Both login nodes have each other's names, as if one name stood for several machines.
    """
    lines = [f"{','.join(_login_names(BOXES[name]))} {host_key(keys, name)}\n" for name in LOGIN_NODES]
    lines.append(f"{LOGIN_INSIDE_NAME} {host_key(keys, 'login')}\n")
    gates = [box for box in BOXES.values() if box.role == "gate"]
    lines += [f"{','.join(filter(None, (box.name, box.outside)))} {host_key(keys, box.name)}\n" for box in gates]
    return "".join(lines)


def _login_names(box: Box) -> list[str]:
    """Return all names of a login node on the laptop; known_hosts includes a port other than 22 in the name."""
    names = list(dict.fromkeys(("login", LOGIN_FULL_NAME, box.name, str(box.outside))))
    return names + [f"[{name}]:{port}" for port in LOGIN_PORTS if port != 22 for name in names]


def known_hosts_of_cluster(keys: Path) -> str:
    """Return /etc/ssh/ssh_known_hosts for the cluster, with the keys of all boxes."""
    boxes = [box for box in BOXES.values() if box.has_sshd]
    names = {box.name: ",".join(filter(None, (box.name, box.inside, box.middle))) for box in boxes}
    names["login"] += f",{LOGIN_INSIDE_NAME}"
    return "".join(f"{theirs} {host_key(keys, name)}\n" for name, theirs in names.items())


def make_homes(rootfs: Path, keys: Path, cluster: Path, laptop: Path) -> None:
    """Fill the directories of the homes on the cluster and the laptop."""
    for user in USERS.values():
        for place in (cluster, laptop):
            home = place / user.name
            shutil.copytree(rootfs / "etc/skel", home)
            home.chmod(0o755)
            (home / ".ssh").mkdir(mode=0o700)
        _laptop_files(user, laptop / user.name, keys)
        if user.password is None:
            _install_key(keys / f"{user.name}@laptop", laptop / user.name)
            _install_key(keys / f"{user.name}@cluster", cluster / user.name)
            accepted = [keys / f"{user.name}@{where}.pub" for where in ("laptop", "cluster")]
            _private(cluster / user.name / ".ssh/authorized_keys", "".join(p.read_text() for p in accepted))
        for name, content in user.home_files:
            (cluster / user.name / name).write_bytes(content)
        for place in (cluster, laptop):
            _give_to(user, place / user.name)


def _laptop_files(user: User, home: Path, keys: Path) -> None:
    _private(home / ".ssh/config", LAPTOP_SSH_CONFIG)
    _private(home / ".ssh/known_hosts", known_hosts_of_laptop(keys))
    profiles = home / ".config/notebook-launcher/clusters"
    profiles.mkdir(parents=True)
    (profiles / "practice.toml").write_text(LAPTOP_PROFILE)


def _install_key(key: Path, home: Path) -> None:
    _private(home / ".ssh/id_ed25519", key.read_text())
    (home / ".ssh/id_ed25519.pub").write_text(key.with_name(key.name + ".pub").read_text())


def _private(path: Path, text: str) -> None:
    path.write_text(text)
    path.chmod(0o600)


def _give_to(user: User, home: Path) -> None:
    for directory, names, files in os.walk(home):
        for name in (".", *names, *files):
            os.chown(Path(directory) / name, user.uid, user.uid, follow_symlinks=False)
