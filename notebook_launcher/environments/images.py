"""``image build`` and ``image pull``: builds a container image from a definition file, or pulls one.

That is done in a job without GPUs, or if requested, on the login node or this machine. ``jobscripts/lib/image.sh`` does
the work there: it creates the image under a temporary name, computes its digest, and renames it.
"""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Literal

from notebook_launcher.core import events
from notebook_launcher.core.errors import ImageFailed, LauncherError, UsageError
from notebook_launcher.core.frozen import Frozen
from notebook_launcher.core.interrupts import Interrupts
from notebook_launcher.core.package_data import LIBRARY, container_definitions, job_script
from notebook_launcher.core.suggestions import did_you_mean
from notebook_launcher.core.text import joined
from notebook_launcher.core.view import View
from notebook_launcher.environments.job_command import run_directly, run_in_job
from notebook_launcher.hosts.base import Prompts
from notebook_launcher.planning.plan import Plan, image_path, make_plan
from notebook_launcher.planning.target import LaunchOptions, LaunchTarget, LocalMachine
from notebook_launcher.profiles.models import ClusterProfile, Environment
from notebook_launcher.session.context import Context
from notebook_launcher.session.open_context import open_context
from notebook_launcher.session.preflight import MAKES_IMAGES, image_verb
from notebook_launcher.session.record import environment_lines, json_object, new_id

Machine = Literal["job", "login", "here"]
LAST_LINES = 12  # of output that an error shows
_SCRIPTS = ("image.sh", "build_steps.sh", *LIBRARY)


class Recipe(Frozen):
    """The source of an image: a definition file's content, or (``None``) a source such as ``docker://…``.

    ``source``: its name in messages. ``image``: the default path of the image. ``exact``: an image with a different
    digest is rejected.
    """

    source: str
    image: str
    definition: bytes | None = None
    digest: str | None = None
    exact: bool = False


# --- choosing the source ------------------------------------------------------------------------------------------


def build_recipe(name: str | None, profile: ClusterProfile) -> Recipe:
    """Return the recipe for a definition file, a bundled definition or an environment; ``None``: the default one.

    Raises ``UsageError``.
    """
    environment = _environment(name, profile)
    if environment is not None and environment.definition is not None:
        recipe = build_recipe(environment.definition, profile.changed(environments={}))
        image = image_path(environment.container, profile) if environment.container else recipe.image
        return replace(recipe, image=image, digest=environment.digest)
    if name is None or (environment is not None and name not in container_definitions()):
        raise UsageError(
            "No image was named." if name is None else f"The environment “{name}” names no definition file.",
            why=f"The launcher's own definitions: {', '.join(container_definitions())}.",
            hint="launch-notebook image build NAME, or a definition file of yours: image build ./FILE.def",
        )
    if name in container_definitions():
        return Recipe(name, _in_image_dir(f"{name}.sif", profile), container_definitions()[name].read_bytes())
    path = Path(name).expanduser()
    if path.suffix == ".def" or "/" in name:
        return Recipe(name, _in_image_dir(f"{path.stem}.sif", profile), _read(path))
    raise UsageError(
        f"There is no definition “{name}”.",
        why=f"The launcher's own definitions: {', '.join(container_definitions())}; a file's name ends in .def.",
        hint=did_you_mean(name, [*container_definitions(), *profile.environments]),
    )


def pull_recipe(name: str | None, profile: ClusterProfile) -> Recipe:
    """Return the recipe for a source such as ``docker://…``, or for an environment that has one.

    Raises ``UsageError``.
    """
    if name is not None and "://" in name:
        stem = re.sub(r"[^\w.-]+", "-", name.partition("://")[2].rpartition("/")[2].partition("@")[0]) or "image"
        return Recipe(name, _in_image_dir(f"{stem.removesuffix('.sif')}.sif", profile))
    environment = _environment(name, profile)
    if environment is None or environment.source is None:
        sources = [key for key, value in profile.environments.items() if value.source]
        raise UsageError(
            f"There is no source to pull “{name}” from." if name else "No source to pull from was named.",
            why=f"Environments with a source: {', '.join(sources) or 'none'}.",
            hint="launch-notebook image pull docker://NAME:TAG, or oras://…, library://…, https://…",
        )
    recipe = pull_recipe(environment.source, profile.changed(environments={}))
    image = image_path(environment.container, profile) if environment.container else recipe.image
    return replace(recipe, image=image, digest=environment.digest)


def _environment(name: str | None, profile: ClusterProfile) -> Environment | None:
    return profile.environments.get(name or profile.environment or "")


