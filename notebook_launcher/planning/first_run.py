"""The first launch on a cluster: what only the user knows is asked once, checked at once, and saved."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol, TypeVar

from notebook_launcher.core import events
from notebook_launcher.core.errors import AnswerMissing, LauncherError
from notebook_launcher.core.view import View
from notebook_launcher.hosts.ssh_config import Destination, resolve, user_here
from notebook_launcher.planning.plan import THIS_MACHINE, LaunchOptions, LocalMachine, Place, needs_host, place_so_far
from notebook_launcher.planning.profile_commands import list_clusters
from notebook_launcher.planning.site_translation import refuse_if_closed
from notebook_launcher.profiles import ClusterProfile, load_configuration
from notebook_launcher.profiles.edit import (
    changed,
    new_profile_text,
    save_default_cluster,
    save_profile,
    user_profile_text,
)
from notebook_launcher.profiles.models import AccountRule
from notebook_launcher.profiles.store import profile_names, user_profile_path

T = TypeVar("T")
_ASKED = 3  # times at most
_FLAGS = {"account": "-A", "partition": "-p"}
_PLACES = {
    "host": ("host",),
    "user": ("user",),
    "account": ("defaults", "account"),
    "partition": ("defaults", "partition"),
}


class Questions(Protocol):
    """Asks the user, line by line."""

    @property
    def asks(self) -> bool:
        """Whether there is a terminal to ask on."""

    def line(self, text: str) -> str | None:
        """Return the answer, without blanks around it; ``None`` where there is none."""


def settle(
    ask: LaunchOptions, here: LocalMachine, view: View, questions: Questions, *, look_only: bool = False
) -> LaunchOptions:
    """Return what was asked for, once everything is known that it takes: the cluster, and what its profile asks for.

    ``look_only``: nothing is asked and nothing kept. Raises ``AnswerMissing`` where nobody can be asked, or gives no
    answer that could be right.
    """
    asks = questions.asks and not look_only
    chosen = None
    if _nothing_is_chosen(ask, here):
        if not asks:
            view.show(events.Note(_NO_CLUSTER))
            return ask
        chosen = _which_cluster(view, questions)
        ask = replace(ask, cluster=chosen)
    place = place_so_far(ask, here)
    if place.cluster is not None:
        refuse_if_closed(place.profile)
        missing = list(_missing(place, ask, here))
        if missing and asks:
            _ask_and_keep(place, missing, view, questions)
        elif missing and not look_only:
            raise _unanswered(place, missing, "Nobody could be asked.")
        elif missing:
            view.show(events.Note(f"Not set yet, and asked for at launch: {', '.join(missing)}."))
    if chosen:  # a retired one under its own name: words in its dialect go on to be understood
        path = save_default_cluster(chosen)
        view.show(events.Saved(f"{_readable_name(chosen)} is the default cluster", str(path)))
        return replace(ask, cluster=None)  # it is configured now, and need not be typed again
    return ask


_NO_CLUSTER = (
    "No cluster is configured, so JupyterLab starts on this machine. To use a cluster: --cluster NAME (their names: "
    "launch-notebook clusters) or --host you@login. To stay here without this note: --cluster here"
)


def _nothing_is_chosen(ask: LaunchOptions, here: LocalMachine) -> bool:
    if ask.cluster or ask.host or ask.course or here.has_scheduler:
        return False
    configured = load_configuration()
    return not (configured.cluster or configured.course)


def _readable_name(name: str) -> str:
    return "this machine" if name == THIS_MACHINE else f"“{name}”"


# --- which cluster -------------------------------------------------------------------------------------------


def _which_cluster(view: View, questions: Questions) -> str:
    view.show(events.Note("Nothing is configured yet. These are the clusters that are known by name:"))
    view.show(list_clusters())
    text = "Which one? (its beginning will do; ENTER: this machine) "
    otherwise = AnswerMissing(
        "No cluster was named.", hint="name it: --cluster NAME, --host you@login, or --cluster here for this machine"
    )
    return _answer(text, _cluster_named, view, questions, otherwise)


def _cluster_named(word: str) -> str:
    names = [*profile_names(), THIS_MACHINE]
    if not word:
        return THIS_MACHINE
    if word in names:
        return word
    begin = [name for name in names if name.startswith(word.lower())]
    if len(begin) == 1:
        return begin[0]
    if begin:
        raise _NotThat(f"That may be {' or '.join(begin)}.")
    if re.search(r"[@.]", word):
        raise _NotThat("For a cluster that has no name here: Ctrl-C, then launch-notebook init you@login")
    near = difflib.get_close_matches(word.lower(), names, n=1, cutoff=0.5)
    raise _NotThat(f"There is no “{word}”." + (f" Did you mean {near[0]}?" if near else ""))


# --- what a profile asks for ---------------------------------------------------------------------------------


def _missing(place: Place, ask: LaunchOptions, here: LocalMachine) -> Iterator[str]:
    """Yield what a profile needs and nobody has set: by flag, in a file, or in the ssh configuration."""
    profile = place.profile
    if needs_host(place, here):
        yield "host"
    if "user" in profile.ask and place.destination and not _user_is_known(place.destination):
        yield "user"
    if (profile.account.required or "account" in profile.ask) and not _is_given("account", profile, ask.flags):
        yield "account"
    if "partition" in profile.ask and not _is_given("partition", profile, ask.flags):
        yield "partition"


def _user_is_known(destination: Destination) -> bool:
    """Whether it stands in the profile, or the user's ssh configuration has another name than that of this machine."""
    return bool(destination.user) or resolve(destination).user not in ("", user_here())


