"""Checks on the login node, before a job is submitted, whether its image, its modules and JupyterLab are there."""

from __future__ import annotations

import contextlib
import re
import shlex
import threading
from typing import Literal

from notebook_launcher.core.errors import ImageNotMade, ImageUnusable, LauncherError
from notebook_launcher.core.package_data import container_definitions
from notebook_launcher.diagnosis.image_check import BY_FILE, INSPECT_IMAGE, assess_image, read_image
from notebook_launcher.hosts.base import Host
from notebook_launcher.planning.plan import Plan
from notebook_launcher.profiles.models import Environment
from notebook_launcher.session.record import Site

TIMEOUT = 10.0  # seconds: a slow file server must not delay a launch
MAKES_IMAGES = (None, "apptainer", "singularity")  # the container commands for which the launcher can make images

_FILE = re.compile(r"/|~(?:/|$)|\$(?:HOME\b|\{HOME\})")  # the beginning of an image that is a file, before expansion

# Prints the environment's folder if it exists and has no JupyterLab; or if it does not exist, and is the only possible
# one. An environment that uses packages of another one is not checked. On one line, because csh, which may be the login
# shell, cannot quote a newline.
_CHECK = (
    '[ $# = 1 ] && [ ! -e "$1" ] && { echo "missing $1"; exit; }; '
    'for d do [ -x "$d/bin/python" ] || [ -d "$d/conda-meta" ] || continue; '
    'grep -qs "system-site-packages *= *true" "$d/pyvenv.cfg" && exit; '
    'for f in "$d"/bin/jupyter-lab "$d"/lib/python3*/site-packages/jupyterlab; do [ -e "$f" ] && exit; done; '
    'echo "lacks $d"; exit; done'
)


# Loads modules as the job will, and prints the first one that cannot be loaded, and whether this is Lmod; prints
# nothing if all can, or if there is no `module` command. The old C implementation of Environment Modules reports
# success even for a module that does not exist.
_LOAD_MODULES = r"""
type module >/dev/null 2>&1 || exit 0
while [[ ${1-} != -- ]]; do module use "$1" >/dev/null 2>&1 </dev/null; shift; done; shift
for name; do
  before=${LOADEDMODULES-}
  module load "$name" >/dev/null 2>&1 </dev/null && [[ -n ${LMOD_VERSION-} || ${LOADEDMODULES-} != "$before" ||
    ":${LOADEDMODULES-}" == *":$name"* ]] || {
      printf 'lacks%s %s\n' "${LMOD_VERSION:+-lmod}" "$name"; exit; }
done
"""


class SoftwareCheck:
    """Runs ``check_software`` in the background while the launch goes on; ``result`` returns or raises what it does."""

    def __init__(self, host: Host, site: Site, plan: Plan, *, same_machine: bool) -> None:
        self._warning: str | None = None
        self._error: Exception | None = None

        def check() -> None:
            try:
                self._warning = check_software(host, site, plan, same_machine=same_machine)
            except Exception as error:
                self._error = error

        self._thread = threading.Thread(target=check, name="software", daemon=True)
        self._thread.start()

    def result(self) -> str | None:
        """Wait for the result of the check, which takes at most ``TIMEOUT`` for each of its commands."""
        self._thread.join()
        if self._error is not None:
            raise self._error
        return self._warning


def check_software(host: Host, site: Site, plan: Plan, *, same_machine: bool, jupyterlab: bool = True) -> str | None:
    """Return a warning about the software that the job will use, from what the login node sees; ``None``: no warning.

    ``jupyterlab``: whether the job needs JupyterLab. This runs at most one command for the modules and one for the
    rest, and none if only the job can find out. Raises ``ImageUnusable`` if an image that the user named is certainly
    missing (on the ``same_machine``, or in a folder that the compute nodes share), and ``ImageNotMade`` if the user can
    make the missing image.
    """
    environment, container = plan.environment, plan.container
    missing = _missing_image(host, site, plan, same_machine=same_machine)  # first: it may refuse the launch
    if environment.modules and (module := _missing_module(host, site, environment, same_machine=same_machine)):
        return f"{module}\n{missing}" if missing else module
    if container is None and jupyterlab:
        return missing_jupyterlab(host, site, environment, None, same_machine=same_machine)
    return missing


def inspects_image(plan: Plan) -> bool:
    """Return whether ``check_software`` sends a script to inspect the plan's image, which it does only for a file."""
    return bool(_FILE.match(plan.container or "")) and plan.environment.container_command in BY_FILE


def _missing_image(host: Host, site: Site, plan: Plan, *, same_machine: bool) -> str | None:
    """Return a sentence if the plan's image is missing, else ``None``. Raises as ``check_software``."""
    if not inspects_image(plan):
        return None
    path = site.expand(plan.container or "")
    try:
        text = host.run_script("sh", INSPECT_IMAGE.encode(), [path], timeout=TIMEOUT).stdout
    except LauncherError:
        return None  # the job will find out
    image = read_image(path, text)
    if image.kind != "missing":
        return None
    finding = assess_image(image)
    if same_machine or image.shared:
        if plan.container_typed:
            raise ImageUnusable(finding.found, why="Nothing was submitted.", hint=finding.hint)
        if hint := image_hint(plan):
            raise ImageNotMade(
                f"Environment “{plan.environment_name}” needs an image that does not exist yet: {path}",
                why="Nothing was submitted.",
                hint=f"{hint}   or name other software with -- IMAGE, --module, --conda, --venv or --uv",
            )
    return f"{finding.found.rstrip('.')} {_where(same_machine)}"