def _in_image_dir(file: str, profile: ClusterProfile) -> str:
    return f"{profile.image_dir.rstrip('/')}/{file}" if profile.image_dir else file


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise UsageError(f"The definition file {path} cannot be read.", why=error.strerror or str(error)) from None


# --- making an image ------------------------------------------------------------------------------------------------


def make_image(
    plan: Plan,
    recipe: Recipe,
    machine: Machine,
    view: View,
    prompts: Prompts,
    interrupts: Interrupts,
    *,
    force: bool = False,
) -> None:
    """Build or pull an image and show its path and digest. ``plan``: of the job, if a job makes it.

    An existing image is replaced only with ``force``. Raises ``ImageFailed``, ``Interrupted``, and what submitting a
    job raises; then no incomplete image is left behind, and an existing one stays.
    """
    with open_context(plan.target, view, prompts, interrupts, submits=machine == "job") as context:
        _make(plan, context, recipe, machine, force=force)


def offer_image(plan: Plan, context: Context) -> bool:
    """Offer to build or pull the image of the plan's environment; return whether it exists now.

    Without a terminal, it does not ask. An image that somebody else has made meanwhile is accepted; one whose digest
    differs from the environment's is rejected, because no session would start in it. Raises what ``make_image`` raises.
    Afterwards, interrupts raise again until the next job is submitted.
    """
    verb, name = image_verb(plan), plan.environment_name
    if not context.prompts.asks or verb is None or name is None:
        return False
    machine = _machine(plan, context)
    if not context.prompts.confirm(_offer(plan, context, machine)):
        return False
    recipe = replace((build_recipe if verb == "build" else pull_recipe)(name, plan.target.profile), exact=True)
    typed = plan.user_flags & {"account", "clusters"} & plan.request.flags.keys()  # translated flags may lack one
    kept = {key: plan.request.flags[key] for key in typed}
    image = _absolute(recipe.image, context, machine)
    try:
        _make(plan_of_job(LaunchOptions(kept), plan.target), context, recipe, machine)
    except ImageFailed:
        if not _is_there(context, image):
            raise
        context.view.show(events.Note(f"{image} has been made meanwhile."))
    context.interrupts.renew()
    return True


def _machine(plan: Plan, context: Context) -> Machine:
    """Return where to make an image: as the profile says, if jobs of this scheduler can run more than their script."""
    return plan.target.profile.container.build if context.scheduler.has_steps else "login"


def plan_of_job(options: LaunchOptions, target: LaunchTarget) -> Plan:
    """Return the plan of a job that makes an image: without GPUs, unless only nodes with GPUs can run the image."""
    gpus = "1" if target.profile.node_arch else "0"
    return make_plan(replace(options, flags={**options.flags, "gpus": gpus}), LocalMachine.detect(), target)


#: the disk space that the images of bundled definitions need
_DISK = {"torch": "about 4 GB", "tensorflow": "about 4 GB"}


def _offer(plan: Plan, context: Context, machine: Machine) -> str:
    """Return the question to ask, with the cost as far as it is known."""
    environment, target = plan.environment, plan.target
    where = "on the login node" if machine == "login" else "in a job"
    if machine == "job" and target.profile.node_arch:
        where = f"in a job on a GPU node (only the GPU nodes are {target.profile.node_arch})"
    do = "Build it now" if image_verb(plan) == "build" else f"Pull it now from {environment.source}"
    disk = _DISK.get(environment.definition or "") if image_verb(plan) == "build" else None
    cost = "This takes several minutes" + (f" and {disk} of disk." if disk else ".")
    image = f"The image for “{plan.environment_name}” on {target.name} does not exist yet"
    return f"{image}: {context.site.expand(plan.container or '')}. {do}, {where}? {cost}"


def _make(plan: Plan, context: Context, recipe: Recipe, machine: Machine, *, force: bool = False) -> None:
    profile, view = plan.target.profile, context.view
    if profile.container.command not in MAKES_IMAGES:
        raise UsageError(
            f"`image` cannot build or pull images for {profile.container.command}.",
            why="It makes Apptainer images only.",
        )
    image = _absolute(recipe.image, context, machine)
    if not force:
        _refuse_existing(context, image)
    began = time.monotonic()
    with _work_folder(context, recipe, profile, image) as work:
        argv = ["bash", f"{work}/image.sh", "pull" if recipe.definition is None else "build", work, image]
        argv += [recipe.source] if recipe.definition is None else []
        argv += ["force"] if force else []
        note = _run_image_script(plan, context, recipe, machine, argv)
    made = _image_made(note, image, recipe, time.monotonic() - began)
    if recipe.digest and recipe.digest != made.digest:
        view.show(events.Note(f'The image differs from the one in the profile: digest = "{recipe.digest}".'))
    view.show(made)