def _is_given(flag: str, profile: ClusterProfile, flags: Mapping[str, Any]) -> bool:
    tables = [profile.defaults, *([profile.cpu.flags, profile.gpu.flags] if flag == "partition" else [])]
    return flag in flags or any(table.get(flag) for table in tables)


def _unanswered(place: Place, missing: Sequence[str], why: str = "No valid answer was given.") -> AnswerMissing:
    """Return the error that names the flags, and the command that keeps the answers."""
    keep = f"launch-notebook clusters edit {place.cluster} " + " ".join(f"--{what} …" for what in missing)
    by_flags = " ".join(f"{_FLAGS[what]} …" for what in missing if what in _FLAGS)
    rule = place.profile.account
    example = f" The account looks like {rule.example}." if "account" in missing and rule.example else ""
    return AnswerMissing(
        f"“{place.cluster}” needs your {' and '.join(_NAMES[what] for what in missing)}.",
        why=f"{why}{example}",
        hint=f"give it: {by_flags}   or save it: {keep}" if set(missing) <= set(_FLAGS) else f"keep it: {keep}",
    )


_NAMES = {"host": "login node", "user": "user name", "account": "account", "partition": "partition"}


def _ask_and_keep(place: Place, missing: Sequence[str], view: View, questions: Questions) -> None:
    """Ask for what is missing, and write it down once all is answered: Ctrl-C before that leaves nothing."""
    name = place.cluster or ""
    for line in place.profile.advice:
        view.show(events.Note(line))
    answers = {what: _ask(what, place, view, questions, _unanswered(place, missing)) for what in missing}
    if "host" in answers and "user" in place.profile.ask and "@" not in (answers["host"] or ""):
        there = Destination.parse(answers["host"] or "", config_file=place.ssh_config or place.profile.ssh_config)
        if not _user_is_known(there):
            known = replace(place, destination=there)
            answers["user"] = _ask("user", known, view, questions, _unanswered(place, ["user"]))
    values: dict[tuple[str, ...], Any] = {_PLACES[what]: answer for what, answer in answers.items() if answer}
    open_ones = [what for what, answer in answers.items() if not answer]
    if open_ones:  # answered with none: not asked again
        values[("ask",)] = [what for what in place.profile.ask if what not in open_ones]
    text = user_profile_text(name)
    path = save_profile(
        name, changed(new_profile_text(name) if text is None else text, values, str(user_profile_path(name)))
    )
    answered = ", ".join(f"{what} {answer}" if answer else f"no {what}" for what, answer in answers.items())
    view.show(events.Saved(answered, str(path)))


