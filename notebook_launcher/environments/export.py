"""``env export``: writes files from which an environment can be created again elsewhere."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from notebook_launcher.core import events
from notebook_launcher.core.errors import EnvironmentFailed, UsageError
from notebook_launcher.core.interrupts import Interrupts
from notebook_launcher.core.text import one_line
from notebook_launcher.core.view import View
from notebook_launcher.environments.check import LONGEST_LINE, probe_environment
from notebook_launcher.hosts.base import Prompts
from notebook_launcher.planning.plan import Plan
from notebook_launcher.session.context import Context
from notebook_launcher.session.open_context import open_context
from notebook_launcher.session.record import json_object


def export_folder(name: str | None) -> Path:
    """Return the folder for an exported environment; a course's name such as ``../../x`` must not act as a path."""
    return Path(re.sub(r"[^\w.-]+", "-", name or "").strip(".-") or "environment")


def export_environment(
    plan: Plan, target: Path, view: View, prompts: Prompts, interrupts: Interrupts, *, force: bool = False
) -> None:
    """Write the files that recreate an environment into a local folder. Raises ``EnvironmentFailed``."""
    if target.exists() and not target.is_dir():
        raise UsageError(f"{target} is not a folder.", hint="name a folder with -o")
    if target.exists() and any(target.iterdir()) and not force:
        raise UsageError(f"The folder {target} is not empty.", hint="name another one with -o, or give --force")
    with open_context(plan.target, view, prompts, interrupts) as context:
        found = probe_environment(plan, context, "freeze", node=False)
        image = _image_record(plan, context)
    if "packages" not in found.values:
        why = (found.output or ["Nothing was answered."])[-1]
        raise EnvironmentFailed(f"The environment “{plan.environment_name}” could not be inspected.", why=why)
    files = exported_files(plan, found.values, image)
    target.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (target / name).write_text(text, encoding="utf-8")
        view.show(events.Saved(f"{name} of {plan.environment_name or 'the environment'}", str(target / name)))


def _image_record(plan: Plan, context: Context) -> Mapping[str, object]:
    if plan.container is None:
        return {}
    return json_object(context.host.read_file(f"{context.site.expand(plan.container)}.json") or b"")


def exported_files(plan: Plan, values: Mapping[str, object], image: Mapping[str, object]) -> dict[str, str]:
    """Return the files that describe an environment, by name.

    pip and conda act on what these files contain, so only names with versions are written to them.
    """
    name = plan.environment_name or "environment"
    packages, no_packages = _divided(values.get("packages"), _PACKAGE)
    conda, no_conda = _divided(values.get("conda"), _CONDA)
    left_out = [f"# left out, as it is not a name and a version: {item}" for item in (*no_conda, *no_packages)]
    files: dict[str, str] = {}
    readme = [
        f"# {name}",
        "",
        f"Written by launch-notebook, from {values.get('prefix', 'somewhere')} (Python {values.get('python', '?')}).",
        "",
    ]
    if plan.environment.modules:
        files["modules.txt"] = "".join(f"{module}\n" for module in plan.environment.modules)
        readme += ["Load the modules first:", "", f"    module load {' '.join(plan.environment.modules)}", ""]
    if plan.container:
        digest, source = (one_line(str(image.get(key) or ""), LONGEST_LINE) for key in ("digest", "source"))
        files["container.txt"] = f"{plan.container}\n{digest or 'digest unknown'}\n{source}\n"
        readme += [f"It runs in the image {plan.container}; container.txt has its digest, and what it was made of.", ""]
    if conda:
        channels = sorted(set(_divided(values.get("channels"), _CHANNEL)[0])) or ["conda-forge"]
        lines = [*left_out, f"name: {name}", "channels:", *(f"  - {channel}" for channel in channels), "dependencies:"]
        lines += [f"  - {item}" for item in conda]
        lines += ["  - pip:", *(f"      - {item}" for item in packages)] if packages else []
        files["environment.yml"] = "\n".join(lines) + "\n"
        readme += [
            "Create it again with:",
            "",
            f"    launch-notebook env create environment.yml --name {name}",
            f"    conda env create -n {name} -f environment.yml",
            "",
        ]
    else:
        files["requirements.txt"] = "".join(f"{item}\n" for item in (*left_out, *packages))
        if local := [item for item in packages if "+" in item]:
            files["requirements.txt"] = f"{_INDEX_MISSING}\n# --extra-index-url …\n" + files["requirements.txt"]
            readme += [
                f"The Python Package Index does not have {', '.join(local)}: versions with a + are in",
                "an index of their own. PyTorch's is named in torch-cpu.def, among the launcher's definition",
                "files. Put it into the second line of requirements.txt.",
                "",
            ]
        readme += [
            "Create it again with:",
            "",
            f"    launch-notebook env create requirements.txt --name {name}",
            "    python3 -m venv DIR; DIR/bin/pip install -r requirements.txt",
            "",
        ]
    files["README.md"] = "\n".join(readme).rstrip("\n") + "\n"
    return files


_INDEX_MISSING = "# Name the index that has the versions with a +, and take the # away:"


# the formats in which probe.py writes packages
_PACKAGE = re.compile(r"[A-Za-z0-9][\w.-]*==[\w.!+-]+", re.A)
_CONDA = re.compile(r"\w[\w.-]*=[\w.!+-]+", re.A)
_CHANNEL = re.compile(r"\w[\w.-]*", re.A)


def _divided(value: object, pattern: re.Pattern[str]) -> tuple[list[str], list[str]]:
    """Return the texts in a list that match a pattern, and those that do not."""
    texts = [item for item in value if isinstance(item, str)] if isinstance(value, list) else []
    matching = [text for text in texts if pattern.fullmatch(text)]
    return matching, [one_line(text, LONGEST_LINE) for text in texts if not pattern.fullmatch(text)]
