"""Finds the session that a user means, by its name, a part of it or its job, and describes sessions in messages."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime

from notebook_launcher.core.errors import SessionNotFound
from notebook_launcher.core.events import SessionEntry
from notebook_launcher.core.timestamps import parse_on_clock_of
from notebook_launcher.jobs.session_index import IndexedSession, SessionIndex

SHORTEST_PART = 3  # characters of a name that are enough to identify it
DATE = 8  # digits; a shorter number is a job id


def choose_session(
    index: SessionIndex, name: str, where: str, arguments: str = "", *, ended_too: bool = False
) -> IndexedSession:
    """Return the session with this name, else with this job id, else with this beginning or end of its name.

    Without a name, it is the only live session. ``arguments``: the flags that select its cluster, for hints.
    ``ended_too``: if no live session matches, an ended one may; without a name, the last one. A complete name always
    matches. Raises ``SessionNotFound``, listing the candidates if there are several.
    """
    live, ended = index.live, index.ended
    if name:
        whole = [entry for entry in index.entries if entry.session.id == name]
        found = whole or _matching(live, ended if ended_too else [], name)
    else:
        found = _without_next(live) or (ended[:1] if ended_too else [])
    if len(found) == 1:
        return found[0]
    if found:
        raise SessionNotFound(
            f"{len(found)} sessions match “{name}”." if name else f"There are {len(found)} sessions.",
            why=describe_sessions(found, index.now),
            hint=f"name one of them, for example: {short_name(found[0], found)}",
        )
    ended = [] if ended_too or not name else _matching([], ended, name)
    if len(ended) == 1:
        raise _has_ended(ended[0], index, arguments)
    if name in index.damaged:
        raise SessionNotFound(f"The record of session {name} is damaged.", why=f"It is on {where}.")
    missing = f"There is no session “{name}” on {where}." if name else f"There is no session on {where}."
    if not name and not live and index.ended:
        raise _none_is_active(index.ended[0], index, where, arguments)
    if not live:
        all_listed, launch = typed_command("list", arguments, "--all"), typed_command("", arguments)
        hint = f"list the ended ones with: {all_listed}" if name else f"start one: {launch}"
        raise SessionNotFound(missing, why="None is active there." if name else "", hint=hint)
    raise SessionNotFound(
        missing,
        why=f"Active sessions there:\n{describe_sessions(live, index.now)}",
        hint=f"name one of them, for example: {short_name(live[0], live)}",
    )


def _without_next(live: Sequence[IndexedSession]) -> list[IndexedSession]:
    """Leave out sessions that have not started and continue another one of these, because that one is meant."""
    names = {entry.session.id for entry in live}
    return [entry for entry in live if entry.summary.state != "pending" or entry.session.record.continues not in names]


def sessions_after(entries: Iterable[IndexedSession], entry: IndexedSession) -> list[IndexedSession]:
    """Return the sessions that continue a session, and each other, the newest last."""
    names, found = {entry.session.id}, []
    for other in sorted(entries, key=lambda one: one.session.record.created):
        if other.session.record.continues in names:
            names.add(other.session.id)
            found.append(other)
    return found


def _matching(live: Sequence[IndexedSession], ended: Sequence[IndexedSession], name: str) -> list[IndexedSession]:
    """Return the sessions with this job id, else with this part of a name; in both cases, live ones take precedence."""
    ways = ((_has_job, live), (_has_job, ended), (_matches_part, live), (_matches_part, ended))
    return next((found for is_meant, some in ways if (found := [entry for entry in some if is_meant(entry, name)])), [])


def is_named(index: SessionIndex, name: str) -> bool:
    """Whether a session there, live or ended, has this name, this part of a name, or this job id."""
    return name in index.damaged or any(
        entry.session.id == name or _has_job(entry, name) or is_part(entry.session.id, name) for entry in index.entries
    )


def _has_job(entry: IndexedSession, name: str) -> bool:
    return entry.session.job is not None and entry.session.job.id == name


def _matches_part(entry: IndexedSession, name: str) -> bool:
    return is_part(entry.session.id, name)


def is_part(session: str, name: str) -> bool:
    """Whether a session's name begins or ends with ``name``; a number that may be a job id does not count."""
    shortest = DATE if name.isdecimal() else SHORTEST_PART
    return len(name) >= shortest and (session.startswith(name) or session.endswith(name))


