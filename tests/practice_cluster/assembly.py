"""Lays out a cluster's directory from its parts, and plans what each box mounts, contains and runs."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from . import grid_engine, network, slurm, software, sshd, users
from .layout import BOXES, Bind, Box, BoxPlan, Generation
from .recipes import BYTECODE_IN_BOX, CHECKOUT, CHECKOUT_IN_BOX, LAUNCHER_IN_BOX, Parts

# The laptop and gates have no Slurm, containers or modules; all boxes share one root file system, so these are hidden
# there.
ONLY_ON_CLUSTER = (
    *("sacct", "sacctmgr", "salloc", "sattach", "sbatch", "sbcast", "scancel", "scontrol", "scrontab", "sdiag"),
    *("sinfo", "sprio", "squeue", "sreport", "srun", "sshare", "sstat", "strigger"),
    *("apptainer", "singularity", "ch-run", "podman"),
)


def keys(directory: Path) -> Path:
    """Return the directory of the keys that were made for a cluster."""
    return directory / "keys"


def prepare(directory: Path, parts: Parts, generation: Generation) -> list[BoxPlan]:
    """Write everything the boxes need into a cluster's empty directory and return a plan for each box."""
    rootfs = parts.rootfs.path
    for name in ("home", "laptop-home", "sw", "slurm", "boxes"):
        (directory / name).mkdir()
    users.make_keys(rootfs, keys(directory))
    users.make_homes(rootfs, keys(directory), directory / "home", directory / "laptop-home")
    software.make_tree(directory / "sw")
    slurm.write_configuration(directory / "slurm", generation, _uid_of(rootfs, "slurm"))
    (directory / "hosts.laptop").write_text(network.hosts_of_laptop())
    return [_plan(box, directory, parts, generation) for box in BOXES.values()]


def _uid_of(rootfs: Path, name: str) -> int:
    lines = (rootfs / "etc/passwd").read_text().splitlines()
    return next(int(line.split(":")[2]) for line in lines if line.startswith(f"{name}:"))


def _plan(box: Box, directory: Path, parts: Parts, generation: Generation) -> BoxPlan:
    plan = BoxPlan(box.name, parts.rootfs.path, directory / "boxes" / box.name, devices=box.devices)
    _write_files(box, plan.state / "upper", keys(directory), generation, parts.rootfs.path)
    homes = "laptop-home" if box.is_laptop else "home"
    plan.binds.append(Bind(directory / homes, "/home", writable=True))
    if box.has_slurm:
        plan.binds.append(Bind(directory / "slurm", "/etc/slurm"))
        plan.binds += software.binds(directory / "sw", parts)
        plan.binds.append(Bind(parts.grid_engine.path, grid_engine.UNPACKED))
        plan.services.append("munge")
    if box.has_sshd:
        plan.services.append("sshd")
    if has_launcher(box):
        plan.binds += [Bind(parts.launcher.path, LAUNCHER_IN_BOX), Bind(CHECKOUT, CHECKOUT_IN_BOX)]
        plan.binds.append(Bind(parts.bytecode.path, BYTECODE_IN_BOX))
    return plan


def has_launcher(box: Box) -> bool:
    """Return whether the launcher is installed on this box."""
    return box.role in ("laptop", "login")


def _write_files(box: Box, upper: Path, keys: Path, generation: Generation, rootfs: Path) -> None:
    """Write what differs from the common root file system, into the overlay's upper directory."""
    files = {
        "etc/hostname": f"{box.name}\n".encode(),
        "etc/resolv.conf": b"",
        "etc/hosts": network.hosts_of(box).encode(),
    }
    private: dict[str, bytes] = {}
    if not box.is_laptop:
        files["etc/ssh/ssh_known_hosts"] = users.known_hosts_of_cluster(keys).encode()
    if box.has_sshd:
        files["etc/ssh/ssh_host_ed25519_key.pub"] = (keys / f"host-{box.name}.pub").read_bytes()
        files[sshd.CONFIGURATION.lstrip("/")] = sshd.settings(box, generation).encode()
        files["etc/pam.d/sshd"] = sshd.pam(box, (rootfs / "etc/pam.d/sshd").read_text()).encode()
        files |= sshd.greetings(box)
        private["etc/ssh/ssh_host_ed25519_key"] = (keys / f"host-{box.name}").read_bytes()
        private |= sshd.secrets(box)
    for name, content in (files | private).items():
        _parents(upper / name)
        (upper / name).touch(mode=0o600 if name in private else 0o644)
        (upper / name).write_bytes(content)
    for name in _hidden(box):
        _hide(upper / name)


def _hidden(box: Box) -> list[str]:
    hidden = [] if has_launcher(box) else ["usr/local/bin/launch-notebook"]
    if not box.has_slurm:
        hidden += [f"usr/bin/{program}" for program in ONLY_ON_CLUSTER]
        hidden += ["etc/profile.d/lmod.sh", "usr/local/bin/podman"]
    return hidden


def _hide(path: Path) -> None:
    """Hide `path` in the overlay, in which a device 0:0 (whiteout) means a deleted file."""
    _parents(path)
    os.mknod(path, stat.S_IFCHR, os.makedev(0, 0))


def _parents(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
