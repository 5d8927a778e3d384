"""Assesses what the cluster reported: the home, the clock, the path to an image, a reservation. Pure."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import date, datetime, timedelta

from notebook_launcher.core.finding import Finding, fault, ok, unknown, warning
from notebook_launcher.core.frozen import Frozen
from notebook_launcher.core.quantities import counted, disk_size, duration_text
from notebook_launcher.core.request import Request, gpu_items
from notebook_launcher.core.text import whole_number
from notebook_launcher.core.timestamps import parse_iso
from notebook_launcher.diagnosis.image_check import Image
from notebook_launcher.schedulers.cluster_info import Node, ReservationInfo

SKEW = timedelta(seconds=60)  # clocks may differ by this much
LOW_SPACE = 500 * 1024  # KiB, enough for JupyterLab's own files, a kernel's history and a few notebooks
SLOW_LOGIN = 5.0  # seconds; a login shell that takes longer to start is slow
SOON_FULL = 95  # per cent of a quota


# --- this machine, the login node ------------------------------------------------------------------------------


def assess_keys(modes: Mapping[str, int]) -> Finding | None:
    """Assess the modes of local private key files; ``None`` if there are none."""
    if not modes:
        return None
    open_ones = [path for path, mode in modes.items() if mode & 0o077]
    if open_ones:
        which = " ".join(open_ones)
        return warning(f"Others may read the private key {which}: ssh refuses such a key.", f"chmod 600 {which}")
    return ok(f"private keys are yours alone: {', '.join(modes)}")


def assess_clock(there: datetime, here: datetime) -> Finding:
    """Assess the difference between the cluster's clock and that of this machine; both times have a zone."""
    ahead = there - here
    if abs(ahead) <= SKEW:
        return ok(f"{there:%H:%M:%S %z} there, as here")
    which = "ahead of" if ahead > timedelta(0) else "behind"
    return warning(
        f"The cluster's clock is {duration_text(abs(ahead).total_seconds())} {which} that of this machine.",
        "let this machine take its time from the network: one-time codes depend on it. If it does so already, tell "
        "the cluster's support",
    )


def assess_login_shell(shell: str, noise: Sequence[str], seconds: float, *, has_setup: bool = False) -> Finding:
    """Assess the start of a login shell: output does no harm, but slowness does.

    ``noise``: the lines that it prints; ``seconds``: how long it takes, including ``login_setup`` if ``has_setup``.
    """
    summary = f"{shell or 'a shell'}, ready within {max(0.1, seconds):.1f} s{', login_setup included' * has_setup}"
    if noise:
        summary += f"; it prints {counted(len(noise), 'line')} at each login, which does no harm"
    if seconds > SLOW_LOGIN:
        what = f"A login shell takes {seconds:.0f} s to start ({shell}): each question to the scheduler waits for it."
        suspects = f"{'login_setup in the profile, and ' * has_setup}~/.bash_profile and ~/.bashrc there"
        return warning(what, f"look into {suspects}; often it is conda's start-up")
    return ok(summary)


# --- the home there --------------------------------------------------------------------------------------------


class Folder(Frozen):
    """A folder on the cluster: whether a file could be written in it (``problem``: why not), and its disk space."""

    path: str
    writes: bool
    problem: str = ""
    free: int | None = None  # KiB
    size: int | None = None  # KiB
    mode: str = ""  # as ls prints it; empty if the folder does not exist yet


class Home(Frozen):
    """What ``INSPECT_HOME`` reported about the user's folders and settings on the cluster."""

    home: Folder
    root: Folder
    shell: str = ""
    umask: str = ""
    modes: Mapping[str, str] | None = None  # of the files that only the user should be able to write, for sshd


def read_home(text: str) -> Home:
    """Parse what ``INSPECT_HOME`` printed: lines of a word and its value; a missing line means not known."""
    values: dict[str, str] = {}
    modes: dict[str, str] = {}
    for line in text.splitlines():
        word, _, value = line.partition(" ")
        if word == "mode":
            mode, _, path = value.partition(" ")
            modes[path] = mode
        elif word:
            values[word] = value.strip()
    return Home(
        _folder(values, "home"), _folder(values, "root"), values.get("shell", ""), values.get("umask", ""), modes
    )


