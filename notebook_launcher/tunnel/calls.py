"""Calls a job, so that it connects to the login node: the first step of the route ``reverse``."""

from __future__ import annotations

import contextlib
import re
from typing import NamedTuple

from notebook_launcher.core.errors import LauncherError, NodeUnreachable
from notebook_launcher.core.text import printable
from notebook_launcher.hosts.base import Host

CALL_TIMEOUT = 75.0  # seconds; reverse.sh itself gives up after 40

_ANOTHER = "take another route"
_ANSWER = re.compile(r"([a-z-]{4,12})(?: (.{0,300}))?")
_TAG = re.compile(r"[0-9A-Za-z]{8}", re.A)


class _Failure(NamedTuple):
    """What a failed call's result means; ``{login}`` is the login node, ``{node}`` the compute node."""

    what: str
    hint: str


_FAILURES = {
    "closed": _Failure(
        "The job does not wait for calls: it was started without this route, or has since been reached by another.",
        "launch a new session with --route reverse; this one cannot use it",
    ),
    "no-host-key": _Failure(
        "{login} has no readable public host key in /etc/ssh, so the job could not recognise it.",
        "ask the cluster's support to make the .pub files there readable, or take another route",
    ),
    "unsafe": _Failure(
        "The two ends cannot meet in /tmp on {login}: it must belong to root, have the sticky bit set, and have room.",
        "take another route",
    ),
    "silent": _Failure(
        "{node} did not answer within 40 s.", "see the job's log, then try again: the file server may be slow"
    ),
    "no-sshd": _Failure(
        "{node} has no SSH server.", "ask the cluster's support to install sshd, or take another route"
    ),
    "denied": _Failure(
        "{login} does not let {node} in without a password.",
        "on the login node, add a key of yours to ~/.ssh/authorized_keys, so that ssh from a compute node needs no "
        "password",
    ),
    "unknown-host": _Failure(
        "The machine that {node} reaches as {login} has a different host key.",
        "the cluster's support may know why; or take another route",
    ),
    "elsewhere": _Failure(
        "The machine that {node} reaches as {login} is a different one, or has a different /tmp.", "take another route"
    ),
    "unreached": _Failure("{node} cannot connect to {login}.", "take another route"),
}


def call_job(host: Host, directory: str, node: str) -> str:
    """Let a job connect to its login node, and return the tag of the connection, which waits 30 s to be joined.

    ``directory``: the session's. ``node``: the compute node's name. Raises ``NodeUnreachable``, with the job's reason.
    """
    answer = host.run(["bash", f"{directory}/reverse.sh", "call", directory], timeout=CALL_TIMEOUT)
    lines = answer.stdout.splitlines()
    found = _ANSWER.fullmatch(lines[-1].rstrip()) if lines else None
    cause, why = (found[1], found[2] or "") if found else ("", "")
    if cause == "open" and _TAG.fullmatch(why):
        return why
    failure = _FAILURES.get(cause) or _FAILURES["closed"]  # a session of an earlier version has no reverse.sh
    names = {"login": host.label, "node": node}
    hint = failure.hint if _ANOTHER in failure.hint else f"{failure.hint}; or {_ANOTHER}"
    hint = hint.replace(_ANOTHER, "let the launcher try the other routes: --route auto (see docs/ssh.md)")
    raise NodeUnreachable(failure.what.format(**names), why=printable(why), hint=hint)


def expect_no_calls(host: Host, directory: str) -> None:
    """Make a job stop waiting for calls, because its node is reached by another route; a failure is ignored."""
    with contextlib.suppress(LauncherError):
        host.run(["rm", "-f", f"{directory}/runtime/reverse/calls"])


def join_command(directory: str, tag: str) -> list[str]:
    """Return a command for the login node whose input and output are the connection that the job has made."""
    return ["bash", f"{directory}/reverse.sh", "join", directory, tag]
