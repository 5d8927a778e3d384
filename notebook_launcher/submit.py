"""``submit``: sends a job script to the cluster, follows it to its end, and shows what it used."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import os
import posixpath
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import field
from pathlib import Path

from notebook_launcher.core import events
from notebook_launcher.core.errors import EnvironmentUnknown, HostCommandFailed, UsageError
from notebook_launcher.core.frozen import Frozen
from notebook_launcher.core.interrupts import Interrupts
from notebook_launcher.core.job_arrays import task_numbers
from notebook_launcher.core.request import GPU_FLAGS, Request
from notebook_launcher.core.sbatch_directives import read_directives
from notebook_launcher.core.sbatch_options import REFUSED, as_typed
from notebook_launcher.core.text import listed, printable
from notebook_launcher.core.view import View
from notebook_launcher.hosts.base import Prompts
from notebook_launcher.jobs.unlisted_flags import check_request
from notebook_launcher.launch import (
    OfferImage,
    Payload,
    dry_run,
    no_offer,
    notes_before,
    queue_payload,
    software_warning,
    submitted,
)
from notebook_launcher.planning.course_commands import course_used
from notebook_launcher.planning.plan import Plan, make_plan
from notebook_launcher.planning.target import LaunchOptions, LaunchTarget, LocalMachine, find_target
from notebook_launcher.run import detach_submitted, send_beside
from notebook_launcher.schedulers.base import Scheduler
from notebook_launcher.schedulers.local import HONOURED
from notebook_launcher.schedulers.make import make_scheduler
from notebook_launcher.scripts.directives import check_scheduler_found, for_scheduler, with_input
from notebook_launcher.scripts.preparation import preparation, prepared
from notebook_launcher.scripts.prepare import PreparedScript, beside_note
from notebook_launcher.scripts.save import files_beside, save_files
from notebook_launcher.scripts.templates import (
    FOR_IMAGE,
    FOR_MODULES,
    FOR_TRAINING,
    Template,
    fill_in,
    is_expanded,
    software_of,
)
from notebook_launcher.session.context import Context
from notebook_launcher.session.open_context import open_context
from notebook_launcher.session.preflight import check_software
from notebook_launcher.session.record import Site
from notebook_launcher.supervision.follow_submitted import follow_submitted
from notebook_launcher.usage.cost_estimate import Costing

_VARIABLE = re.compile(r"(?P<name>[A-Za-z_][A-Za-z0-9_]*)=(?P<value>.*)", re.A | re.S)
#: the note if no cluster is configured
NO_CLUSTER = (
    "No cluster is configured, so the script runs on this machine. To use a cluster: --cluster NAME (their names: "
    "launch-notebook clusters) or --host you@login. To stay here without this note: --cluster here"
)
_OF_LOG = frozenset({"output", "error", "open-mode"})


class AfterDashes(Frozen):
    """What comes after ``--``: variables for the script, the environment and the image to run it in, its arguments."""

    variables: Mapping[str, str] = field(default_factory=dict)
    software: tuple[str, ...] = ()
    arguments: tuple[str, ...] = ()


def after_dashes(words: Sequence[str]) -> AfterDashes:
    """Tell variables (``EPOCHS=3``) from an environment and an image, and from the script's arguments.

    The arguments begin with the first word that begins with a dash. Raises ``UsageError``.
    """
    variables, software = {}, []
    place = next((place for place, word in enumerate(words) if word.startswith("-")), len(words))
    for word in words:
        if any(character in word for character in "\n\r\0"):
            raise UsageError(f"“{printable(word[:40])}” has more than one line.", why="It comes after the two dashes.")
        if any("\ud800" <= character <= "\udfff" for character in word):
            raise UsageError(f"“{printable(word[:40])}” is not UTF-8 text.", why="It comes after the two dashes.")
    for before, word, value in zip(words, words[1:place], [*words[2:place], ""], strict=False):
        if word == "=":
            raise UsageError("A variable is one word.", hint=f"without spaces: -- {printable(f'{before}={value}')}")
    for word in words[:place]:
        if match := _VARIABLE.fullmatch(word):
            variables[match["name"]] = match["value"]
        else:
            software.append(word)
    return AfterDashes(variables, tuple(software), tuple(words[place:]))


def planned(options: LaunchOptions, here: LocalMachine, script: PreparedScript) -> tuple[Plan, PreparedScript]:
    """Return the plan of a job script, and the script with the lines that count on its cluster, and with its input.

    Raises what ``make_plan`` raises, and ``ScriptInvalid`` if its lines are for another scheduler.
    """
    target = find_target(options, here)
    script = for_scheduler(script, target.scheduler, target.cluster)
    own, typed = dict(script.directives.flags), dict(options.flags)
    if "array" in own or "array" in typed:
        _check_array(script, target, typed["array"] if "array" in typed else own["array"])
    if script.folder is None and not _is_queue_there(own.get("partition"), target, typed):
        own.pop("partition", None)  # of a bundled script it is an example
    of_script, of_user = own.pop("input", None), typed.pop("input", None)  # the job opens it, on every cluster
    script = dataclasses.replace(script, notes=(*script.notes, *_left_out(own, target.scheduler)))
    plan = script_plan(dataclasses.replace(options, flags=typed), here, own, script.variables, target)
    return plan, with_input(script, of_user or of_script, is_remote=target.destination is not None)


def _is_queue_there(queue: str | None, target: LaunchTarget, typed: Mapping[str, str | None]) -> bool:
    """Whether the profile knows a queue, and the user has named no type of GPU, which has a queue of its own."""
    known = {flags.flags.get("partition") for flags in target.profile.gpu.types.values()}
    return queue in known and not any(":" in (value or "") for name, value in typed.items() if name in GPU_FLAGS)


def _check_array(script: PreparedScript, target: LaunchTarget, tasks: str | None) -> None:
    """Raise ``UsageError`` for a job array that the cluster's scheduler, if it is known, or nobody could have."""
    scheduler = make_scheduler(target.scheduler, "")
    if target.scheduler != "auto" and not scheduler.has_arrays:
        raise _array_refused(script, target, scheduler)
    task_numbers(tasks)


