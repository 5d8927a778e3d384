"""The bundled job scripts for learners (templates): lists them, finds one by name, and fills it in for a cluster."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import field
from pathlib import Path

from notebook_launcher.core.errors import ScriptInvalid
from notebook_launcher.core.frozen import Frozen
from notebook_launcher.core.package_data import folder
from notebook_launcher.core.sbatch_directives import filled_in
from notebook_launcher.core.suggestions import did_you_mean
from notebook_launcher.core.text import printable
from notebook_launcher.profiles.models import Environment

_ENDING = ".sh"
_OURS = "jupyterlab"  # not a template: it runs the launcher's sessions
_SENTENCE = re.compile(r"^# (?P<name>[\w-]+)(?:\.sh)?: (?P<sentence>\S.*)$", re.M)
_TRAINING = "training"  # the folder that templates for training need
#: a variable that a template reads from its environment: ``MODULES=${MODULES:-}``
_VARIABLE = re.compile(
    r"^(?P<name>[A-Z][A-Z0-9_]*)=(?P<quote>\"?)\$\{(?P=name)(?P<sign>:?[-=])(?P<default>[^}\"]*)\}(?P=quote)", re.M
)
FOR_TRAINING = "TRAINING"  # the variable for that folder
FOR_MODULES, FOR_IMAGE = ("MODULES",), ("CONTAINER", "IMAGE")  # the usual names of the variables for these


class Template(Frozen):
    """A bundled job script. ``sentence``: what it does. ``needs``: files and folders that must be beside it.

    ``variables``: the environment variables that it reads, with their defaults.
    """

    name: str
    sentence: str
    path: Path
    needs: tuple[Path, ...] = ()
    variables: Mapping[str, str] = field(default_factory=dict)


def templates() -> list[Template]:
    """Return the templates, sorted by name."""
    return [_template(path) for path in sorted(folder("jobscripts").glob(f"*{_ENDING}")) if path.stem != _OURS]


def find_template(word: str) -> Template | None:
    """Return the template with that name, with or without its suffix; ``None`` if there is none."""
    name = word.removesuffix(_ENDING)
    return next((one for one in templates() if one.name == name), None)


def template_named(word: str) -> Template:
    """Return the template with that name. Raises ``ScriptInvalid``, suggesting the closest name."""
    found = find_template(word)
    if found is None:
        raise no_such_template(word, "There is no bundled script {}.")
    return found


def no_such_template(word: str, what: str, others: Sequence[str] = ()) -> ScriptInvalid:
    """Return the error for a name that no template has. ``what``: a sentence with ``{}`` for the word."""
    names = [one.name for one in templates()]
    shown = f"“{printable(word)}”"
    return ScriptInvalid(
        what.format(shown),
        why=f"The bundled scripts are: {', '.join(names) or 'none'}.",
        hint=did_you_mean(word, [*names, *others]) or "list them with: launch-notebook jobscript",
    )


def fill_in(template: Template, flags: Mapping[str, str | None], values: Mapping[str, str]) -> str:
    """Return a template's text with these flags as its ``#SBATCH`` lines, and its variables with these defaults.

    Values for which ``is_expanded`` is true are left out.
    """
    text = filled_in(template.path.read_text(encoding="utf-8"), flags)
    return _VARIABLE.sub(lambda found: _set(found, values), text)


def is_expanded(value: str) -> bool:
    """Whether a shell would expand anything but ``$HOME`` in a variable's value in the script."""
    return re.search(r"[}\"`\\\n]|\$(?!(HOME|USER)\b)", value) is not None


def software_of(variables: Mapping[str, str], environment: Environment, container: str | None) -> dict[str, str]:
    """Return the values of a template's variables for an environment: its modules, or its image."""
    values: dict[str, str] = {}
    if environment.modules:
        values |= {name: " ".join(environment.modules) for name in FOR_MODULES if name in variables}
    if container:
        values |= {name: container for name in FOR_IMAGE if name in variables}
    return values


def _set(found: re.Match[str], values: Mapping[str, str]) -> str:
    """Return the line with another default."""
    name, value = found["name"], re.sub("^~/", "$HOME/", values.get(found["name"], ""))
    if name not in values or is_expanded(value):
        return found[0]
    return f'{name}="${{{name}{found["sign"]}{value}}}"'


def _template(path: Path) -> Template:
    text = path.read_text(encoding="utf-8", errors="replace")
    about = _SENTENCE.search(text)
    variables = {found["name"]: found["default"] for found in _VARIABLE.finditer(text)}
    training = path.parent / _TRAINING
    return Template(
        path.stem,
        about["sentence"].strip() if about else "",
        path.resolve(),
        (training,) if variables.get(FOR_TRAINING) == _TRAINING and training.is_dir() else (),
        variables,
    )
