"""What a checkup finds, judged from what was told: a home, a clock, the way to an image, a reservation. Pure."""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta, tzinfo
from typing import Literal

from notebook_launcher.core.errors import LauncherError
from notebook_launcher.core.request import Request, gpu_items
from notebook_launcher.core.timestamps import moment
from notebook_launcher.schedulers.cluster_info import Booking, Node

Result = Literal["ok", "fault", "warning", "unknown", "skipped"]

SKEW = timedelta(seconds=60)  # by so much two clocks may differ before it is worth a word
LITTLE_ROOM = 500 * 1024  # KiB; JupyterLab's own files, a kernel's history and a few notebooks
SLOW_LOGIN = 5.0  # seconds that a login shell may take to start
SOON_FULL = 95  # per cent of a quota


@dataclass(frozen=True)
class Finding:
    """What came of one check: the result, what was found, and for a fault or a warning what to do about it.

    ``who`` would stumble over a fault.
    """

    result: Result
    found: str
    mend: str = ""
    who: str = "A launch"


def ok(found: str) -> Finding:
    """Return that all is well."""
    return Finding("ok", found)


def fault(found: str, mend: str) -> Finding:
    """Return something that a launch will stumble over."""
    return Finding("fault", found, mend)


def warning(found: str, mend: str) -> Finding:
    """Return something that a launch gets over, and that somebody should look at."""
    return Finding("warning", found, mend)


def unknown(found: str, mend: str = "") -> Finding:
    """Return that it could not be found out."""
    return Finding("unknown", found, mend)


def of_error(error: LauncherError) -> Finding:
    """Return an error as a fault, with its own mend, and with the last line of a log that is not ours."""
    theirs = [line.strip() for line in error.log if line.strip() and "notebook-launcher:" not in line]
    log = f" The log's last word: {theirs[-1]}" if theirs else ""
    return fault(f"{error.what} {error.why}".strip() + log, error.mend or "see docs/errors.md")


# --- this machine, the login node ------------------------------------------------------------------------------


def judge_keys(modes: Mapping[str, int]) -> Finding | None:
    """Judge the modes of private key files here; ``None`` where there are none."""
    if not modes:
        return None
    open_ones = [path for path, mode in modes.items() if mode & 0o077]
    if open_ones:
        which = " ".join(open_ones)
        return warning(f"Others may read the private key {which}: ssh takes no such key.", f"chmod 600 {which}")
    return ok(f"private keys are yours alone: {', '.join(modes)}")


def judge_clock(there: datetime, here: datetime) -> Finding:
    """Judge the difference between the cluster's clock and ours; both have a zone."""
    ahead = there - here
    if abs(ahead) <= SKEW:
        return ok(f"{there:%H:%M:%S %z} there, as here")
    which = "ahead of" if ahead > timedelta(0) else "behind"
    return warning(
        f"The cluster's clock is {roughly(abs(ahead))} {which} that of this machine.",
        "let this machine take its time from the network: one-time codes depend on it. If it does so already, tell "
        "the cluster's support",
    )


def roughly(span: timedelta) -> str:
    """Return a span of time in the largest unit that tells it well: ``2 hours``, ``90 minutes``, ``1 day``."""
    seconds = span.total_seconds()
    units = ((86400, "day"), (3600, "hour"), (60, "minute"), (1, "second"))
    size, unit = next(
        (one for one in units if seconds >= 1.9 * one[0] or abs(seconds - one[0]) < 0.01 * one[0]), units[-1]
    )
    count = round(seconds / size)
    return f"{count} {unit}{'' if count == 1 else 's'}"


def judge_login_shell(shell: str, noise: Sequence[str], seconds: float) -> Finding:
    """Judge how a login shell starts: what it prints by itself does no harm, that it is slow does."""
    said = f"{shell or 'a shell'}, ready within {max(0.1, seconds):.1f} s"
    if noise:
        said += f"; it prints {len(noise)} line{'' if len(noise) == 1 else 's'} at each login, which does no harm"
    if seconds > SLOW_LOGIN:
        what = f"A login shell takes {seconds:.0f} s to start ({shell}): each question to the scheduler waits for it."
        return warning(what, "look into ~/.bash_profile and ~/.bashrc there: is it conda's start-up?")
    return ok(said)


