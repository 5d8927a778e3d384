"""Makes the lines of a bundled script that activate a conda or virtual environment, or a uv project. Pure.

Modules and images are not among them: the scripts have variables for these.
"""

from __future__ import annotations

import re
import shlex

from notebook_launcher.core.frozen import Frozen
from notebook_launcher.profiles.models import Environment

_LOADS_MODULES = re.compile(r"^(?:# shellcheck [^\n]*\n)?\[ -z \"\$MODULES\" \] \|\| module load [^\n]*\n", re.M)


class Preparation(Frozen):
    """Lines of bash to run ``before`` and ``after`` the modules are loaded."""

    before: tuple[str, ...] = ()
    after: tuple[str, ...] = ()


def preparation(environment: Environment) -> Preparation:
    """Return the lines for an environment, except those for its modules and its image."""
    before = [f"export {name}={shlex.quote(value)}" for name, value in environment.env.items()]
    before += [f"module use {_path(folder)} || exit" for folder in environment.module_use]
    after = []
    if environment.conda:
        after.append(f'eval "$(conda shell.bash hook)" && conda activate {_path(environment.conda)} || exit')
    if environment.venv:
        after.append(f"source {_path(environment.venv.rstrip('/') + '/bin/activate')} || exit")
    if environment.uv:
        after.append(f"source {_path(environment.uv.rstrip('/') + '/.venv/bin/activate')} || exit")
    own = environment.activate
    after += [own] if isinstance(own, str) else own  # code from the profile, unchanged
    return Preparation(tuple(before), tuple(filter(None, after)))


def prepared(text: str, lines: Preparation) -> str | None:
    """Return a script with these lines around the line that loads its modules; ``None`` if it has no such line."""
    place = _LOADS_MODULES.search(text)
    if place is None:
        return None
    before, after = ("".join(f"{line}\n" for line in some) for some in (lines.before, lines.after))
    return f"{text[: place.start()]}{before}{place[0]}{after}{text[place.end() :]}"


def _path(path: str) -> str:
    """Return a path quoted for bash; a home folder at its beginning is expanded where the script runs."""
    match = re.fullmatch(r"(?:~|\$HOME|\$\{HOME\})/(?P<rest>.*)", path, re.S)
    return f'"$HOME"/{shlex.quote(match["rest"])}' if match else shlex.quote(path)
