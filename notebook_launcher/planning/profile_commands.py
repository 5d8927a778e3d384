"""The command ``clusters``: lists, shows and edits profiles, and sets the default cluster."""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from notebook_launcher.core import events
from notebook_launcher.core.errors import AnswerMissing, ProfileError, UsageError
from notebook_launcher.core.text import joined
from notebook_launcher.core.view import View
from notebook_launcher.planning.site_translation import refuse_if_closed
from notebook_launcher.planning.target import THIS_MACHINE
from notebook_launcher.profiles import ClusterProfile, load_configuration, load_profile
from notebook_launcher.profiles.courses import saved_courses
from notebook_launcher.profiles.edit import (
    Values,
    changed,
    checked_text,
    hints,
    new_profile_text,
    save_default_cluster,
    save_profile,
    user_profile_text,
    write_private,
)
from notebook_launcher.profiles.layers import Layer, merge, origin
from notebook_launcher.profiles.site import site_file
from notebook_launcher.profiles.store import (
    given_profiles,
    profile_layers,
    profile_names,
    site_profiles,
    unknown_profile,
    user_profile_path,
    user_profiles,
)
from notebook_launcher.profiles.validation import cut


class ConfirmPrompts(Protocol):
    """Asks the user for confirmation."""

    @property
    def asks(self) -> bool:
        """Whether there is a terminal."""

    def confirm(self, text: str) -> bool | None:
        """Ask a yes-or-no question and return the answer; ``None`` if there is none."""


def list_clusters() -> events.ClustersListed:
    """Return all profiles, those in use first; an invalid profile is listed with its mistake."""
    chosen = load_configuration().cluster
    seen = [_cluster_entry(name, chosen) for name in profile_names()]
    seen.sort(key=lambda one: (one.status == "retired" or bool(one.unavailable), one.cluster))
    return events.ClustersListed(tuple(seen), tuple(saved_courses()))


def show_clusters(view: View) -> None:
    """Show all profiles and, if none of them is marked as the default cluster, what is the default."""
    listed = list_clusters()
    view.show(listed)
    if any(one.default for one in listed.clusters):
        return
    chosen = load_configuration()
    if chosen.course:
        _note_course(view)
    elif chosen.cluster == THIS_MACHINE:
        view.show(events.Note("This machine is the default; to change that: launch-notebook clusters use NAME"))
    else:
        why, wanted = "No default cluster is set.", "one"
        if chosen.cluster:
            why, wanted = f"The default cluster, “{cut(chosen.cluster)}”, has no profile.", "another one"
        view.show(events.Note(f"{why} To set {wanted}: launch-notebook clusters use NAME"))


def list_usable_clusters() -> events.ClustersListed:
    """Return the profiles to choose from, the user's own first, without retired and unavailable clusters."""
    listed = list_clusters()
    usable = [one for one in listed.clusters if one.status != "retired" and not one.unavailable]
    usable.sort(key=lambda one: (not one.origin.startswith("yours"), one.origin != "site"))
    return events.ClustersListed(tuple(usable), listed.courses)


def _cluster_entry(name: str, chosen: str | None) -> events.ClusterEntry:
    try:
        layers = profile_layers(name)
        profile = load_profile(name)
    except ProfileError as error:
        return events.ClusterEntry(
            name, "yours", "wrong", "", None, "", name == chosen, problem=f"{error.what} {error.hint}".strip()
        )
    whose = _origin(name, layers)
    return events.ClusterEntry(
        name,
        whose,
        profile.status,
        profile.description,
        profile.host,
        profile.scheduler,
        name == chosen,
        profile.successor,
        profile.unavailable.why if profile.unavailable else "",
    )


def _origin(name: str, layers: Sequence[Layer]) -> str:
    if name not in user_profiles():
        return "site" if name in site_profiles() else "bundled"
    if any(layer.name == str(site_file("clusters", f"{name}.toml")) for layer in layers[:-1]):
        return "yours on site"
    return "yours on bundled" if len(layers) > 1 and not Path(layers[0].name).is_absolute() else "yours"


def show_profile(name: str, view: View, *, merged: bool) -> None:
    """Show the files of a profile or, if ``merged``, the resulting values, each with its origin."""
    _refuse_unknown(name, "show")
    layers = profile_layers(name)
    load_profile(name)
    if merged:
        text = merged_text(layers)
    elif len(layers) == 1:
        text = layers[0].text
    else:
        text = "\n".join(f"# ---- {layer.name}\n{layer.text}" for layer in layers)
    view.show(events.ProfileShown(name, tuple(layer.name for layer in layers), text))


def _refuse_unknown(name: str, command: str) -> None:
    """Raise ``ProfileError`` if there is no such profile; the hint is the ``command`` with a name that was meant."""
    if name not in profile_names():
        raise unknown_profile(name, f"launch-notebook clusters {command} {{}}")