# --- the home there --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Folder:
    """A folder on the cluster: whether a file could be written in it (``said``: why not), and its disk."""

    path: str
    writes: bool
    said: str = ""
    free: int | None = None  # KiB
    size: int | None = None  # KiB
    mode: str = ""  # as ls writes it; empty where it is not there yet


@dataclass(frozen=True)
class Home:
    """What one look at the files of a user on the cluster told."""

    home: Folder
    root: Folder
    shell: str = ""
    umask: str = ""
    modes: Mapping[str, str] | None = None  # of what sshd wants to be the user's alone


def read_home(text: str) -> Home:
    """Read what ``LOOK_AT_HOME`` printed: lines of a word and its value; what is missing is not known."""
    told: dict[str, str] = {}
    modes: dict[str, str] = {}
    for line in text.splitlines():
        word, _, value = line.partition(" ")
        if word == "mode":
            mode, _, path = value.partition(" ")
            modes[path] = mode
        elif word:
            told[word] = value.strip()
    return Home(_folder(told, "home"), _folder(told, "root"), told.get("shell", ""), told.get("umask", ""), modes)


def _folder(told: Mapping[str, str], which: str) -> Folder:
    size, _, free = told.get(f"{which}-disk", "").partition(" ")
    said = told.get(f"{which}-write", "nothing was told")
    return Folder(
        told.get(f"{which}-path", ""),
        said == "ok",
        "" if said == "ok" else said,
        int(free) if free.isdecimal() else None,
        int(size) if size.isdecimal() else None,
        told.get(f"{which}-mode", ""),
    )


def judge_home(home: Folder) -> Finding:
    """Judge whether the home can be written, and whether there is room."""
    if not home.writes:
        return _unwritable("Your home", home)
    if home.free is None:
        return ok(f"{home.path} can be written")
    room = f"{size(home.free)} free of {size(home.size or 0)}"
    if home.free < LITTLE_ROOM and (home.size or 0) > 2 * LITTLE_ROOM:
        return warning(f"{home.path} has little room left: {room}.", "make some: du -xh ~ | sort -h | tail")
    return ok(f"{home.path} can be written; {room}")


def judge_root(root: Folder) -> Finding:
    """Judge the folder in which session directories are made."""
    if not root.writes:
        return _unwritable("The folder for sessions", root, "; session_root in the profile names another one")
    if re.match(r"d....(w..|...w)|d.......w", root.mode):
        return warning(f"Others may write in {root.path} ({root.mode}).", f"chmod go-w {root.path}")
    made = "can be written" if root.mode else "can be made"
    return ok(f"{root.path} {made}")


def _unwritable(what: str, folder: Folder, besides: str = "") -> Finding:
    said = folder.said.rpartition(": ")[2] or folder.said
    if re.search(r"no space|quota|disk full", folder.said, re.I):
        return fault(f"{what} is full: nothing can be written in {folder.path} ({said}).",
                     f"make room: du -xh ~ | sort -h | tail; see: quota -s; df -h ~{besides}")  # fmt: skip
    mend = "read-only" if re.search(r"read-only", folder.said, re.I) else "no permission"
    if mend == "read-only":
        return fault(f"{what} cannot be written: {folder.path} is read-only at the moment.",
                     f"the cluster's support knows for how long{besides}")  # fmt: skip
    return fault(f"{what} cannot be written: {folder.path} ({said}).", f"see: ls -ld {folder.path}{besides}")


def judge_ssh_files(modes: Mapping[str, str]) -> Finding | None:
    """Judge who may write what an SSH server reads of a user; ``None`` where nothing was told."""
    if not modes:
        return None
    loose = [path for path, mode in modes.items() if len(mode) >= 9 and "w" in (mode[5], mode[8])]
    if loose:
        return warning(
            f"Others may write {', '.join(loose)} there: an SSH server that looks at this takes no key of yours.",
            f"on the login node: chmod go-w {' '.join(loose)}",
        )
    return ok("yours alone to write: " + ", ".join(modes))


