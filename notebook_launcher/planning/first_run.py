"""The first launch on a cluster: asks for values that only the user knows, checks the answers and saves them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol, TypeVar

from notebook_launcher.core import events
from notebook_launcher.core.errors import AnswerMissing, LauncherError
from notebook_launcher.core.suggestions import did_you_mean
from notebook_launcher.core.text import joined
from notebook_launcher.core.view import View
from notebook_launcher.core.walltime import DEFAULT_WALLTIME, Walltime
from notebook_launcher.hosts.ssh_config import Destination, local_user, resolve
from notebook_launcher.planning.site_translation import refuse_if_closed
from notebook_launcher.planning.target import (
    THIS_MACHINE,
    LaunchOptions,
    LaunchTarget,
    LocalMachine,
    needs_host,
    resolve_target,
)
from notebook_launcher.profiles import ClusterProfile, load_configuration
from notebook_launcher.profiles.edit import (
    changed,
    new_profile_text,
    save_profile,
    user_profile_text,
)
from notebook_launcher.profiles.models import AccountRule
from notebook_launcher.profiles.store import profile_names, user_profile_path
from notebook_launcher.schedulers.missing import missing_scheduler

T = TypeVar("T")
_ATTEMPTS = 3  # to answer each question
_PLACEHOLDER = "ACCOUNT"  # for an account in a dry run; real ones are in lower case in Slurm
_FLAGS = {"account": "-A", "partition": "-p"}
_KEYS = {
    "host": ("host",),
    "user": ("user",),
    "account": ("defaults", "account"),
    "partition": ("defaults", "partition"),
}


class LinePrompts(Protocol):
    """Reads lines from the user's terminal."""

    @property
    def asks(self) -> bool:
        """Whether there is a terminal."""

    def line(self, text: str) -> str | None:
        """Ask a question and return the answer, stripped; ``None`` if there is none."""


NO_CLUSTER = (
    "No cluster is configured, so JupyterLab starts on this machine. To use a cluster: --cluster NAME (their names: "
    "launch-notebook clusters) or --host you@login. To stay here without this note: --cluster here"
)


def complete_options(
    options: LaunchOptions,
    here: LocalMachine,
    view: View,
    questions: LinePrompts,
    *,
    dry_run: bool = False,
    no_cluster: str = NO_CLUSTER,
) -> LaunchOptions:
    """Complete the options: with the cluster or login node, and with the values that its profile asks for.

    The values are saved; the caller saves a cluster that was chosen as the default (``save_new_default``). ``dry_run``:
    ask and save nothing; a required account gets a placeholder. ``no_cluster``: the note if none is configured and
    nobody can be asked. Raises ``AnswerMissing`` if there is no terminal or no valid answer, ``SchedulerMissing`` if no
    cluster is configured and this machine has an unsupported scheduler, and ``UsageError`` for an invalid walltime.
    """
    Walltime.parse(options.flags.get("time") or DEFAULT_WALLTIME)  # refused before anything is asked
    asks = questions.asks and not dry_run
    if _nothing_is_chosen(options, here):
        if here.others:  # this may be a login node, so the user has to ask explicitly for a start here
            raise missing_scheduler(here.hostname, here.others, is_here=True)
        if not asks:
            view.show(events.Note(no_cluster))
            return options
        answer = _which_cluster(view, questions)
        if answer not in (*profile_names(), THIS_MACHINE):
            view.show(events.Note(f"To save a profile for it afterwards: launch-notebook init {answer}"))
            return replace(options, host=answer)
        options = replace(options, cluster=answer, new_default=True)
    target = resolve_target(options, here)
    if target.cluster is not None:
        refuse_if_closed(target.profile)
        missing = list(_missing(target, options, here))
        if missing and asks:
            _ask_and_save(target, missing, view, questions)
            options = replace(options, notes_shown=target.notes)
        elif missing and not dry_run:
            raise _unanswered(target, missing, "Nobody could be asked.")
        elif missing:
            options = _with_placeholder(options, target, missing, view)
    return options


def _with_placeholder(
    options: LaunchOptions, target: LaunchTarget, missing: Sequence[str], view: View
) -> LaunchOptions:
    """Show what a launch would ask for, and return the options with a placeholder for a required account."""
    is_needed = "account" in missing and target.profile.account.required
    stands = f" Below, {_PLACEHOLDER} stands for your account." if is_needed else ""
    view.show(events.Note(f"Not set yet, and asked for at launch: {', '.join(missing)}.{stands}"))
    if not is_needed:
        return options
    return replace(options, flags={**options.flags, "account": _PLACEHOLDER}, placeholders=("account",))