def merged_text(layers: Sequence[Layer]) -> str:
    """Return the merged layers as TOML; a comment after each key names its file and line."""
    import tomlkit

    document = tomlkit.document()
    _fill(document, merge(layers), layers, ())
    document.pop("base", None)
    return tomlkit.dumps(document)


def _fill(table: Any, data: Mapping[str, Any], layers: Sequence[Layer], prefix: tuple[str, ...]) -> None:
    import tomlkit

    plain = {key: value for key, value in data.items() if not _is_table(value)}
    for key, value in plain.items():
        item = tomlkit.item(value)
        item.comment(origin(layers, (*prefix, key)))
        table.add(key, item)
    for key, value in data.items():
        if key in plain:
            continue
        if isinstance(value, Mapping):
            below = tomlkit.table(is_super_table=bool(value) and all(_is_table(one) for one in value.values()))
            _fill(below, value, layers, (*prefix, key))
            table[key] = below
        else:
            tables = tomlkit.aot()
            for number, one in enumerate(value):
                below = tomlkit.table()
                _fill(below, one, layers, (*prefix, key, str(number)))
                tables.append(below)
            table[key] = tables


def _is_table(value: Any) -> bool:
    return isinstance(value, Mapping) or (
        isinstance(value, list) and bool(value) and all(isinstance(one, Mapping) for one in value)
    )


def use_cluster(name: str, view: View) -> None:
    """Set the default cluster.

    Raises ``ProfileError`` if there is no such profile, and ``ClusterUnavailable`` if no session can be launched there.
    """
    if name != THIS_MACHINE:
        _refuse_unknown(name, "use")
        profile = load_profile(name)
        refuse_if_closed(profile)
        if profile.status == "retired":
            instead = f"; its successor is {profile.successor}" if profile.successor else ""
            view.show(events.Note(f"{name} is retired{instead}."))
    save_as_default(name, view)
    _note_course(view)


def save_as_default(name: str, view: View) -> None:
    """Save the default cluster, or this machine, without checking it, and say so. Raises ``ProfileError``."""
    path = save_default_cluster(name)
    what = "this machine" if name == THIS_MACHINE else f"“{name}”"
    view.show(events.Saved(f"{what} is the default cluster", str(path)))


def unset_cluster(view: View) -> None:
    """Remove the user's default cluster. Raises ``ProfileError``."""
    path = save_default_cluster(None)
    view.show(events.Saved("there is no default cluster", str(path)))
    if left := load_configuration().cluster:
        view.show(events.Note(f"On this machine, the default for everybody is “{left}”."))
    _note_course(view)


def _note_course(view: View) -> None:
    if course := load_configuration().course:
        view.show(events.Note(f"The course “{course}” takes precedence, and names its own cluster."))


# --- editing a profile -----------------------------------------------------------------------------------------------


def change_profile(name: str, values: Values, view: View) -> None:
    """Set values in the user's own file of a profile; ``None`` removes a key. Raises ``ProfileError``."""
    text = user_profile_text(name)
    if text is None and name not in given_profiles() and not values.get(("host",)):
        _refuse_unknown(name, "edit")
        load_profile(name)
    before = new_profile_text(name) if text is None else text
    after = changed(before, values, str(user_profile_path(name)))
    with _without_line_number(name, before):
        _refuse_if_retired(name, checked_text(name, after), values)
        path = save_profile(name, after)
    saved = ", ".join(
        f"{'.'.join(place)} = {value}" if value is not None else f"no {'.'.join(place)}"
        for place, value in values.items()
    )
    view.show(events.Saved(saved, str(path)))


# the keys that are still read from a retired cluster's profile; all others come from its successor's
_OF_RETIRED = ("base", "description", "status", "successor", "notice", "docs", "unavailable", "translations")


def _refuse_if_retired(name: str, profile: ClusterProfile, values: Values) -> None:
    """Raise ``ProfileError`` for keys of a retired cluster that no launch would read."""
    unread = [place for place, value in values.items() if value is not None and place[0] not in _OF_RETIRED]
    if unread and profile.status == "retired" and profile.successor:
        raise ProfileError(
            f"{name} is retired: a launch goes to {profile.successor}, and does not read {'.'.join(unread[0])} here.",
            hint=f"set it there: launch-notebook clusters edit {profile.successor} …   or, where {name} is still in "
            f"use: launch-notebook clusters edit {name} --set status=active",
        )


@contextlib.contextmanager
def _without_line_number(name: str, before: str) -> Iterator[None]:
    """Remove the line number from an error about values that are not in the file yet."""
    try:
        yield
    except ProfileError as error:
        checked_text(name, before)  # a mistake that is in the file already is reported with its line
        what = re.sub(rf"^{re.escape(str(user_profile_path(name)))}:\d+: ", "", error.what)
        raise ProfileError(f"Nothing was changed: {what}", why=error.why, hint=error.hint) from None