def _array_refused(script: PreparedScript, target: LaunchTarget, there: Scheduler) -> UsageError:
    """Return the error for a job array, with what to type instead. ``there``: the cluster's scheduler."""
    name = shlex.quote(script.name)
    # without a scheduler here, it is meant for a cluster elsewhere
    scheduler = make_scheduler("auto", "") if there.same_machine else there
    submit = scheduler.submit_by_hand(name)
    if scheduler.directive not in ("#SBATCH", *script.directives.others):
        submit += f" (which needs {scheduler.directive} lines of its own: {scheduler.title} reads no #SBATCH lines)"
    if script.folder is None:
        get = shlex.join(["launch-notebook", "jobscript", script.name.removesuffix(".sh"), *target.arguments()])
        hint = f"write it to a folder, which prints what to type then: {get} --to FOLDER"
    elif target.destination is None:
        hint = f"submit it with: {submit}"
    else:
        copy = shlex.join(["launch-notebook", "copy", script.name, "login:", *target.arguments()])
        hint = f"{copy}   and on the login node: {submit}"
    report = shlex.join(["launch-notebook", "report", "JOB", *target.arguments()])
    return UsageError(
        f"{script.name} is a job array (--array), which submit can follow only with Slurm.",
        why="There is no scheduler here." if there.same_machine else f"This cluster has {there.title}.",
        hint=f"{hint}   then, for what each task used: {report}" if scheduler.has_arrays else hint,
    )


def script_plan(
    options: LaunchOptions,
    here: LocalMachine,
    flags: Mapping[str, str | None],
    of_template: Mapping[str, str] | None = None,
    target: LaunchTarget | None = None,
) -> Plan:
    """Return the plan of a job script with these flags of its own, and the words after ``--`` in ``options``.

    A script runs as it is: no environment of the profile's is the default. A template takes its software by variables
    of its own (``of_template``, with their defaults), if it has some for it. ``target``: if already known. Raises what
    ``make_plan`` raises.
    """
    typed = after_dashes(options.arguments)
    target = target or find_target(options, here)
    flags = _understood(flags, target.scheduler)
    if not of_template:
        target = dataclasses.replace(target, profile=target.profile.changed(environment=None))
    options = dataclasses.replace(options, arguments=typed.software)
    try:
        plan = make_plan(options, here, target, script_flags=flags, allows_array=True)
    except EnvironmentUnknown as error:
        if word := next(iter(typed.software), ""):  # else it is the profile's
            error.hint += f"; for the script: a variable (-- NAME={word}), or an argument that begins with a dash"
        raise
    environment, variables = plan.environment, dict(typed.variables)
    if of_template:
        own = software_of(of_template, environment, plan.container)
        plan = _by_variables(plan, own)
        environment, variables = plan.environment, {**own, **variables}
    if variables:
        environment = environment.changed(env={**environment.env, **variables})
    return dataclasses.replace(plan, environment=environment, path=(), environment_notice=None)