def judge_quota(command: Sequence[str], exit_code: int, said: str) -> Finding:
    """Judge what a site's own command says of quotas, as far as that can be read by anybody but a person."""
    name = " ".join(command)
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    if exit_code != 0 or not lines:
        return unknown(f"{name} told nothing of use: {lines[-1] if lines else f'exit code {exit_code}'}.",
                       f"try it on the login node: {name}")  # fmt: skip
    full = [
        line for line in lines if any(float(part) >= SOON_FULL for part in re.findall(r"(\d+(?:\.\d+)?)\s*%", line))
    ]
    if full:
        return warning(f"{name} says: {full[0]}", "make room before a session needs it")
    return ok(f"{name}: {lines[-1]}")


def size(kibibytes: int) -> str:
    """Return a size as people say it: ``12 GiB``."""
    value = float(kibibytes)
    for unit in ("KiB", "MiB", "GiB", "TiB"):
        if value < 1024 or unit == "TiB":
            return f"{value:.0f} {unit}" if value >= 10 or unit == "KiB" else f"{value:.1f} {unit}"
        value /= 1024
    return f"{value:.0f} TiB"


# --- the scheduler ---------------------------------------------------------------------------------------------


def judge_programs(paths: Mapping[str, str], version: str) -> Finding:
    """Judge which of a scheduler's commands are found; the first one is that which queues."""
    first = next(iter(paths), "")
    missing = [name for name, path in paths.items() if not path]
    if first in missing:
        return fault(
            f"There is no {first} on the login node.",
            "is this a login node of that cluster, and does a login shell find it (type it there)? It may need a line "
            "in ~/.bash_profile, or another host in the profile",
        )
    if missing:
        return warning(f"{version}; not found: {', '.join(missing)}.",
                       "some of what a session offers will not work: ask the cluster's support")  # fmt: skip
    return ok(f"{version}: {', '.join(paths)}")


def judge_account(asked: str | None, yours: Sequence[str] | None, refusal: LauncherError | None) -> Finding:
    """Judge the account. ``yours``: those that may be used, ``None``: not told. ``refusal``: of the account itself."""
    there = f"Yours are: {', '.join(yours)}." if yours else ""
    if refusal is None:
        if asked is None:
            return ok("none is asked for" + (f"; yours are {', '.join(yours)}" if yours else ""))
        return ok(f"{asked} is yours" if yours and asked in yours else f"{asked} is accepted")
    near = difflib.get_close_matches(asked or "", yours or (), n=1)
    mend = f"did you mean -A {near[0]}?" if near else f"take one with -A NAME. {there}" if yours else refusal.mend
    if asked is None:
        return fault(f"{refusal.what} {there}".strip(), mend)
    if yours and asked not in yours:
        return fault(f"The account {asked} is not yours. {there}", mend)
    return fault(f"{refusal.what} {refusal.why}".strip(), mend)


def judge_booking(
    name: str, bookings: Sequence[Booking] | None, now: datetime, refusal: LauncherError | None
) -> Finding:
    """Judge a reservation. ``refusal``: of this reservation, where the scheduler was asked with it."""
    if bookings is None:
        return unknown(f"What there is of reservations was not told, {name} among them.")
    booking = next((one for one in bookings if one.name == name), None)
    if booking is None:
        names = [one.name for one in bookings]
        near = difflib.get_close_matches(name, names, n=1)
        there = f"There are: {', '.join(names)}." if names else "There is none."
        mend = f"did you mean {near[0]}?" if near else "ask whoever made it, or go without it"
        return fault(f"There is no reservation {name}. {there}", mend)
    when = f"{name}: {span_of(booking, now.tzinfo)}"
    end = moment(booking.end, now)
    if end is not None and end <= now:
        return fault(f"The reservation is over: {when}.", "go without it, or ask for another one")
    if refusal is not None:
        return fault(f"You may not use the reservation {name}. {refusal.why}".strip(),
                     f"it is for {whom(booking)}: ask whoever made it to add you")  # fmt: skip
    start = moment(booking.start, now)
    future = "; a job with it waits until then" if start is not None and start > now else ""
    return ok(f"{when}, for {whom(booking)}{future}")