def _nothing_is_chosen(options: LaunchOptions, here: LocalMachine) -> bool:
    if options.cluster or options.host or options.course or here.has_scheduler:
        return False
    configured = load_configuration()
    return not (configured.cluster or configured.course)


# --- which cluster -------------------------------------------------------------------------------------------


def _which_cluster(view: View, questions: LinePrompts) -> str:
    """Ask for a cluster, and return its name, or a login node as it was typed."""
    view.show(events.Note("Nothing is configured yet. These clusters are known; the first letters will do:"))
    from notebook_launcher.planning.profile_commands import list_usable_clusters

    clusters = list_usable_clusters()
    view.show(clusters)
    text = "Which one, or you@login? (ENTER: always this machine) "
    otherwise = AnswerMissing(
        "No cluster was named.", hint="name it: --cluster NAME, --host you@login, or --cluster here for this machine"
    )
    return _answer(text, lambda word: _cluster_named(word, clusters.clusters), view, questions, otherwise)


def _cluster_named(word: str, clusters: Sequence[events.ClusterEntry]) -> str:
    names = [*(one.cluster for one in clusters), THIS_MACHINE]
    if not word:
        return THIS_MACHINE
    if word in names or word in profile_names():  # for one that is not in the list, a later error says why
        return word
    begin = [name for name in names if name.startswith(word.lower())]
    if len(begin) == 1:
        return begin[0]
    if begin:
        raise _InvalidAnswer(f"That may be {' or '.join(begin)}.")
    if re.search(r"[@.]", word):
        return _login_node(word, clusters)
    hint = did_you_mean(word, names, cutoff=0.5)
    raise _InvalidAnswer(f"There is no cluster “{word}” here." + (f" {hint[0].upper()}{hint[1:]}" if hint else ""))


def _login_node(word: str, clusters: Sequence[events.ClusterEntry]) -> str:
    try:
        host = Destination.parse(word).host.lower()
    except LauncherError as error:
        raise _InvalidAnswer(error.what) from None
    known = next((one.cluster for one in clusters if one.host and _host_of(one.host) == host), None)
    if known:
        raise _UnlikelyAnswer(
            f"{host} is the login node of “{known}”. To use that profile, type {known}; to use none, type {word} again."
        )
    return word


def _host_of(text: str) -> str:
    try:
        return Destination.parse(text).host.lower()
    except LauncherError:
        return ""


# --- what a profile asks for ---------------------------------------------------------------------------------


def _missing(target: LaunchTarget, options: LaunchOptions, here: LocalMachine) -> Iterator[str]:
    """Yield the values that a profile needs and that are not set by a flag, a file or the ssh configuration."""
    profile = target.profile
    if needs_host(target, here):
        yield "host"
    if "user" in profile.ask and target.destination and not _user_is_known(target.destination):
        yield "user"
    if (profile.account.required or "account" in profile.ask) and not _is_set("account", profile, options.flags):
        yield "account"
    if "partition" in profile.ask and not _is_set("partition", profile, options.flags):
        yield "partition"


def _user_is_known(destination: Destination) -> bool:
    """Return whether the profile names a user, or the ssh configuration one that differs from the local user."""
    return bool(destination.user) or resolve(destination).user not in ("", local_user())


def _is_set(flag: str, profile: ClusterProfile, flags: Mapping[str, Any]) -> bool:
    tables = [profile.defaults, *([profile.cpu.flags, profile.gpu.flags] if flag == "partition" else [])]
    return flag in flags or any(table.get(flag) for table in tables)


def _unanswered(target: LaunchTarget, missing: Sequence[str], why: str = "No valid answer was given.") -> AnswerMissing:
    """Return the error that names the flags for the missing values, and the command that saves these."""
    keep = f"launch-notebook clusters edit {target.cluster} " + " ".join(f"--{what} …" for what in missing)
    by_flags = " ".join(f"{_FLAGS[what]} …" for what in missing if what in _FLAGS)
    rule = target.profile.account
    example = f" The account looks like {rule.example}." if "account" in missing and rule.example else ""
    return AnswerMissing(
        f"“{target.cluster}” needs your {' and '.join(_NAMES[what] for what in missing)}.",
        why=joined(*target.notes, f"{why}{example}"),
        hint=f"give it: {by_flags}   or save it: {keep}" if set(missing) <= set(_FLAGS) else f"save it: {keep}",
    )


_NAMES = {"host": "login node", "user": "user name", "account": "account", "partition": "partition"}