def _folder(values: Mapping[str, str], which: str) -> Folder:
    size, _, free = values.get(f"{which}-disk", "").partition(" ")
    written = values.get(f"{which}-write", "nothing was reported")
    return Folder(
        values.get(f"{which}-path", ""),
        written == "ok",
        "" if written == "ok" else written,
        whole_number(free),
        whole_number(size),
        values.get(f"{which}-mode", ""),
    )


def assess_home(home: Folder) -> Finding:
    """Assess whether the home is writable, and has enough space."""
    if not home.writes:
        return _unwritable("Your home", home)
    if home.free is None:
        return ok(f"{home.path} can be written")
    room = f"{disk_size(home.free)} free of {disk_size(home.size or 0)}"
    if home.free < LOW_SPACE and (home.size or 0) > 2 * LOW_SPACE:
        return warning(f"{home.path} has little room left: {room}.", "make room: du -xh ~ | sort -h | tail")
    return ok(f"{home.path} can be written; {room}")


def assess_root(root: Folder) -> Finding:
    """Assess the folder in which session directories are created."""
    if not root.writes:
        return _unwritable("The folder for sessions", root, "; session_root in the profile names another one")
    if re.match(r"d....(w..|...w)|d.......w", root.mode):
        return warning(f"Others may write in {root.path} ({root.mode}).", f"chmod go-w {root.path}")
    made = "can be written" if root.mode else "can be made"
    return ok(f"{root.path} {made}")


def _unwritable(what: str, folder: Folder, besides: str = "") -> Finding:
    why = folder.problem.rpartition(": ")[2] or folder.problem
    if re.search(r"no space|quota|disk full", folder.problem, re.I):
        return fault(
            f"{what} is full: nothing can be written in {folder.path} ({why}).",
            f"make room: du -xh ~ | sort -h | tail; see: quota -s; df -h ~{besides}",
        )
    hint = "read-only" if re.search(r"read-only", folder.problem, re.I) else "no permission"
    if hint == "read-only":
        return fault(
            f"{what} cannot be written: {folder.path} is read-only at the moment.",
            f"the cluster's support knows for how long{besides}",
        )
    return fault(f"{what} cannot be written: {folder.path} ({why}).", f"see: ls -ld {folder.path}{besides}")


def assess_ssh_files(modes: Mapping[str, str]) -> Finding | None:
    """Assess who may write the user's files that an SSH server reads; ``None`` if nothing was reported."""
    if not modes:
        return None
    loose = [path for path, mode in modes.items() if len(mode) >= 9 and "w" in (mode[5], mode[8])]
    if loose:
        return warning(
            f"Others may write {', '.join(loose)} there: an SSH server that checks this refuses your keys.",
            f"on the login node: chmod go-w {' '.join(loose)}",
        )
    return ok("yours alone to write: " + ", ".join(modes))


def assess_quota(command: Sequence[str], exit_code: int, output: str) -> Finding:
    """Assess the output of a site's quota command, as far as a program can parse it."""
    name = " ".join(command)
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    if exit_code != 0 or not lines:
        return unknown(
            f"{name} reported nothing useful: {lines[-1] if lines else f'exit code {exit_code}'}.",
            f"try it on the login node: {name}",
        )
    full = [
        line for line in lines if any(float(part) >= SOON_FULL for part in re.findall(r"(\d+(?:\.\d+)?)\s*%", line))
    ]
    if full:
        return warning(f"{name} says: {full[0]}", "make room before a session needs it")
    return ok(f"{name}: {lines[-1]}")


# --- the scheduler ---------------------------------------------------------------------------------------------


def assess_programs(paths: Mapping[str, str], version: str) -> Finding:
    """Assess which of a scheduler's commands exist; the first one is the one that submits."""
    first = next(iter(paths), "")
    missing = [name for name, path in paths.items() if not path]
    if first in missing:
        return fault(
            f"There is no {first} on the login node.",
            "is this a login node of that cluster, and does a login shell find it (type it there)? It may need a line "
            "in the profile's login_setup, or another host there",
        )
    if missing:
        return warning(
            f"{version}; not found: {', '.join(missing)}.",
            "some of what a session offers will not work: ask the cluster's support",
        )
    return ok(f"{version}: {', '.join(paths)}")


