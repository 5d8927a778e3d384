"""Reads what the students' sessions write to the class folder on the cluster. None of it is trusted.

``jobscripts/login/class_folder.py`` opens the files on the login node and checks who owns them; this module checks
their content, which may be anything: of a report only a few known words and times are used, never a student's text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta

from notebook_launcher.classroom.student_states import Report
from notebook_launcher.core.errors import HostCommandFailed
from notebook_launcher.core.frozen import Frozen
from notebook_launcher.core.package_data import job_script
from notebook_launcher.core.text import one_line
from notebook_launcher.core.timestamps import parse_on_clock_of
from notebook_launcher.hosts.base import Host
from notebook_launcher.session.record import json_object

HEARTBEAT, RESULTS = "heartbeat.json", "results.jsonl"
MOST_OF_HEARTBEAT, MOST_OF_RESULTS = 2048, 1024 * 1024  # bytes
AT_ONCE = 10  # students whose results one command reads: at most 64 MiB are printed, and a hostile byte takes six
_TIMEOUT = 60.0
_AHEAD = timedelta(minutes=2)  # how far a node's clock may be ahead of the login node's
_STATES = ("starting", "running", "idle", "ended")
_WORD, _JOB = re.compile(r"[a-z][a-z-]{0,40}", re.A), re.compile(r"\d{1,12}", re.A)
_LONGEST_REASON = 200  # characters of a reason
_STICKY, _SETGID, _OTHERS_WRITE, _GROUP_WRITES = 0o1000, 0o2000, 0o002, 0o020


class FolderFacts(Frozen):
    """The class folder. ``mode``: its permission bits. ``problem``: why it cannot be read; then the rest is empty."""

    path: str = ""
    owner: str = ""
    group: str = ""
    mode: int = 0
    problem: str = ""

    @property
    def is_sticky(self) -> bool:
        """Whether only the owners of an entry and of the folder may rename or remove the entry."""
        return bool(self.mode & _STICKY)

    @property
    def is_open(self) -> bool:
        """Whether students can create their own folders in it, because its group or everybody may write."""
        return bool(self.mode & (_GROUP_WRITES | _OTHERS_WRITE))

    @property
    def passes_group_on(self) -> bool:
        """Whether new files in it belong to its group (the setgid bit)."""
        return bool(self.mode & _SETGID)


class StudentFile(Frozen):
    """One student's file: its text, or why it could not be read."""

    user: str
    text: str = ""
    problem: str = ""


def read_folder(
    host: Host, folder: str, file: str, most: int, users: Sequence[str] = ()
) -> tuple[FolderFacts, list[StudentFile]]:
    """Return the folder, and each student's file named ``file``. ``users``: read only theirs.

    ``most``: bytes read of each. With an empty name, everybody who has a folder is returned, with an empty text.
    Raises ``HostCommandFailed`` if the login node has no Python, and ``ConnectionLost``.
    """
    script = job_script("class_folder.py").read_bytes()
    words = ["python3", "-I", "-", folder, file, str(most), *users]
    answer = host.run(words, stdin=script, timeout=_TIMEOUT)
    lines = [json_object(line) for line in answer.stdout.split("\n") if line.strip()]
    if answer.exit_code != 0 or not lines:
        last = (answer.stderr.strip().splitlines() or ["it printed nothing"])[-1]
        raise HostCommandFailed(
            f"The class folder {folder} could not be read on {host.label}.",
            why=_short(last),
            hint="it needs python3 on the login node",
        )
    return _facts(lines[0]), list(_files(lines[1:]))


def _facts(line: Mapping[str, object]) -> FolderFacts:
    if "problem" in line:
        return FolderFacts(problem=_short(line["problem"]))
    mode = str(line.get("mode") or "")
    bits = int(mode, 8) if re.fullmatch("[0-7]{1,5}", mode) else 0
    return FolderFacts(_short(line.get("folder")), _short(line.get("owner")), _short(line.get("group")), bits)


def _files(lines: Sequence[Mapping[str, object]]) -> Iterator[StudentFile]:
    for line in lines:
        user, text, problem = (line.get(key) for key in ("user", "text", "problem"))
        if isinstance(user, str) and isinstance(text, str):
            yield StudentFile(_short(user), text)
        elif isinstance(user, str):
            yield StudentFile(_short(user), problem=_short(problem))


def _short(value: object) -> str:
    return one_line(str(value or ""), _LONGEST_REASON)


# --- reports of sessions -------------------------------------------------------------------------------------------


def read_reports(host: Host, folder: str, now: datetime) -> tuple[dict[str, Report], str]:
    """Return each student's report, and why some could not be read ("": all were).

    ``now``: by the cluster's clock. Raises ``ConnectionLost``.
    """
    try:
        facts, files = read_folder(host, folder, HEARTBEAT, MOST_OF_HEARTBEAT)
    except HostCommandFailed as error:
        return {}, f"{error.what} {error.why}".strip()
    if facts.problem:
        return {}, f"The class folder {facts.problem}."
    reports = {one.user: parse_report(one.user, one.text, now) for one in files if not one.problem}
    refused = [f"{one.user} ({one.problem})" for one in files if one.problem]
    refused += [f"{user} (it is damaged)" for user, report in reports.items() if report is None]
    problem = f"Some reports in the class folder are not read: {'; '.join(refused[:5])}." if refused else ""
    return {user: report for user, report in reports.items() if report is not None}, problem


def parse_report(user: str, text: str, now: datetime) -> Report | None:
    """Return the report in a heartbeat file; ``None`` if it is invalid or from the future."""
    data = json_object(text)
    job, state, cause = (data.get(key) for key in ("job", "state", "cause"))
    written, since = (parse_on_clock_of(str(data.get(key) or ""), now) for key in ("written", "since"))
    if not isinstance(job, str) or not _JOB.fullmatch(job) or state not in _STATES or written is None:
        return None
    if written > now + _AHEAD:
        return None
    interval, exit_code = data.get("interval"), data.get("exit_code")
    return Report(
        user,
        job,
        str(state),
        written,
        since if since and since <= written + _AHEAD else None,
        cause if isinstance(cause, str) and _WORD.fullmatch(cause) else "",
        exit_code if type(exit_code) is int and 0 <= exit_code < 256 else None,
        interval if type(interval) is int and 5 <= interval <= 600 else 30,
    )