def _ask(what: str, place: Place, view: View, questions: Questions, otherwise: LauncherError) -> str:
    """Return the answer to one question; "" for what the cluster is to choose."""
    profile, there = place.profile, place.destination
    if what == "host":
        return _answer(
            "The login node of your cluster, as ssh takes it (you@login.example.org): ",
            _host,
            view,
            questions,
            otherwise,
        )
    if what == "user":
        usual = user_here() or ""
        return _answer(
            f"Your user name on {there.host if there else 'it'}{f' [{usual}]' if usual else ''}: ",
            lambda word: _user(word or usual, profile),
            view,
            questions,
            otherwise,
        )
    if what == "account":
        rule = profile.account
        like = f", like {rule.example}" if rule.example else ""
        ending = ": " if rule.required else "; ENTER alone: your default one: "
        return _answer(
            f"The account (project) that pays{like}{ending}",
            lambda word: _account(word, rule, place),
            view,
            questions,
            otherwise,
        )
    return _answer(
        "The partition; ENTER alone: the cluster's default: ",
        lambda word: _flag(word, what, place),
        view,
        questions,
        otherwise,
    )


class _NotThat(Exception):
    """An answer that cannot be right, and why not."""


class _NotLikely(_NotThat):
    """An answer that looks wrong, but may be right: it is taken when it is given again."""


def _answer(text: str, check: Callable[[str], str], view: View, questions: Questions, otherwise: LauncherError) -> str:
    """Ask until an answer can be right, three times at most; then raise ``otherwise``."""
    doubted = None
    for _ in range(_ASKED):
        word = questions.line(text)
        if word is None:
            break
        try:
            return check(word)
        except _NotThat as problem:
            if isinstance(problem, _NotLikely):
                if word == doubted:
                    return word
                doubted = word
            view.show(events.Note(str(problem)))
    raise otherwise


def _host(word: str) -> str:
    try:
        Destination.parse(word)
    except LauncherError as error:
        raise _NotThat(error.what) from None
    return _fits(word, ("host",))


def _user(word: str, profile: ClusterProfile) -> str:
    if not word:
        raise _NotThat("What is your name on the login node?")
    try:
        Destination.parse(profile.host or "login", user=word)
    except LauncherError:
        raise _NotThat(f"“{word}” cannot be a user name.") from None
    return _fits(word, ("user",))


def _account(word: str, rule: AccountRule, place: Place) -> str:
    if not word and rule.required:
        raise _NotThat("No job is taken there without one.")
    endings = [ending for ending in (rule.gpu_suffix, rule.cpu_suffix) if ending]
    forms = [word, *(word + ending for ending in endings), *(word.removesuffix(ending) for ending in endings)]
    account = _flag(word, "account", place)
    if word and not any(map(rule.fits, forms)):
        like = f"; they look like {rule.example}" if rule.example else ""
        raise _NotLikely(f"“{word}” does not look like an account there{like}. If it is one, type it again.")
    return account


def _flag(word: str, flag: str, _place: Place) -> str:
    return _fits(word, ("defaults", flag)) if word else ""


def _fits(word: str, place: tuple[str, ...]) -> str:
    """Return a word that may stand in a profile."""
    from notebook_launcher.profiles.layers import Layer
    from notebook_launcher.profiles.store import checked_profile

    data: Any = word
    for part in reversed(place):
        data = {part: data}
    try:
        checked_profile([Layer("", data)])
    except LauncherError as error:
        raise _NotThat(error.what.removeprefix(": ").removeprefix("[defaults] ")) from None
    return word
