"""The stories of environments: which there are, what one comes to, whether it works, written down, and made anew."""

from __future__ import annotations

import contextlib
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from notebook_launcher.core.check_runner import Round
from notebook_launcher.core.errors import EnvironmentFailed, LauncherError, UsageError
from notebook_launcher.core.events import launch as events
from notebook_launcher.core.interrupts import Interrupts
from notebook_launcher.core.package_data import folder, job_files
from notebook_launcher.core.text import joined
from notebook_launcher.doctor.findings import Finding, fault, ok, unknown, warning
from notebook_launcher.environments.images import LAST_LINES, last_word
from notebook_launcher.environments.job_command import directly, in_a_job
from notebook_launcher.hosts.base import Prompts
from notebook_launcher.launch import Load, session_env
from notebook_launcher.planning.plan import Ask, Here, Place, Plan, chosen_environment, find_place, image_path
from notebook_launcher.profiles.edit import Values, changed, checked_text, keep_profile, new_text, own_text
from notebook_launcher.profiles.layers import merge, origin
from notebook_launcher.profiles.models import Environment
from notebook_launcher.profiles.store import own_path, profile_layers
from notebook_launcher.session.connect import open_stage
from notebook_launcher.session.context import Stage, View
from notebook_launcher.session.preflight import how_to_add_jupyterlab
from notebook_launcher.session.record import environment_lines, json_object, new_id

# --- which there are, and what one comes to -----------------------------------------------------------------------


def list_environments(place: Place, view: View) -> None:
    """Show the environments of a place. Nothing is contacted."""
    profile = place.profile
    seen = tuple(
        events.EnvironmentSeen(name, environment.description, how(environment, place), name == profile.environment)
        for name, environment in profile.environments.items()
    )
    view.show(events.EnvironmentsListed(_origin(place), seen))


def show_environment(ask: Ask, view: View) -> None:
    """Show what an environment comes to. Nothing is contacted. Raises ``EnvironmentUnknown`` or ``UsageError``."""
    place = find_place(ask, Here.look())
    name, environment, container = chosen_environment(ask, place)
    own = place.profile.environments.get(name or "", Environment())
    lines = environment_lines(environment, container=container)
    view.show(
        events.EnvironmentShown(
            name or "", environment.description, how(own if name else environment, place), _layers(place, name),
            own.source, own.definition, lines, tuple(_notes(environment, container)),
        )
    )  # fmt: skip


def how(environment: Environment, place: Place) -> str:
    """Return in words where an environment's software comes from."""
    image = image_path(environment.container, place.profile) if environment.container else None
    parts = [
        f"container {image}" if image else "",
        f"modules {', '.join(environment.modules)}" if environment.modules else "",
        f"conda {environment.conda}" if environment.conda else "",
        f"venv {environment.venv}" if environment.venv else "",
        f"uv {environment.uv}" if environment.uv else "",
        "activation code" if environment.activate else "",
    ]
    return " + ".join(filter(None, parts)) or "JupyterLab as the node has it"


def _origin(place: Place) -> str:
    of = f"profile {place.cluster}" if place.cluster else "no profile"
    return f"{of}, course {place.course.name}" if place.course else of


def _layers(place: Place, name: str | None) -> tuple[str, ...]:
    if place.cluster is None or name is None:
        return ()
    layers = profile_layers(place.cluster)
    keys = ["environments", name]
    files = [origin([layer], keys) for layer in layers if name in (merge([layer]).get("environments") or {})]
    course = place.course
    return (*files, *([f"course {course.name}"] if course and name in course.environments else []))


def _notes(environment: Environment, container: str | None) -> Iterator[str]:
    if container and environment.digest is None:
        yield 'No digest is demanded: whatever image lies there is taken. `digest = "sha256:…"` names one.'
    if environment.activate:
        yield "Its activation code is run by a shell: it is a program, and as trustworthy as its author."
    if environment.conda and container:
        yield "The conda environment is looked for inside the container."


# --- whether it works ---------------------------------------------------------------------------------------------


def check_environment(plan: Plan, view: View, prompts: Prompts, interrupts: Interrupts, *, node: bool) -> None:
    """Go into an environment and tell what works there: on the login node, or on a compute node in a job of its own.

    Raises ``ChecksFailed``, which names the faults, and what queueing a job raises.
    """
    with open_stage(plan.place, view, prompts, interrupts) as stage:
        checks = Round(view)
        found = _probe(plan, stage, "check", node=node)
        for name, finding in _findings(plan, found, gpus=node and plan.request.gpus > 0):
            checks.tell(name, finding)
        checks.sum_up()