def span_of(booking: Booking, zone: tzinfo | None) -> str:
    """Return from when to when a reservation lasts, on the cluster's clock."""
    moments = [moment(text) for text in (booking.start, booking.end)]
    first, last = (f"{at.astimezone(zone) if at.tzinfo else at:%Y-%m-%d %H:%M}" if at else "?" for at in moments)
    return f"{first} to {last}"


def whom(booking: Booking) -> str:
    """Return for whom a reservation is."""
    named = (("user", booking.users), ("account", booking.accounts))
    return " and ".join(f"{kind}{'s' if ',' in names else ''} {names}" for kind, names in named if names) or "all"


def covers(booking: Booking, first: date, last: date, now: datetime) -> bool:
    """Return whether a reservation lasts over whole days, both included, in the cluster's zone."""
    start, end = moment(booking.start, now), moment(booking.end, now)
    if start is None or end is None:
        return True  # nothing was told
    return start.astimezone(now.tzinfo).date() <= first and end.astimezone(now.tzinfo).date() >= last


def room_in(names: Iterable[str] | None, partitions: Collection[str], nodes: Iterable[Node]) -> list[Node]:
    """Return the nodes in service among those that are named, in the partitions where none are; each of them once."""
    wanted = set(names) if names else None
    there = (node for node in nodes if node.available)
    return list({
        node.name: node
        for node in there
        if (node.name in wanted if wanted else not partitions or node.partition in partitions)
    }.values())  # fmt: skip