def typed_command(command: str, arguments: str, *words: str) -> str:
    """Return a command of the launcher as a user types it; ``arguments``: the flags that select the cluster."""
    return " ".join(filter(None, ["launch-notebook", command, arguments, *words]))


def _has_ended(entry: IndexedSession, index: SessionIndex, arguments: str) -> SessionNotFound:
    about = f" ({entry.summary.detail})" if entry.summary.detail else ""
    name = short_name(entry, index.entries)
    command = "results" if entry.summary.notebook else "logs"
    return SessionNotFound(
        f"Session {entry.session.id} {_describe_end(entry, index.now)}{about}.",
        why=f"Active sessions there:\n{describe_sessions(index.live, index.now)}" if index.live else "",
        hint=f"see: {typed_command(command, arguments, name)}, {typed_command('bill', arguments, name)}",
    )


def _none_is_active(last: IndexedSession, index: SessionIndex, where: str, arguments: str) -> SessionNotFound:
    name = short_name(last, index.entries)
    see = {"script": ("logs", "report"), "notebook": ("results", "bill")}.get(
        last.session.record.program, ("logs", "bill")
    )
    commands = ", ".join(typed_command(command, arguments, name) for command in see)
    return SessionNotFound(
        f"No session is active on {where}. The last one, {name}, {describe_state(last, index.now)}.",
        hint=f"see: {commands}; start one: {typed_command('', arguments)}",
    )


def describe_sessions(entries: Sequence[IndexedSession], now: datetime) -> str:
    """Return a line for each session that distinguishes it from the others."""
    return "\n".join(f"{short_name(entry, entries)} {describe_state(entry, now)}" for entry in entries)


def short_name(entry: IndexedSession, others: Iterable[IndexedSession]) -> str:
    """Return the end of a session's name if that identifies it, else the whole name."""
    return short_name_among(entry.session.id, (other.session.id for other in others))


def short_name_among(name: str, known: Iterable[str]) -> str:
    """Return the end of a session's name if it is none of the other ``known`` ones', else the whole name."""
    end = name[-4:]
    return name if end.isdecimal() or any(other != name and other.endswith(end) for other in known) else end


def describe_state(entry: IndexedSession, now: datetime) -> str:
    """Return a session's state as a phrase: ``runs on gpu1 since 14:02 (tf-gpu)``."""
    summary = entry.summary
    where = f" on {summary.node}" if summary.node else ""
    words = {
        "running": f"runs{where}{_since(summary.started, now)}",
        "starting": f"starts{where}{_since(summary.started, now)}",
        "suspended": f"is suspended{where}",
        "completing": f"is ending{where}",
        "pending": f"waits{_since(summary.created, now)}",
        "unknown": f"may run{where}{_since(summary.started or summary.created, now)}",
    }
    what = ", ".join(filter(None, [summary.runs, describe_progress(summary), summary.environment]))
    return words.get(summary.state, _describe_end(entry, now)) + (f" ({what})" if what else "")


def describe_progress(summary: SessionEntry) -> str:
    """Return a run's progress: ``3 of 9 cells``; empty if not known."""
    return f"{summary.done} of {summary.cells} cells" if summary.done is not None and summary.cells else ""


def _describe_end(entry: IndexedSession, now: datetime) -> str:
    if entry.summary.state == "ended":
        return f"ended{at}" if (at := _since(entry.summary.ended, now, "at")) else "has ended"
    return f"was cancelled{_since(entry.summary.ended, now, 'at')}" if entry.summary.ended else "is gone"


def _since(at: str | None, now: datetime, word: str = "since") -> str:
    """Return ``since 14:02``, on the cluster's clock, with the date unless it is today."""
    there = parse_on_clock_of(at, now)
    if there is None:
        return ""
    return f" {word} {there:%H:%M}" if there.date() == now.date() else f" {word} {there:%Y-%m-%d %H:%M}"