@dataclass
class _Found:
    """What was found inside: values by name, what went wrong on the way in, and where."""

    values: dict[str, object]
    said: list[str]
    where: str = ""


def _probe(plan: Plan, stage: Stage, what: str, *, node: bool) -> _Found:
    """Run probe.py in the environment, and return what it found."""
    found = _Found({}, [])

    def heard(line: str, where: str) -> bool:
        found.where = where
        if line.startswith(f"{mark} "):
            found.values.update(json_object(line[len(mark) :]))
        elif line:
            found.said.append(line)
            stage.view.show(events.Building(f"looking into {plan.environment_name or 'it'}", where, line))
        return "end" in found.values

    with _folder(plan, stage) as work:
        mark = work.rpartition("/")[2]
        command = f'{_FIND_PYTHON}; exec "$python" {shlex.quote(f"{work}/probe.py")} {what} {mark}'
        words = ["bash", f"{work}/shell.sh", work, "inside", command]
        if node and not stage.scheduler.same_machine:
            in_a_job(plan, stage, lambda _session: words, heard, purpose="env check")
        else:
            directly(stage, words, heard)
    return found


# a JupyterLab's own Python, where there is one; else the first
_FIND_PYTHON = (
    'python=$(command -v jupyter-lab || :); python=${python%/*}/python3; [ -x "$python" ] || '
    "python=$(command -v python3 || command -v python)"
)


@contextlib.contextmanager
def _folder(plan: Plan, stage: Stage) -> Iterator[str]:
    """Write what it takes to go into an environment, as a session's directory has it; take it away afterwards."""
    work = f"{stage.root}/look-{new_id(stage.clock())}"
    probe = (folder("jobscripts") / "probe.py").read_bytes()
    env = session_env(plan, stage.scheduler, stage.site, Load("shell"))
    stage.host.write_files(work, {**job_files(), "probe.py": probe, "session.env": env.encode()})
    stage.host.write_files(f"{work}/runtime", {"folder": f"{stage.site.home}\n".encode()})
    try:
        yield work
    finally:
        with contextlib.suppress(LauncherError):
            stage.host.run(["rm", "-rf", "--", work])


def _findings(plan: Plan, found: _Found, *, gpus: bool) -> Iterator[tuple[str, Finding]]:
    values = found.values
    if "python" not in values:
        said = [
            line.removeprefix("notebook-launcher: ") for line in found.said if line.startswith("notebook-launcher:")
        ]
        why = (said or found.said or ["Nothing was answered."])[-1]
        yield "environment", fault(why, "see what it comes to: launch-notebook env show NAME")
        return
    yield "environment", ok(f"{how(plan.environment.model_copy(update={'container': plan.container}), plan.place)}, "
                            f"on {found.where}")  # fmt: skip
    yield "Python", ok(f"{values['python']} in {values.get('prefix')}")
    lab = values.get("jupyterlab")
    mend = how_to_add_jupyterlab(plan.environment, plan.container)
    yield "JupyterLab", ok(str(lab)) if lab else fault("There is no JupyterLab in it.", mend)
    kernel = values.get("kernel")
    if kernel == "ok":
        yield "kernel", ok(f"starts within {values.get('kernel_seconds')} s, ipykernel {values.get('ipykernel')}")
    else:
        yield "kernel", fault(str(kernel or "It did not start."), mend if lab else "")
    for package in ("torch", "tensorflow"):
        if package in values:
            text = str(values[package])
            yield package, fault(text, "") if text.startswith("cannot") else ok(text)
    if gpus:
        count = values.get("gpus")
        if count is None:
            yield "GPU", unknown("neither torch nor tensorflow is there to ask")
        elif count == 0:
            yield "GPU", warning("None is seen, although the job has one.", "is it a build for GPUs?")
        else:
            yield "GPU", ok(f"{count} seen")


# --- written down -------------------------------------------------------------------------------------------------


def export_folder(name: str | None) -> Path:
    """Return where an environment is written down: a course may call it ``../../x``, which is a name and no path."""
    return Path(re.sub(r"[^\w.-]+", "-", name or "").strip(".-") or "environment")