def sessions_on(nodes: Iterable[Node], request: Request) -> int:
    """Return how many sessions with these GPUs some nodes have room for, by GPUs alone; each session is on one node."""
    asked = dict(max((gpu_items(flag, value or "") or [] for flag, value in request.flags.items()), key=_total))
    return sum(min((_having(node, kind) // count for kind, count in asked.items() if count), default=0)
               for node in nodes)  # fmt: skip


def _total(items: Iterable[tuple[str | None, int]]) -> int:
    return sum(count for _, count in items)


def _having(node: Node, kind: str | None) -> int:
    return sum(count for name, count in node.gpus.items() if kind in (None, name))


def gpu_types(request: Request) -> set[str]:
    """Return the types of GPU that a request names; none where any will do."""
    return {kind for flag, value in request.flags.items() for kind, _ in gpu_items(flag, value or "") or () if kind}


def gpus_of(nodes: Iterable[Node]) -> dict[str, int]:
    """Return how many GPUs of each type some nodes have; a node that stands there twice counts once."""
    found: dict[str, int] = {}
    for node in {node.name: node for node in nodes}.values():
        for kind, count in node.gpus.items():
            found[kind] = found.get(kind, 0) + count
    return found


def expand(names: str) -> list[str]:
    """Return the nodes in Slurm's short form: ``gpu[1-3,07],login`` → gpu1, gpu2, gpu3, gpu07, login."""
    found: list[str] = []
    for head, inside, tail in re.findall(r"([^,\[\]]+)(?:\[([^\]]*)\]([^,\[]*))?", names):
        if not inside:
            found.append(head)
        for part in filter(None, inside.split(",")):
            low, _, high = part.partition("-")
            numbers = range(int(low), int(high or low) + 1) if low.isdecimal() and (high or low).isdecimal() else ()
            found += [f"{head}{number:0{len(low)}d}{tail}" for number in numbers]
    return found


# --- an image --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Step:
    """One part of the way to an image. ``mode`` as ls writes it; ``enters``: whether this user gets further."""

    path: str
    mode: str = ""
    owner: str = ""
    group: str = ""
    enters: bool = True


@dataclass(frozen=True)
class Image:
    """An image as the login node sees it. ``kind``: sif, squashfs, folder, other, missing, or unreadable.

    ``beside``: where the way to it ends, the names that are there instead.
    """

    path: str
    kind: str
    bytes: int | None = None
    steps: tuple[Step, ...] = ()
    beside: tuple[str, ...] = ()


def read_image(path: str, text: str) -> Image:
    """Read what ``LOOK_AT_IMAGE`` printed."""
    kind, count = "unknown", None
    steps, beside = [], []
    for line in text.splitlines():
        words = line.split(" ", 5)
        if words[0] == "step" and len(words) == 6:
            _, enters, mode, owner, group, place = words
            steps.append(Step(place, mode, owner, group, enters == "yes"))
        elif words[0] == "beside":
            beside.append(line.partition(" ")[2])
        elif words[0] == "kind" and len(words) > 1:
            kind = words[1]
        elif words[0] == "bytes" and len(words) > 1 and words[1].isdecimal():
            count = int(words[1])
    return Image(path, kind, count, tuple(steps), tuple(beside))


def judge_image(image: Image) -> Finding:
    """Judge whether this user can read an image, and whether it is one."""
    closed = next((step for step in image.steps if not step.enters), None)
    if closed is not None:
        return fault(
            f"You may not enter {closed.path}, where the image {image.path} should be ({closed.mode}, "
            f"owner {closed.owner}, group {closed.group}).",
            f"ask {closed.owner} to let you in (chmod a+x, or your name in the group {closed.group}), or name another "
            "image after --",
        )
    if image.kind == "missing":
        last = image.steps[-1].path if image.steps else "/"
        missing = image.path.removeprefix(last).lstrip("/").partition("/")[0]
        near = difflib.get_close_matches(missing, image.beside, n=1)
        mend = f"see: ls {last}; name another one after --, or get it: launch-notebook image pull"
        return fault(f"There is no image {image.path}; what is there of the way to it ends at {last}.",
                     f"did you mean {last.rstrip('/')}/{near[0]}?" if near else mend)  # fmt: skip
    if image.kind == "unreadable":
        step = image.steps[-1] if image.steps else Step(image.path)
        return fault(f"You may not read the image {image.path} ({step.mode}, owner {step.owner}, group {step.group}).",
                     f"ask {step.owner or 'its owner'} for it: chmod a+r {image.path}")  # fmt: skip
    told = f"{image.path}" + (f", {size(image.bytes // 1024)}" if image.bytes else "")
    if image.kind in ("sif", "squashfs", "folder"):
        return ok(told)
    if image.kind == "other":
        return fault(f"{image.path} is no container image: it does not begin like one.",
                     "is it a definition file, or a copy that was cut off? see: ls -lL and file")  # fmt: skip
    return unknown(f"What {image.path} is was not told.")


def judge_for_others(image: Image) -> Finding:
    """Judge whether everybody can read an image, by the bits on the way to it."""
    groups: list[str] = []
    for step in image.steps:
        needed = "r" if step.path == image.path else "x"
        if _may(step.mode, 7, needed):
            continue
        if step.mode.endswith("+"):
            return unknown(f"{step.path} has rules of its own (an ACL, {step.mode}).", f"see: getfacl {step.path}")
        if not _may(step.mode, 4, needed):
            verb = "read" if needed == "r" else "enter"
            return fault(f"Nobody but {step.owner} may {verb} {step.path} ({step.mode}).",
                         f"chmod a+{needed} {step.path}")  # fmt: skip
        groups.append(step.group)
    if groups:
        names = ", ".join(dict.fromkeys(groups))
        return warning(f"Only members of the group {names} can read it.",
                       f"is every student one? see: getent group {groups[0]}")  # fmt: skip
    return ok("everybody on the cluster can read it")


def _may(mode: str, place: int, needed: str) -> bool:
    """Whether a mode as ls writes it grants something; ``place``: 4 for the group's letters, 7 for all others'."""
    letters = mode[place : place + 3]
    return letters[:1] == "r" if needed == "r" else letters[2:3] in ("x", "s", "t")