def image_command(plan: Plan) -> str | None:
    """Return the command that builds or pulls the image of the plan's environment; ``None`` if neither is possible."""
    verb = image_verb(plan)
    if verb is None or plan.environment_name is None:
        return None
    return shlex.join(["launch-notebook", "image", verb, plan.environment_name, *plan.target.arguments()])


def image_hint(plan: Plan) -> str | None:
    """Return a hint for a missing image of the plan's environment; ``None`` as ``image_command``."""
    command = image_command(plan)
    return f"{image_verb(plan)} it once with: {command}" if command else None


def image_verb(plan: Plan) -> Literal["build", "pull"] | None:
    """Return how the user can make the image of the plan's environment; ``None`` if there is no way.

    Only the launcher's own definitions are built: any other one would be a file on this machine, and a profile may come
    from elsewhere, with a course, and could name a private key.
    """
    environment = plan.environment
    commands = {environment.container_command, plan.target.profile.container.command}
    if plan.container_typed or plan.environment_name is None or not commands.issubset(MAKES_IMAGES):
        return None
    if environment.definition in container_definitions():
        return "build"
    return "pull" if "://" in (environment.source or "") else None


def _missing_module(host: Host, site: Site, environment: Environment, *, same_machine: bool) -> str | None:
    """Return a sentence if a module cannot be loaded on the login node, with the command that lists what there is."""
    folders = map(site.expand, environment.module_use)
    words = ["bash", "-c", _LOAD_MODULES, "load", *folders, "--", *environment.modules]
    with contextlib.suppress(LauncherError):
        for line in host.run(words, login_shell=True, timeout=TIMEOUT).stdout.splitlines():
            word, _, name = line.partition(" ")
            if word in ("lacks", "lacks-lmod") and name in environment.modules:
                found = f"Module {name} cannot be loaded {_where(same_machine)}"
                lists = "spider" if word == "lacks-lmod" else "avail"  # spider finds more, but only Lmod has it
                return f"{found} To see what is available:\n  module {lists} {name.partition('/')[0]}"
    return None


def _where(same_machine: bool) -> str:
    """Return the end of a sentence about something that is missing."""
    if same_machine:
        return "here; the job will fail."
    return "on the login node; the job fails unless its compute node has it."


def missing_jupyterlab(
    host: Host, site: Site, environment: Environment, container: str | None, *, same_machine: bool = False
) -> str | None:
    """Return a sentence if an environment lacks JupyterLab, or does not exist; ``None`` if not, or if it is not known.

    In a container, and with modules, only the job can find out.
    """
    if container or environment.activate:
        return None
    places = _folders(environment)
    if not places:
        return None
    with contextlib.suppress(LauncherError):
        words = ["sh", "-c", _CHECK, "look", *map(site.expand, places)]
        for line in host.run(words, timeout=TIMEOUT).stdout.splitlines():
            word, _, folder = line.partition(" ")
            if word == "missing" and folder:
                found = f"There is no environment in {folder} {_where(same_machine)}"
                if environment.venv or not environment.uv:
                    return found
                return f"{found} Make it with:\n  uv sync --project {shlex.quote(site.expand(environment.uv))}"
            if word == "lacks" and not environment.modules:
                hint = how_to_add_jupyterlab(environment, container)
                return f"There is no JupyterLab in {folder}. Add it with:\n  {hint}"
    return None


def _folders(environment: Environment) -> list[str]:
    if environment.venv:
        return [environment.venv]
    if environment.uv:
        return [f"{environment.uv}/.venv"]
    if environment.conda and "/" in environment.conda:
        return [environment.conda]
    homes = (".conda", "micromamba", "miniforge3", "mambaforge", "miniconda3", "anaconda3")
    return [f"~/{home}/envs/{environment.conda}" for home in homes] if environment.conda else []


def how_to_add_jupyterlab(environment: Environment, container: str | None) -> str:
    """Return the command that adds JupyterLab to an environment of that kind."""
    packages = "jupyterlab ipykernel"
    if environment.venv:
        return f"{environment.venv}/bin/python -m pip install {packages}"
    if environment.uv:
        return f"uv add --project {environment.uv} {packages}"
    if environment.conda:
        name = environment.conda
        return f"conda install {'-p' if '/' in name else '-n'} {name} -c conda-forge {packages}"
    if container:
        return (
            f"build an image on top of it: a file mine.def with “Bootstrap: localimage”, “From: {container}”, and in "
            f"%post “python3 -m pip install {packages}”; then: launch-notebook image build ./mine.def"
        )
    if environment.modules:
        return (
            "load a module that has it as well (module spider jupyter), or make a virtual environment on top: "
            f'python3 -m venv --system-site-packages ~/lab; ~/lab/bin/pip install {packages}; and venv = "~/lab"'
        )
    return f"python3 -m venv ~/lab; ~/lab/bin/pip install {packages}; and --venv ~/lab"