def covers(reservation: ReservationInfo, first: date, last: date, now: datetime) -> bool:
    """Return whether a reservation covers the days from ``first`` to ``last``, both included, in the cluster's zone.

    ``True`` if its times were not reported.
    """
    start, end = parse_iso(reservation.start, now), parse_iso(reservation.end, now)
    if start is None or end is None:
        return True
    return start.astimezone(now.tzinfo).date() <= first and end.astimezone(now.tzinfo).date() >= last


def nodes_in_service(names: Iterable[str] | None, partitions: Collection[str], nodes: Iterable[Node]) -> list[Node]:
    """Return the nodes in service, each once: of those named or, if none are, of those in the partitions."""
    wanted = set(names) if names else None
    there = (node for node in nodes if node.available)
    return list(
        {
            node.name: node
            for node in there
            if (node.name in wanted if wanted else not partitions or node.partition in partitions)
        }.values()
    )


def sessions_on(nodes: Iterable[Node], request: Request) -> int:
    """Return how many sessions with the request's GPUs fit on these nodes, one node for each; only GPUs are counted."""
    requested = dict(max((gpu_items(flag, value or "") or [] for flag, value in request.flags.items()), key=_total))
    return sum(
        min((_having(node, kind) // count for kind, count in requested.items() if count), default=0) for node in nodes
    )


def _total(items: Iterable[tuple[str | None, int]]) -> int:
    return sum(count for _, count in items)


def _having(node: Node, kind: str | None) -> int:
    return sum(count for name, count in node.gpus.items() if kind in (None, name))


_MOST_NODES = 20_000  # the most nodes of a list that are considered


def expand(names: str) -> list[str]:
    """Expand Slurm's short form of a node list: ``gpu[1-3,07],login`` → gpu1, gpu2, gpu3, gpu07, login."""
    found: list[str] = []
    for head, inside, tail in re.findall(r"([^,\[\]]+)(?:\[([^\]]*)\]([^,\[]*))?", names):
        if not inside:
            found.append(head)
        for part in filter(None, inside.split(",")):
            low, _, high = part.partition("-")
            first, last = whole_number(low), whole_number(high or low)
            if first is not None and last is not None:
                numbers = range(first, min(last + 1, first + _MOST_NODES))
                found += [f"{head}{number:0{len(low)}d}{tail}" for number in numbers]
            if len(found) > _MOST_NODES:
                break
    return found[:_MOST_NODES]


# --- an image --------------------------------------------------------------------------------------------------


def assess_for_others(image: Image) -> Finding:
    """Assess whether everybody can read an image, from the modes on the path to it."""
    groups: list[str] = []
    for step in image.steps:
        needed = "r" if step.path == image.path else "x"
        if _may(step.mode, 7, needed):
            continue
        if step.mode.endswith("+"):
            return unknown(f"{step.path} has rules of its own (an ACL, {step.mode}).", f"see: getfacl {step.path}")
        if not _may(step.mode, 4, needed):
            verb = "read" if needed == "r" else "enter"
            return fault(
                f"Nobody but {step.owner} may {verb} {step.path} ({step.mode}).", f"chmod a+{needed} {step.path}"
            )
        groups.append(step.group)
    if groups:
        names = ", ".join(dict.fromkeys(groups))
        return warning(
            f"Only members of the group {names} can read it.",
            f"check that every student is a member: getent group {groups[0]}",
        )
    return ok("everybody on the cluster can read it")


def _may(mode: str, place: int, needed: str) -> bool:
    """Return whether a mode, as ls prints it, grants ``r`` or ``x``; ``place``: 4 for the group, 7 for others."""
    letters = mode[place : place + 3]
    return letters[:1] == "r" if needed == "r" else letters[2:3] in ("x", "s", "t")
