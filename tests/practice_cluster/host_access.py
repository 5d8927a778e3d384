"""Access for people: a port on the host that is forwarded to the login node, an ssh configuration, and a profile.

All files belong to the person who typed the command, even if that was `sudo python3 tests/practice_cluster up`.
"""

from __future__ import annotations

import os
import pwd
import re
import shutil
import socket
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from . import boxes, processes, users
from .layout import BOXES, COMPUTE_NODES, DEFAULT_GENERATION
from .progress import say

HERE = Path(__file__).resolve().parent
USER = "alice"
SIGNATURE = "# Written by `python3 tests/practice_cluster up`; `down` removes it. Cluster: "

_SSH_CONFIG = """\
{signature}{state}
Host {name}
    HostName 127.0.0.1
    Port {port}

Host {nodes}
    ProxyJump {name}

Host {name} {nodes}
    User {user}
    IdentityFile {directory}/id_ed25519
    IdentitiesOnly yes
    UserKnownHostsFile {directory}/known_hosts
"""

_PROFILE = """\
{signature}{state}
host = "{name}"
ssh_config = "{directory}/ssh_config"
scheduler = "slurm"
environment = "jupyterlab"

[environments.jupyterlab]
container = "/sw/images/jupyterlab.sif"

[environments.module]
modules = ["jupyterlab/4"]
"""


@dataclass(frozen=True)
class Door:
    """The forwarding process, its port, and the files that a person needs."""

    pid: int
    name: str
    port: int
    ssh_config: Path
    profile: Path | None
    """None if the file exists and is not ours."""


def name_of(generation: str) -> str:
    """Return the cluster's name as an ssh host and profile."""
    return "practice" if generation == DEFAULT_GENERATION else f"practice-{generation}"


def open_door(generation: str, state: Path, keys: Path, laptop: int) -> Door:
    """Start forwarding from a free port of 127.0.0.1 to the login node's sshd, and write the files for it."""
    listener = socket.create_server(("127.0.0.1", 0), backlog=128)
    with listener:
        port = int(listener.getsockname()[1])
        pid = _start_forwarding(listener, state, laptop)
    directory = state / "door"
    name = name_of(generation)
    _write_ssh_files(directory, state, keys, name, port)
    profile = _write_profile(directory, state, name)
    return Door(pid, name, port, directory / "ssh_config", profile)


def _start_forwarding(listener: socket.socket, state: Path, laptop: int) -> int:
    forward = [sys.executable, "-I", "-S", str(HERE / "port_forward.py"), str(listener.fileno())]
    forward += [str(BOXES["login"].outside), "22"]
    inside = [*boxes.ENTER, "--pid", str(laptop), "--namespaces", "net", "--"]
    # The shell exits at once, so that the forwarder becomes an orphan, which init reaps.
    started = subprocess.run(
        ["sh", "-c", '"$@" >/dev/null 2>&1 & echo $!', "sh", "setsid", *inside, *forward],
        pass_fds=[listener.fileno()],
        env={"PATH": os.environ.get("PATH", os.defpath), processes.MARK: str(state)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        cwd="/",
    )
    return int(started.stdout)


def _write_ssh_files(directory: Path, state: Path, keys: Path, name: str, port: int) -> None:
    directory.mkdir(mode=0o700)
    words = {"signature": SIGNATURE, "state": state, "name": name, "port": port, "user": USER}
    words |= {"directory": directory, "nodes": " ".join(COMPUTE_NODES)}
    files = {
        "ssh_config": _SSH_CONFIG.format(**words),
        "id_ed25519": (keys / f"{USER}@laptop").read_text(),
        "known_hosts": f"[127.0.0.1]:{port} {users.host_key(keys, 'login')}\n",
    }
    person = _person()
    for file, text in files.items():
        (directory / file).write_text(text)
        (directory / file).chmod(0o600)
        os.chown(directory / file, person.pw_uid, person.pw_gid)
    os.chown(directory, person.pw_uid, person.pw_gid)


def _person() -> pwd.struct_passwd:
    """Return the user who typed the command, also with sudo."""
    return pwd.getpwuid(int(os.environ.get("SUDO_UID") or os.getuid()))


def _profile_path(name: str) -> Path:
    """Return the path of the profile for that person's launcher; in the tests, it is in their temporary home."""
    if moved := os.environ.get("NOTEBOOK_LAUNCHER_CONFIG"):
        return Path(moved) / "clusters" / f"{name}.toml"
    if "SUDO_UID" in os.environ and "NBL_TEST_HOME" not in os.environ:  # HOME may be root's
        base = Path(_person().pw_dir) / ".config"
    else:
        base = Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config")
    return base / "notebook-launcher" / "clusters" / f"{name}.toml"


def _write_profile(directory: Path, state: Path, name: str) -> Path | None:
    path = _profile_path(name)
    before = path.read_text(errors="replace") if path.exists() else None
    if before is not None and not before.startswith(SIGNATURE):
        say(f"{path} is not from the practice cluster and stays as it is.")
        return None
    other = before.partition("\n")[0].removeprefix(SIGNATURE) if before else None
    if other and other != str(state):
        say(f"The profile {name} was for {other} and is now for this cluster.")
    person = _person()
    missing = [parent for parent in path.parents if not parent.exists()]
    for parent in reversed(missing):
        parent.mkdir()
        os.chown(parent, person.pw_uid, person.pw_gid)
    path.write_text(_PROFILE.format(signature=SIGNATURE, state=state, name=name, directory=directory))
    os.chown(path, person.pw_uid, person.pw_gid)
    return path


def remove_files(state: Path, profile: Path | None) -> None:
    """Remove what `open_door` wrote for the cluster in `state`, and nothing else."""
    shutil.rmtree(state / "door", ignore_errors=True)
    if profile and profile.exists() and profile.read_text(errors="replace").startswith(f"{SIGNATURE}{state}\n"):
        profile.unlink()


def forget_profile(profile: Path | None) -> None:
    """Tell that `remove_files` has removed the profile, and unset the launcher's default cluster if it was this one."""
    if not profile or profile.exists():
        return
    say(f"The profile {profile} is removed.")
    configuration = profile.parent.parent / "config.toml"
    text = configuration.read_text(errors="surrogateescape") if configuration.is_file() else ""
    left = re.sub(rf'(?m)^cluster *= *"{re.escape(profile.stem)}" *(#.*)?(\n|\Z)', "", text)
    if left != text:
        configuration.write_text(left, errors="surrogateescape")
        say(f"{profile.stem} is no longer the launcher's default cluster ({configuration}).")


def explain(door: Door) -> str:
    """Return the lines that tell a person how to try the cluster."""
    lines = [f"Try it as {USER}:", "", f"    ssh -F {door.ssh_config} {door.name}"]
    if door.profile:
        lines += [f"    launch-notebook --cluster {door.name}", "", f"The launcher's profile for it: {door.profile}"]
    return "\n".join(lines)