def export_environment(
    plan: Plan, target: Path, view: View, prompts: Prompts, interrupts: Interrupts, *, force: bool = False
) -> None:
    """Write into a folder here what it takes to make an environment anew. Raises ``EnvironmentFailed``."""
    if target.exists() and not target.is_dir():
        raise UsageError(f"{target} is no folder.", mend="name a folder with -o")
    if target.exists() and any(target.iterdir()) and not force:
        raise UsageError(f"The folder {target} is not empty.", mend="name another one with -o, or give --force")
    with open_stage(plan.place, view, prompts, interrupts) as stage:
        found = _probe(plan, stage, "freeze", node=False)
        image = _image_note(plan, stage)
    if "packages" not in found.values:
        why = (found.said or ["Nothing was answered."])[-1]
        raise EnvironmentFailed(f"The environment “{plan.environment_name}” could not be looked into.", why=why)
    files = _files(plan, found.values, image)
    target.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (target / name).write_text(text, encoding="utf-8")
        view.show(events.Kept(f"{name} of {plan.environment_name or 'the environment'}", str(target / name)))


def _image_note(plan: Plan, stage: Stage) -> Mapping[str, object]:
    if plan.container is None:
        return {}
    return json_object(stage.host.read_file(f"{stage.site.expand(plan.container)}.json") or b"")


def _files(plan: Plan, values: Mapping[str, object], image: Mapping[str, object]) -> dict[str, str]:
    name = plan.environment_name or "environment"
    packages = [str(item) for item in _list(values.get("packages"))]
    conda = [str(item) for item in _list(values.get("conda"))]
    files: dict[str, str] = {}
    readme = [
        f"# {name}",
        "",
        f"Written by launch-notebook, from {values.get('prefix')} (Python {values['python']}).",
        "",
    ]
    if plan.environment.modules:
        files["modules.txt"] = "".join(f"{module}\n" for module in plan.environment.modules)
        readme += ["Load the modules first:", "", f"    module load {' '.join(plan.environment.modules)}", ""]
    if plan.container:
        files["container.txt"] = (
            f"{plan.container}\n{image.get('digest', 'digest unknown')}\n{image.get('source', '')}\n"
        )
        readme += [f"It runs in the image {plan.container}; container.txt has its digest, and what it was made of.", ""]
    if conda:
        channels = sorted({str(item) for item in _list(values.get("channels"))}) or ["conda-forge"]
        lines = [f"name: {name}", "channels:", *(f"  - {channel}" for channel in channels), "dependencies:"]
        lines += [f"  - {item}" for item in conda]
        lines += ["  - pip:", *(f"      - {item}" for item in packages)] if packages else []
        files["environment.yml"] = "\n".join(lines) + "\n"
        readme += ["Make it anew with:", "", f"    launch-notebook env create environment.yml --name {name}",
                   f"    conda env create -n {name} -f environment.yml", ""]  # fmt: skip
    else:
        files["requirements.txt"] = "".join(f"{item}\n" for item in packages)
        if local := [item for item in packages if "+" in item]:
            files["requirements.txt"] = f"{_INDEX_MISSING}\n# --extra-index-url …\n" + files["requirements.txt"]
            readme += [f"The Python Package Index does not have {', '.join(local)}: versions with a + are in",
                       "an index of their own. PyTorch's is named in torch-cpu.def, among the launcher's definition",
                       "files. Put it into the second line of requirements.txt.", ""]  # fmt: skip
        readme += ["Make it anew with:", "", f"    launch-notebook env create requirements.txt --name {name}",
                   "    python3 -m venv DIR; DIR/bin/pip install -r requirements.txt", ""]  # fmt: skip
    files["README.md"] = "\n".join(readme).rstrip("\n") + "\n"
    return files


_INDEX_MISSING = "# Name the index that has the versions with a +, and take the # away:"


def _list(value: object) -> Sequence[object]:
    return value if isinstance(value, list) else []


# --- made anew ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Creation:
    """What is to be made: the file, the name in the profile, and a virtual environment's folder or a conda name."""

    file: Path
    name: str
    venv: str | None = None
    conda: str | None = None

    @property
    def is_conda(self) -> bool:
        """Whether it is made by conda, from an environment.yml."""
        return self.file.suffix in (".yml", ".yaml")