def _ask_and_save(target: LaunchTarget, missing: Sequence[str], view: View, questions: LinePrompts) -> None:
    """Ask for the missing values, and save them when all are answered; Ctrl-C before that saves nothing."""
    name = target.cluster or ""
    for line in (*target.notes, *target.profile.advice):
        view.show(events.Note(line))
    answers = {what: _ask(what, target, view, questions, _unanswered(target, missing)) for what in missing}
    if "host" in answers and "user" in target.profile.ask and "@" not in (answers["host"] or ""):
        login = Destination.parse(answers["host"] or "", config_file=target.ssh_config or target.profile.ssh_config)
        if not _user_is_known(login):
            known = replace(target, destination=login)
            answers["user"] = _ask("user", known, view, questions, _unanswered(target, ["user"]))
    values: dict[tuple[str, ...], Any] = {_KEYS[what]: answer for what, answer in answers.items() if answer}
    unanswered = [what for what, answer in answers.items() if not answer]
    if unanswered:  # the user pressed only ENTER, and is not asked again
        values[("ask",)] = [what for what in target.profile.ask if what not in unanswered]
    text = user_profile_text(name)
    path = save_profile(
        name, changed(new_profile_text(name) if text is None else text, values, str(user_profile_path(name)))
    )
    answered = ", ".join(f"{what} {answer}" if answer else f"no {what}" for what, answer in answers.items())
    view.show(events.Saved(answered, str(path)))


def _ask(what: str, target: LaunchTarget, view: View, questions: LinePrompts, otherwise: LauncherError) -> str:
    """Ask for one value, and return it; empty if the choice is left to the cluster."""
    profile, login = target.profile, target.destination
    if what == "host":
        return _answer(
            "The login node of your cluster, as ssh takes it (you@login.example.org): ",
            _host,
            view,
            questions,
            otherwise,
        )
    if what == "user":
        usual = local_user() or ""
        return _answer(
            f"Your user name on {login.host if login else 'it'}{f' [{usual}]' if usual else ''}: ",
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
            lambda word: _account(word, rule, target),
            view,
            questions,
            otherwise,
        )
    return _answer(
        "The partition; ENTER alone: the cluster's default: ",
        lambda word: _flag(word, what, target),
        view,
        questions,
        otherwise,
    )


class _InvalidAnswer(Exception):
    """An invalid answer, and why."""


class _UnlikelyAnswer(_InvalidAnswer):
    """An answer that looks wrong but may be right: it is accepted if it is given a second time."""


def _answer(
    text: str, check: Callable[[str], str], view: View, questions: LinePrompts, otherwise: LauncherError
) -> str:
    """Ask until an answer is valid, and return what ``check`` makes of it; after three attempts raise ``otherwise``."""
    doubted = None
    for _ in range(_ATTEMPTS):
        word = questions.line(text)
        if word is None:
            break
        try:
            return check(word)
        except _InvalidAnswer as problem:
            if isinstance(problem, _UnlikelyAnswer):
                if word == doubted:
                    return word
                doubted = word
            view.show(events.Note(str(problem)))
    raise otherwise


def _host(word: str) -> str:
    try:
        Destination.parse(word)
    except LauncherError as error:
        raise _InvalidAnswer(error.what) from None
    return _fits(word, ("host",))


def _user(word: str, profile: ClusterProfile) -> str:
    if not word:
        raise _InvalidAnswer("What is your name on the login node?")
    try:
        Destination.parse(profile.host or "login", user=word)
    except LauncherError:
        raise _InvalidAnswer(f"“{word}” cannot be a user name.") from None
    return _fits(word, ("user",))


def _account(word: str, rule: AccountRule, target: LaunchTarget) -> str:
    if not word and rule.required:
        raise _InvalidAnswer("Jobs are not accepted there without one.")
    endings = [ending for ending in (rule.gpu_suffix, rule.cpu_suffix) if ending]
    forms = [word, *(word + ending for ending in endings), *(word.removesuffix(ending) for ending in endings)]
    account = _flag(word, "account", target)
    if word and not any(map(rule.fits, forms)):
        like = f"; they look like {rule.example}" if rule.example else ""
        raise _UnlikelyAnswer(f"“{word}” does not look like an account there{like}. If it is one, type it again.")
    return account


def _flag(word: str, flag: str, _target: LaunchTarget) -> str:
    return _fits(word, ("defaults", flag)) if word else ""


def _fits(value: str, key: tuple[str, ...]) -> str:
    """Return a value if a profile accepts it for this key. Raises ``_InvalidAnswer``."""
    from notebook_launcher.profiles.layers import Layer
    from notebook_launcher.profiles.store import checked_profile

    data: Any = value
    for part in reversed(key):
        data = {part: data}
    try:
        checked_profile([Layer("", data)])
    except LauncherError as error:
        raise _InvalidAnswer(error.what.removeprefix(": ").removeprefix("[defaults] ")) from None
    return value