def _understood(flags: Mapping[str, str | None], scheduler: str) -> Mapping[str, str | None]:
    """Return those of a script's flags that a scheduler other than Slurm has a counterpart for.

    The names of its log are left out as well: their patterns are Slurm's.
    """
    if scheduler in ("slurm", "auto"):
        return flags
    known = set(make_scheduler(scheduler, "").translated_flags or HONOURED) - _OF_LOG
    return {name: value for name, value in flags.items() if name in known}


def _left_out(flags: Mapping[str, str | None], kind: str) -> list[str]:
    """Return a note on the flags of a script that have no counterpart; without a scheduler none has an effect."""
    lost = flags.keys() - _understood(flags, kind).keys() - _OF_LOG
    if not lost or kind == "local":
        return []
    named = ", ".join(f"--{name}" for name in sorted(lost))
    return [f"Left out of the script's lines: {named}; {make_scheduler(kind, '').title} has nothing like it."]


def _by_variables(plan: Plan, own: Mapping[str, str]) -> Plan:
    """Leave out of a plan's environment what its template does by itself, as its variables say."""
    environment, image = plan.environment, plan.container
    if environment.modules and " ".join(environment.modules) in own.values():
        environment = environment.changed(modules=())
    if image in own.values():
        image = None
        environment = environment.changed(container=None)
    return dataclasses.replace(plan, environment=environment, container=image)


def submit_script(
    plan: Plan,
    script: PreparedScript,
    view: View,
    prompts: Prompts,
    interrupts: Interrupts,
    offer_image: OfferImage = no_offer,
    *,
    arguments: Sequence[str] = (),
    detach: bool = False,
) -> int:
    """Submit a script, follow it to its end, and return the exit code: 0.

    ``arguments``: the script's own. Raises a ``LauncherError`` if it failed (``ScriptFailed``: with an exit code other
    than 0); ``Interrupted`` after cancelling the job; ``HungUp`` (a closed terminal), which leaves it running.
    """
    with open_context(plan.target, view, prompts, interrupts, submits=True) as context:
        check_scheduler_found(script, plan.target.scheduler, context.scheduler.name, plan.target.cluster)
        if "array" in plan.request.flags and not context.scheduler.has_arrays:
            raise _array_refused(script, plan.target, context.scheduler)
        check_request(context, plan.request.flags)
        costing = Costing(plan, context)
        if plan.target.course:
            view.show(course_used(plan.target.course))
        plan = _expanded(plan, script, context.site)
        check = functools.partial(
            check_software,
            context.host,
            context.site,
            dataclasses.replace(plan, container=_image_of(plan, script)),
            same_machine=context.scheduler.same_machine,
            jupyterlab=False,
        )
        plan, folder_note = _with_folder(plan, context)
        warning = software_warning(plan, context, check, offer_image)
        is_remote = context.host.remote
        notes = notes_before(plan, context.scheduler, context.site, "script")
        for note in (*_notes(script, is_remote=is_remote), *notes, *filter(None, (folder_note, warning))):
            view.show(events.Note(note))
        view.show(_prepared(script))
        payload = _payload(plan, script, arguments, here=not is_remote)
        session, _ = queue_payload(plan, context, payload, before_queueing=costing.show_price)
        first = submitted(plan, context, session)
        if detach:
            detach_submitted(context, session, first)
        else:
            follow_submitted(context, session, ours=True, first=first)
    return 0


def _with_folder(plan: Plan, context: Context) -> tuple[Plan, str]:
    """Return the plan with a full path in ``--chdir``, and a note if the login node has no such folder; else "".

    The scheduler resolves a relative one where the submit command runs. Raises ``UsageError`` if the folder is missing
    in the home directory, which the nodes share; another one may be on the compute node only.
    """
    chosen = plan.request.flags.get("chdir")
    if not chosen or context.scheduler.name == "local":  # without a scheduler it has no effect
        return plan, ""
    home, where = context.site.home, context.host.label
    folder = posixpath.normpath(posixpath.join(home if context.host.remote else os.getcwd(), chosen))  # noqa: PTH109
    request = Request({**plan.request.flags, "chdir": folder})
    plan = dataclasses.replace(plan, request=request)
    if _may_be_there(context, folder):
        return plan, ""
    missing = f"There is no folder {folder} on {where}"
    if posixpath.commonpath([folder, home]) == home:
        raise UsageError(
            f"{missing}.",
            why=f"The script is to run there (--chdir={chosen}). Nothing was submitted.",
            hint="create it there, or name another one with -D (--chdir)",
        )
    return plan, f"{missing}. If the compute node has none either, the script runs elsewhere: with Slurm in /tmp there."