def _absolute(image: str, context: Context, machine: Machine) -> str:
    image = context.site.expand(image)
    if image.startswith("/"):
        return image
    return str(Path(image).absolute()) if machine == "here" else f"{context.site.home}/{image}"


def _refuse_existing(context: Context, image: str) -> None:
    if _is_there(context, image):
        raise ImageFailed(
            f"There is an image {image} already, on {context.host.label}.",
            hint="take another name with -o, or replace it with --force when no session runs in it any more",
        )


def _is_there(context: Context, image: str) -> bool:
    return context.host.run(["test", "-e", image]).exit_code == 0


@contextlib.contextmanager
def _work_folder(context: Context, recipe: Recipe, profile: ClusterProfile, image: str) -> Iterator[str]:
    """Write the files that image.sh needs into a folder there; afterwards remove it and anything incomplete."""
    work = f"{context.root}/image-{new_id(context.clock())}"
    environment = Environment(modules=profile.container.modules)
    files = {name: job_script(name).read_bytes() for name in _SCRIPTS}
    files |= {"session.env": environment_lines(environment).encode(), "source": f"{recipe.source}\n".encode()}
    if recipe.definition is not None:
        files["definition.def"] = recipe.definition
    if recipe.exact and recipe.digest:
        files["digest"] = f"{recipe.digest}\n".encode()
    context.host.write_files(work, files)
    half_made = f"{image.rpartition('/')[0]}/.{image.rpartition('/')[2]}.{work.rpartition('/')[2]}"
    try:
        yield work
    finally:
        with contextlib.suppress(LauncherError):
            context.host.run(["rm", "-rf", "--", work, half_made])


def _run_image_script(
    plan: Plan, context: Context, recipe: Recipe, machine: Machine, argv: list[str]
) -> Mapping[str, object]:
    """Run image.sh on the chosen machine, show its output, and return its record of the image."""
    work = argv[3]
    output: list[str] = []
    answer: dict[str, str] = {}

    def on_line(line: str, where: str) -> bool:
        answer["where"] = where
        if result := script_result(line, work):
            answer.update([result])
        elif line:
            output.append(line)
            context.view.show(events.Building(recipe.source, where, line))
        return bool(result)

    stop = f"{work}/stop"
    if machine == "job" and not context.scheduler.same_machine:
        bare = replace(plan, environment_name=None, environment=Environment(), container=None, path=())
        reason = run_in_job(
            bare, context, lambda _session: argv, on_line, stop, purpose=f"image {argv[2]}", directly="add --login"
        )
    else:
        reason = run_directly(context, argv, on_line, stop)
    if "differs" in answer:
        raise ImageFailed(
            f"The image from {recipe.source} is not the one that the environment demands, and was not kept.",
            why=f"Its digest is {answer['differs']} and should be {recipe.digest}.",
            hint="ask whoever wrote the profile which image is meant, or name other software: -- IMAGE",
        )
    if "image" not in answer:
        where = answer.get("where", context.host.label)
        raise _failed(context, recipe, where, output, answer.get("failed") or reason)
    return json_object(answer["image"])


def script_result(line: str, work: str) -> tuple[str, str] | None:
    """Return the kind and text of a message from image.sh, a line ``nbl-KIND WORK TEXT`` with its work folder.

    Any other line is output of the build: ``None``.
    """
    found = re.fullmatch(r"nbl-(image|made|failed|differs) (\S+) (.*)", line)
    return (found[1], found[3]) if found and found[2] == work.rpartition("/")[2] else None


def _failed(context: Context, recipe: Recipe, where: str, output: list[str], why: str) -> ImageFailed:
    """Return the error with the last lines of the output, after saving all of it in a file there."""
    done = "pulled from" if recipe.definition is None else "built from"
    error = ImageFailed(f"No image could be {done} {recipe.source} on {where}.", why=why)
    if output:
        error.why = "\n".join([joined(why, "Its last output:"), *output[-LAST_LINES:]])
        name = f"image-{new_id(context.clock())}.log"
        with contextlib.suppress(LauncherError):
            context.host.write_files(context.root, {name: "".join(f"{line}\n" for line in output).encode()})
            error.hint = f"see its whole output: {context.root}/{name}, on {context.host.label}"
    return error


def _image_made(note: Mapping[str, object], image: str, recipe: Recipe, seconds: float) -> events.ImageReady:
    digest, size = str(note.get("digest", "")), note.get("bytes")
    return events.ImageReady(image, digest, recipe.source, size if isinstance(size, int) else 0, round(seconds, 1))
