"""Presets: launches that the user has saved, as they were typed, in a cluster's profile."""

from __future__ import annotations

import contextlib
import shlex
from collections.abc import Iterator, Mapping, Sequence

from notebook_launcher.core import events
from notebook_launcher.core.errors import ProfileError, UsageError
from notebook_launcher.core.suggestions import did_you_mean
from notebook_launcher.core.view import View
from notebook_launcher.planning.profile_commands import ConfirmPrompts, change_profile
from notebook_launcher.planning.target import LaunchOptions, LaunchTarget, LocalMachine, resolve_target
from notebook_launcher.profiles import load_profile
from notebook_launcher.profiles.store import user_profiles


def save_preset(name: str, words: Sequence[str], target: LaunchTarget, view: View, questions: ConfirmPrompts) -> None:
    """Save a launch as it was typed, without ``--cluster``, in the user's own file of the target's profile.

    Another preset of that name is replaced only if the user agrees. Raises ``UsageError`` if the user does not agree or
    cannot be asked, or if the target has no profile, and ``ProfileError`` for an invalid name.
    """
    if target.cluster is None:
        raise UsageError(
            f"The preset “{name}” cannot be saved: {target.name} has no profile.",
            why="A preset is saved in the profile of its cluster.",
            hint=f"make one: launch-notebook init {target.host or 'you@login.example.org'}",
        )
    text, before = shlex.join(_without_cluster(words)), target.profile.presets.get(name)
    if before is not None and before != text and not _may_replace(name, before, questions):
        raise UsageError(
            f"There is a preset “{name}” already.",
            why=f"It is: {before}",
            hint=f"choose another name, or remove it first: "
            f"launch-notebook clusters edit {target.cluster} --set presets.{name}=",
        )
    if before != text:
        change_profile(target.cluster, {("presets", name): text}, view)
    elsewhere = "" if target.is_default else f" --cluster {target.cluster}"
    view.show(events.Note(f"To launch it again:\n  launch-notebook again {name}{elsewhere}"))


def _without_cluster(words: Sequence[str]) -> list[str]:
    """Return the words of a launch without ``--cluster``: they are saved in that cluster's profile."""
    end = words.index("--") if "--" in words else len(words)
    pairs = zip(["", *words[: end - 1]], words[:end], strict=True) if end else ()
    kept = [word for before, word in pairs if "--cluster" not in (before, word) and not word.startswith("--cluster=")]
    return [*kept, *words[end:]]


def _may_replace(name: str, before: str, questions: ConfirmPrompts) -> bool:
    return questions.asks and bool(questions.confirm(f"The preset “{name}” is: {before}\nReplace it?"))


def find_preset(name: str, cluster: str | None, here: LocalMachine) -> list[str]:
    """Return the words of a saved launch, which name the cluster if it is not the default one.

    ``cluster``: the one that the user named; ``None``: the default one or, if that has no such preset, those of the
    user's own profiles. Raises ``UsageError`` if there is no such preset, or if there are several.
    """
    target = resolve_target(LaunchOptions(cluster=cluster), here)
    if text := target.profile.presets.get(name):
        return _with_cluster(text, cluster)
    saved = [] if cluster else _of_user_profiles()
    others = {place: presets[name] for place, presets in saved if presets.get(name)}
    if len(others) == 1:
        (place, text), *_ = others.items()
        return _with_cluster(text, place)
    if others:
        raise UsageError(
            f"{len(others)} profiles have a preset “{name}”.",
            why=f"They are: {', '.join(others)}.",
            hint=f"name the cluster: launch-notebook again {name} --cluster {next(iter(others))}",
        )
    known = [preset for preset, _ in known_presets(cluster, here)]
    raise UsageError(
        f"There is no preset “{name}”.",
        why=f"The presets are: {', '.join(known)}." if known else "",
        hint=did_you_mean(name, known) or f"save one: launch-notebook -t 2h --gpus 1 --save {name}",
    )


def known_presets(cluster: str | None, here: LocalMachine) -> list[tuple[str, str]]:
    """Return the names of the presets that ``find_preset`` finds, each with its launch."""
    known = dict(resolve_target(LaunchOptions(cluster=cluster), here).profile.presets)
    for _, presets in [] if cluster else _of_user_profiles():
        known = {**presets, **known}
    return sorted(known.items())


def _of_user_profiles() -> Iterator[tuple[str, Mapping[str, str]]]:
    for place in user_profiles():
        with contextlib.suppress(ProfileError):  # a launch with that profile reports the mistake
            yield place, load_profile(place).presets


def _with_cluster(text: str, cluster: str | None) -> list[str]:
    words = shlex.split(text)
    end = words.index("--") if "--" in words else len(words)
    is_named = any(word.partition("=")[0] in ("--cluster", "--host", "--course") for word in words[:end])
    # not at the beginning, which may be a notebook
    return words if is_named or not cluster else [*words[:end], "--cluster", cluster, *words[end:]]