def _may_be_there(context: Context, folder: str) -> bool:
    with contextlib.suppress(HostCommandFailed):
        return context.host.run(["test", "-d", folder]).exit_code != 1
    return True


def dry_run_script(plan: Plan, script: PreparedScript, view: View) -> None:
    """Show the submit command, the session file and the files to send, without connecting."""
    for note in _notes(script, is_remote=plan.target.destination is not None):
        view.show(events.Note(note))
    view.show(_prepared(script))
    dry_run(plan, view, lambda here: _payload(plan, script, (), here=here))


class _Filled(Frozen):
    """A template filled in for a cluster. ``needs``: the files that its text needs beside it."""

    text: str
    plan: Plan
    needs: tuple[Path, ...]
    notes: tuple[str, ...]
    is_array: bool


def filled_template(
    template: Template, options: LaunchOptions, here: LocalMachine
) -> tuple[events.TemplateFilled, tuple[str, ...]]:
    """Return a template filled in for a cluster, to keep and to edit, and notes. Raises what ``make_plan`` raises."""
    filled = _fill(template, options, here)
    notes = [*filled.notes]
    if filled.needs:
        folders = listed([path.name for path in filled.needs])
        notes.append(f"{template.name} needs the folder {folders} beside it. To write both: add --to FOLDER")
    return events.TemplateFilled(template.name, filled.plan.target.cluster, filled.text), tuple(notes)


def save_template(
    template: Template, options: LaunchOptions, here: LocalMachine, folder: Path, *, force: bool = False
) -> tuple[events.TemplateSaved, tuple[str, ...]]:
    """Write a template filled in for a cluster, and what it needs, into a folder; return that, and notes.

    Raises what ``make_plan`` raises, and ``UsageError`` if other files are there, or none can be written.
    """
    filled = _fill(template, options, here)
    name = template.path.name
    files = {name: filled.text.encode(), **(files_beside(template) if filled.needs else {})}
    written = save_files(folder, files, programs=(name,), force=force)
    beside = tuple(path.name for path in filled.needs)
    command, on_login = _to_submit(filled, folder, (name, *beside))
    unchanged = tuple(one for one in files if one not in written)
    cluster = filled.plan.target.cluster
    event = events.TemplateSaved(template.name, cluster, str(folder), written, unchanged, command, on_login)
    return event, filled.notes


def _fill(template: Template, options: LaunchOptions, here: LocalMachine) -> _Filled:
    directives = read_directives(template.path.read_text(encoding="utf-8"))
    own = directives.flags
    only_here = {name: value for name, value in own.items() if name in REFUSED}  # by plain sbatch they work
    flags = {name: value for name, value in own.items() if name not in only_here}
    typed = after_dashes(options.arguments)
    plan = make_plan(dataclasses.replace(options, arguments=typed.software), here, script_flags=flags)
    software = software_of(template.variables, plan.environment, plan.container)
    values = {**software, **typed.variables}
    text, unprepared = _prepared_for(
        plan, options, template, fill_in(template, {**plan.request.flags, **only_here}, values)
    )
    notes = [*plan.notes, *unprepared]
    for name in sorted(name for name in values.keys() & template.variables.keys() if is_expanded(values[name])):
        notes.append(f"{name} stays as it was, because a shell would expand {values[name]}: write it into the script.")
    if plan.placeholders:
        notes.append(f"Replace before you submit it: {', '.join(f'--{name}' for name in plan.placeholders)}.")
    if (scheduler := make_scheduler(plan.target.scheduler, "")).directive not in ("", "#SBATCH"):
        lines = f"{scheduler.directive} lines"
        has_any = scheduler.directive in directives.others
        notes.append(
            f"{plan.target.cluster} has {scheduler.title}, and flags are written into #SBATCH lines only: "
            + (f"change the queue, the walltime and the cores in the {lines}." if has_any else f"it has no {lines}.")
        )
    if missing := sorted(typed.variables.keys() - template.variables.keys()):
        notes.append(f"{template.name} has no variable {', '.join(missing)}.")
    needs = () if FOR_TRAINING in typed.variables else template.needs
    return _Filled(text, plan, needs, tuple(notes), "array" in own)