def create_environment(
    plan: Plan, creation: Creation, view: View, prompts: Prompts, interrupts: Interrupts, *, job: bool
) -> None:
    """Make an environment from a file of packages, JupyterLab added, and put it into the user's profile.

    ``job``: in a job of its own, not on the login node. Raises ``UsageError`` or ``EnvironmentFailed``.
    """
    content = _checked_file(creation)
    cluster = _profile_name(plan.place)
    _refuse_known(plan.place, creation.name)
    with open_stage(plan.place, view, prompts, interrupts) as stage:
        place = stage.site.expand(creation.conda or creation.name if creation.is_conda else creation.venv or "")
        if "/" in place and not place.startswith("/"):
            place = f"{stage.site.home}/{place}"
        checked_text(cluster, _with_environment(cluster, plan, creation, place))  # now, and not after all the work
        said: list[str] = []
        answer: dict[str, str] = {}

        def heard(line: str, where: str) -> bool:
            if told := last_word(line, work):
                answer.update([told])
            elif line:
                said.append(line)
                view.show(events.Building(creation.file.name, where, line))
            return bool(told)

        with _create_folder(plan, stage, creation, content) as work:
            words = ["bash", f"{work}/environment.sh", "conda" if creation.is_conda else "venv", work, place]
            stop = f"{work}/stop"
            if job and not stage.scheduler.same_machine:
                reason = in_a_job(_bare(plan), stage, lambda _session: words, heard, stop, purpose="env create")
            else:
                reason = directly(stage, words, heard, stop)
        if "made" not in answer:
            why = answer.get("failed") or reason
            if said:
                why = "\n".join([joined(why, "It said at last:"), *said[-LAST_LINES:]])
            raise EnvironmentFailed(f"No environment was made of {creation.file}.", why=why)
    path = keep_profile(cluster, _with_environment(cluster, plan, creation, place))
    view.show(events.Kept(f"environment {creation.name}: launch-notebook -- {creation.name}", str(path)))


def _bare(plan: Plan) -> Plan:
    return replace(plan, environment_name=None, environment=Environment(), container=None, path=())


def _checked_file(creation: Creation) -> bytes:
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", creation.name):
        raise UsageError(f"“{creation.name}” is no name for an environment.", mend="letters, digits, . _ and -")
    if creation.is_conda and creation.venv:
        raise UsageError("An environment.yml is for conda.", mend="leave out --venv, or give a requirements.txt")
    if not creation.is_conda and creation.conda:
        raise UsageError("A requirements.txt is for pip.", mend="leave out --conda, or give an environment.yml")
    try:
        return creation.file.read_bytes()
    except OSError as error:
        raise UsageError(f"{creation.file} cannot be read.", why=error.strerror or str(error)) from None


def _profile_name(place: Place) -> str:
    if place.cluster is None:
        raise UsageError(
            "There is no profile into which the environment could be put.",
            mend="name one with --cluster, or make one: launch-notebook init user@login",
        )
    return place.cluster


def _refuse_known(place: Place, name: str) -> None:
    if name in place.profile.environments:
        raise UsageError(f"There is an environment “{name}” already.", mend="take another name with --name")


@contextlib.contextmanager
def _create_folder(plan: Plan, stage: Stage, creation: Creation, content: bytes) -> Iterator[str]:
    work = f"{stage.root}/make-{new_id(stage.clock())}"
    scripts = {
        name: (folder("jobscripts") / name).read_bytes()
        for name in ("environment.sh", "making.sh", "lib.sh", "containers.sh")
    }
    loaded = Environment(modules=plan.environment.modules, module_use=plan.environment.module_use)
    file = "environment.yml" if creation.is_conda else "requirements.txt"
    stage.host.write_files(work, {**scripts, file: content, "session.env": environment_lines(loaded).encode()})
    try:
        yield work
    finally:
        with contextlib.suppress(LauncherError):  # what is killed does not tidy up after itself
            stage.host.run(["bash", f"{work}/environment.sh", "tidy", work])
        with contextlib.suppress(LauncherError):
            stage.host.run(["rm", "-rf", "--", work])


def _with_environment(cluster: str, plan: Plan, creation: Creation, place: str) -> str:
    """Return the user's own file of the profile with the environment in it; what stands there stays as it is."""
    values: Values = {
        ("environments", creation.name, "description"): f"made of {creation.file.name}",
        ("environments", creation.name, "modules"): list(plan.environment.modules) or None,
        ("environments", creation.name, "conda" if creation.is_conda else "venv"): place,
    }
    text = own_text(cluster)
    return changed(new_text(cluster) if text is None else text, values, str(own_path(cluster)))
