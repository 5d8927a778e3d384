"""Before a job is submitted: check from the login node whether the image is there and JupyterLab is installed."""

from __future__ import annotations

import contextlib

from notebook_launcher.core.errors import ImageUnusable, LauncherError
from notebook_launcher.diagnosis.image_check import BY_FILE, INSPECT_IMAGE, judge_image, read_image
from notebook_launcher.hosts.base import Host
from notebook_launcher.planning.plan import Plan
from notebook_launcher.profiles.models import Environment
from notebook_launcher.session.record import Site

TIMEOUT = 10.0  # seconds: a slow file server must not delay a launch

# Prints the environment's folder if it exists and has no JupyterLab. An environment that sees packages of another one
# is not checked. On one line: csh, as a login shell, cannot quote more.
_CHECK = (
    'for d do [ -x "$d/bin/python" ] || [ -d "$d/conda-meta" ] || continue; '
    'grep -qs "system-site-packages *= *true" "$d/pyvenv.cfg" && exit; '
    'for f in "$d"/bin/jupyter-lab "$d"/lib/python3*/site-packages/jupyterlab; do [ -e "$f" ] && exit; done; '
    'echo "lacks $d"; exit; done'
)


def check_software(host: Host, site: Site, plan: Plan, *, same_machine: bool) -> str | None:
    """Return a warning about the software that the job will use, from what the login node sees; ``None``: nothing.

    One command, unless only the job can find out. Raises ``ImageUnusable`` for an image that the user named and that
    is surely not there: ``same_machine``, or in a folder that the compute nodes share.
    """
    environment, container = plan.environment, plan.container
    if container is None:
        return missing_jupyterlab(host, site, environment, None)
    path = site.expand(container)
    if not plan.container_typed or not path.startswith("/") or environment.container_command not in BY_FILE:
        return None
    try:
        text = host.run(["sh", "-s", "--", path], stdin=INSPECT_IMAGE.encode(), timeout=TIMEOUT).stdout
    except LauncherError:
        return None  # the job will tell
    image = read_image(path, text)
    if image.kind != "missing":
        return None
    finding = judge_image(image)
    if same_machine or image.shared:
        raise ImageUnusable(finding.found, why="Nothing was submitted.", hint=finding.hint)
    return f"{finding.found} This was checked on the login node alone; the job fails unless its compute node has it."


def missing_jupyterlab(host: Host, site: Site, environment: Environment, container: str | None) -> str | None:
    """Return a sentence if an environment lacks JupyterLab; ``None`` if it has it, or if that is not known.

    In a container, and with modules, only the job can find out.
    """
    if container or environment.modules or environment.activate:
        return None
    places = _folders(environment)
    if not places:
        return None
    with contextlib.suppress(LauncherError):
        words = ["sh", "-c", _CHECK, "look", *map(site.expand, places)]
        for line in host.run(words, timeout=TIMEOUT).stdout.splitlines():
            word, _, folder = line.partition(" ")
            if word == "lacks":
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