def edit_profile(name: str, view: View, questions: ConfirmPrompts) -> None:
    """Open the user's own file of a profile in the user's editor, until it is valid or the user gives up.

    The editor opens a copy, so that an invalid file never replaces a valid one; an invalid copy is kept, and opened
    again the next time. If the file itself was changed in the meantime, the user decides. Raises ``ProfileError`` if
    the user gives up, ``UsageError`` if there is no editor or it failed, and ``AnswerMissing`` without a terminal.
    """
    path = user_profile_path(name)
    if not questions.asks:
        raise AnswerMissing(
            "There is no terminal for an editor.",
            why=f"The file is {path}.",
            hint=f"launch-notebook clusters edit {name} --user … --account … --set KEY=VALUE",
        )
    before = _current_text(name)
    _warn_if_retired(name, view)
    copy = path.parent / "unfinished" / path.name
    began = copy.with_suffix(".began")  # contains the digest of the file from which the copy was made
    if copy.exists() and (not began.exists() or _read(began) != _digest(_read(copy))):
        view.show(events.Note(f"This is what you wrote last time: {copy}"))
        if not began.exists() or _read(began) != _digest(before):
            _confirm_replacing(f"{path} is not what it was when you began.", path, copy, questions)
            write_private(began, _digest(before))
    else:
        write_private(began, _digest(before))
        write_private(copy, before)
    while (problem := _edited(copy, name, before)) is not None:
        for line in filter(None, (problem.what, problem.why, f"→ {problem.hint}" if problem.hint else "")):
            view.show(events.Note(line))
        if not questions.confirm("Open the editor again?"):
            raise ProfileError(
                problem.what,
                why=joined(problem.why, f"What you wrote is kept in {copy}"),
                hint=f"go on with it: launch-notebook clusters edit {name}",
            )
    text = _read(copy)
    if text != before:
        if _current_text(name) != before:
            _confirm_replacing(f"{path} was changed while you wrote.", path, copy, questions)
        save_profile(name, text)
    _forget(copy)
    if text != before:
        view.show(events.Saved(f"your changes to {name}", str(path)))
    else:
        view.show(events.Note("Nothing was changed."))


def _current_text(name: str) -> str:
    """Return the text of the user's own file of a profile, or a template if there is none."""
    path = user_profile_path(name)
    if path.exists():
        return _read(path)
    _refuse_unknown(name, "edit")
    return new_profile_text(name) + hints(load_profile(name))


def _warn_if_retired(name: str, view: View) -> None:
    with contextlib.suppress(ProfileError):  # it may be invalid, which may be why the user edits it
        profile = load_profile(name)
        if profile.status == "retired" and profile.successor:
            instead = f"launch-notebook clusters edit {profile.successor}"
            view.show(events.Note(f"{name} is retired: of its file only the translations are read. Better: {instead}"))


def _confirm_replacing(what: str, path: Path, copy: Path, questions: ConfirmPrompts) -> None:
    if not questions.confirm(f"{what} Replace it with what you wrote?"):
        raise ProfileError(
            what,
            why=f"It stays as it is now. What you wrote is kept in {copy}",
            hint=f"put into {path} what you need of it, and remove it",
        )


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _forget(copy: Path) -> None:
    copy.unlink()
    copy.with_suffix(".began").unlink(missing_ok=True)


def _edited(copy: Path, name: str, before: str) -> ProfileError | None:
    """Open the copy in the editor, and return the first mistake in it, if any.

    Raises ``UsageError`` if there is no editor, or it failed.
    """
    try:
        done = subprocess.run([*_editor(), str(copy)], check=False)
    except (OSError, UsageError) as error:
        if _read(copy) == before:
            _forget(copy)
        if isinstance(error, UsageError):
            raise
        raise UsageError(f"The editor could not be opened: {error}", hint="name one: export EDITOR=nano") from None
    if done.returncode != 0:
        kept = f" What you wrote is kept in {copy}" if _read(copy) != before else ""
        if not kept:
            _forget(copy)
        raise UsageError(f"The editor ended with {done.returncode}; nothing was changed.{kept}")
    try:
        checked_text(name, _read(copy))
    except ProfileError as error:
        return error
    return None


def _read(path: Path) -> str:
    try:
        return path.read_bytes().decode("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise ProfileError(f"{path} cannot be read.", why=str(error)) from None


def _editor() -> list[str]:
    """Return the command of the user's editor. Raises ``UsageError`` if there is none."""
    for variable in ("VISUAL", "EDITOR"):
        if value := os.environ.get(variable, "").strip():
            try:
                return shlex.split(value, posix=os.name != "nt")
            except ValueError as error:
                raise UsageError(f"${variable} is not a command: {error}", hint=f"export {variable}=nano") from None
    for name in ("sensible-editor", "nano", "vi", "notepad"):
        if shutil.which(name):
            return [name]
    raise UsageError("There is no editor.", hint="name one: export EDITOR=nano")