def _prepared_for(plan: Plan, options: LaunchOptions, template: Template, text: str) -> tuple[str, list[str]]:
    """Return a filled-in script that activates the plan's environment, and notes if it does not.

    Raises ``UsageError`` for an environment beside an image, which would be activated outside of it.
    """
    names = [f"--{name}" for name in ("conda", "venv", "uv") if getattr(options, name)]
    lines = preparation(plan.environment)
    if plan.container and names:
        raise UsageError(
            f"{names[0]} and the image {plan.container} exclude each other in a bundled script.",
            why="With an image, the script runs the image's own python3.",
            hint="name one of them",
        )
    notes = []
    if plan.container and lines.after:
        lines = dataclasses.replace(lines, after=())
        notes.append(f"The script runs python3 of {plan.container} as it is: activate what is in the image yourself.")
    made = prepared(text, lines)
    useless = names if made is None else []
    if options.modules and not template.variables.keys() & {*FOR_MODULES}:
        useless.append("--module")
    if plan.container_typed and not template.variables.keys() & {*FOR_IMAGE}:
        useless.append(f"the image {plan.container}")
    if useless:
        notes.append(f"{template.name} loads no software, so {' and '.join(useless)} has no effect on it.")
    return made or text, notes


def _to_submit(filled: _Filled, folder: Path, names: Sequence[str]) -> tuple[str, str]:
    """Return what to type next on this machine, and then on the login node. ``names``: the script, and what it needs.

    The first is "" if no cluster is known.
    """
    target, script = filled.plan.target, shlex.quote(names[0])
    if target.destination is None:
        if target.scheduler == "local" and not (target.cluster or target.is_explicit):
            return "", f"sbatch {script}"
        cd = "" if folder.resolve() == Path.cwd() else f"cd {shlex.quote(str(folder))} && "
        scheduler = make_scheduler(target.scheduler, "")
        by_hand = (filled.is_array and not scheduler.has_arrays) or scheduler.directive == "#SBATCH"
        submit = shlex.join(["launch-notebook", "submit", names[0], *target.arguments()])
        return cd + (scheduler.submit_by_hand(script) if by_hand else submit), ""
    paths = [str(folder / name) for name in names]
    scheduler = make_scheduler(target.scheduler, "")
    if filled.is_array and not scheduler.has_arrays:  # submit cannot follow it there
        on_login = scheduler.submit_by_hand(script)
        return shlex.join(["launch-notebook", "copy", *paths, "login:", *target.arguments()]), on_login
    beside = [word for path in paths[1:] for word in ("--with", path)]
    return shlex.join(["launch-notebook", "submit", paths[0], *beside, *target.arguments()]), ""


def _image_of(plan: Plan, script: PreparedScript) -> str | None:
    """Return the image that the job will use: in a template it may be a variable."""
    names = [name for name in FOR_IMAGE if name in script.variables and plan.environment.env.get(name)]
    return plan.environment.env[names[0]] if names else plan.container


def _expanded(plan: Plan, script: PreparedScript, site: Site) -> Plan:
    """Return the plan with ``~`` and ``$HOME`` expanded in the image of a template."""
    env = plan.environment.env
    images = {name: site.expand(env[name]) for name in FOR_IMAGE if name in script.variables and name in env}
    return dataclasses.replace(plan, environment=plan.environment.changed(env={**env, **images})) if images else plan


def _notes(script: PreparedScript, *, is_remote: bool) -> list[str]:
    beside = beside_note(script) if is_remote else None
    return [*script.notes, *([beside] if beside else [])]


def _prepared(script: PreparedScript) -> events.ScriptPrepared:
    return events.ScriptPrepared(script.name, as_typed(script.directives.flags), tuple(script.files))


def _payload(plan: Plan, script: PreparedScript, arguments: Sequence[str], *, here: bool) -> Payload:
    """Return a session's payload. ``here``: whether the job sees this machine's files.

    Then a user's script works in the folder that this command is typed in, as with sbatch; a template, and a script
    from another machine, in the session's own folder, with what is sent along.
    """
    folder = str(Path.cwd()) if here and script.folder else None
    chdir = None if plan.request.flags.get("chdir") else folder or "work"
    lines = {"script": script.name, **({"folder": folder} if folder and chdir else {})}
    if script.stdin:
        lines["input"] = script.stdin
    if chdir is None:
        lines["folder"] = "."  # the one that the scheduler has gone to
    work = {**script.files, script.name: script.content}
    own = (
        {} if script.files else {f"work/{name}": content for name, content in work.items()}
    )  # a folder is sent at once
    return Payload(
        "script",
        lines,
        sent=tuple(script.files),
        files={**own, "arguments": "".join(f"{word}\n" for word in arguments).encode()},
        send=(lambda context, session: send_beside(context, session, work, "script")) if script.files else None,
        script=script.name,
        chdir=chdir,
    )
