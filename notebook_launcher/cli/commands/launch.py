"""The command ``launch``, the default: starts a session with JupyterLab."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import click

from notebook_launcher.cli.completion import TakesEnvironment
from notebook_launcher.cli.open_setting import local_lab_option, open_option, show_in_browser, wants_browser
from notebook_launcher.cli.options import (
    TYPED_WORDS,
    NumberUpTo,
    Where,
    route_options,
    scheduler_options,
    target_options,
    user_interface,
)
from notebook_launcher.cli.run_options import offer_image, run_launch_options, workers_option

if TYPE_CHECKING:
    from notebook_launcher.planning.plan import Plan
    from notebook_launcher.planning.target import LaunchOptions


class _Launch(TakesEnvironment):
    """Documents the notebook that may come before all options; ``app.run`` turns it into ``--open-at``."""

    def collect_usage_pieces(self, ctx: click.Context) -> list[str]:
        """Return the parts of the usage line, with the notebook first."""
        return ["[NOTEBOOK]", *super().collect_usage_pieces(ctx)]


@click.command(cls=_Launch, hidden=True)
@functools.partial(target_options, checks_request=True)
@open_option
@local_lab_option
@click.option("--new", "always_new", is_flag=True, help="Start another session without asking, even if one runs.")
@click.option(
    "--notify", is_flag=True, help="Notify the desktop when JupyterLab is ready, and before the walltime ends."
)
@click.option(
    "--idle-stop", metavar="TIME", help="End the session when nobody has used it for this long: 30m, 2h; 0 for never."
)
@click.option(
    "--renew",
    "renewals",
    type=NumberUpTo(20),
    default=0,
    metavar="N",
    help="Continue in up to N more jobs like this one, each queued while the previous one runs.",
)
@click.option("--no-panel", is_flag=True, help="Leave out the panel in JupyterLab with the time left and what is used.")
@click.option("--open-at", metavar="PATH", help="Open this folder or notebook in JupyterLab; a notebook here is sent.")
@click.option("--save", metavar="NAME", help="Save this launch as a preset, for: again NAME.")
@click.option("--dry-run", is_flag=True, help="Show the submit command and the session file; submit nothing.")
@click.option(
    "--module", "modules", multiple=True, metavar="NAME", help="Load a module on the node first (repeatable)."
)
@click.option("--conda", metavar="ENV", help="Use the JupyterLab of a conda environment; with an image, one inside it.")
@click.option("--venv", metavar="DIR", help="Use the JupyterLab of a virtual environment.")
@click.option("--uv", metavar="DIR", help="Use the JupyterLab of a uv project: of its .venv.")
@workers_option
@click.option(
    "--app",
    "apps",
    multiple=True,
    metavar="NAME[=FOLDER]",
    help="Start a program beside JupyterLab (repeatable): tensorboard, code, dask, or one of the profile.",
)
@click.option("--verbose", "-v", is_flag=True, help="Show more detail, with timestamps.")
@route_options
@scheduler_options
@click.pass_context
def launch(
    ctx: click.Context,
    *,
    where: Where,
    open_browser: bool | None,
    local_lab: tuple[str, ...],
    always_new: bool,
    notify: bool,
    idle_stop: str | None,
    renewals: int,
    no_panel: bool,
    open_at: str | None,
    save: str | None,
    dry_run: bool,
    modules: tuple[str, ...],
    conda: str | None,
    venv: str | None,
    uv: str | None,
    distributed: str | None,
    apps: tuple[str, ...],
    verbose: bool,
    route: str | None,
    forwards: tuple[int, ...],
) -> int:
    """Start a session: queue a job with JupyterLab in it, open the tunnel, print the address, and stay attached."""
    launch_options = dataclasses.replace(
        run_launch_options(ctx, where, modules=modules, conda=conda, venv=venv, uv=uv),
        route=route,
        forwards=forwards,
        idle_stop=idle_stop,
        no_panel=no_panel,
        open_at=open_at,
        always_new=always_new,
        distributed=distributed,
        local_lab=local_lab,
        apps=apps,
    )
    typed = without_save(ctx.obj[TYPED_WORDS])
    shown = {"verbose": verbose, "notify": notify}
    return _launch(
        launch_options,
        where,
        typed,
        preset=save,
        dry_run=dry_run,
        open_browser=open_browser,
        renewals=renewals,
        **shown,
    )


def without_save(words: Sequence[str]) -> list[str]:
    """Return the arguments of a launch without ``--save NAME``, and without the command's name at the front."""
    end = words.index("--") if "--" in words else len(words)
    kept: list[str] = []
    is_name = False
    for word in words[:end]:
        if not is_name and word != "--save" and not word.startswith("--save="):
            kept.append(word)
        is_name = word == "--save" and not is_name
    return [*kept[kept[:1] == ["launch"] :], *words[end:]]


def _would_open(place: str, *, remote: bool) -> str:
    """Return the note of a dry run on what JupyterLab would open with."""
    from pathlib import Path

    if remote and place.endswith(".ipynb") and Path(place).is_file():
        return f"{place} would be copied to the cluster, unless the same is there, and opened in JupyterLab."
    return f"JupyterLab would open with {place}, if it is there."


def _launch(
    launch_options: LaunchOptions,
    where: Where,
    typed: Sequence[str],
    *,
    preset: str | None,
    dry_run: bool,
    open_browser: bool | None,
    renewals: int,
    **shown: bool,
) -> int:
    from notebook_launcher import launch as launch_module
    from notebook_launcher.cli.commands.again import remember_launch
    from notebook_launcher.core import events
    from notebook_launcher.core.sbatch_options import unlisted
    from notebook_launcher.planning.first_run import complete_options
    from notebook_launcher.planning.new_default import with_default_saved
    from notebook_launcher.planning.plan import make_plan
    from notebook_launcher.planning.target import LocalMachine

    here = LocalMachine.detect()
    with user_interface(where, **shown) as (view, prompts, interrupts):
        options = complete_options(launch_options, here, view, prompts, dry_run=dry_run)
        plan = make_plan(options, here)
        more_jobs = launch_module.renewals_note(plan, renewals)  # raises before any host is contacted
        if dry_run:
            launch_module.dry_run(plan, view)
            for note in _notes_of_dry_run(plan, more_jobs, preset):
                view.show(events.Note(note))
        else:
            plan = with_default_saved(plan, view)

            def save() -> None:
                if preset is not None:
                    from notebook_launcher.planning.presets import save_preset

                    save_preset(preset, typed, plan.target, view, prompts)

            def remember() -> None:
                remember_launch(typed, None if launch_options.host else options.host)

            must_be_accepted = bool(unlisted(plan.request.flags))
            if not must_be_accepted:
                save()
            wanted = wants_browser(open_browser, view, prompts, as_json=where.as_json)
            show_in_browser(view, is_wanted=wanted, local_lab=plan.local_lab)
            accepted = save if must_be_accepted else launch_module.no_action
            launch_module.launch(plan, view, prompts, interrupts, offer_image, accepted, renewals, remember)
    return view.exit_code


def _notes_of_dry_run(plan: Plan, more_jobs: str | None, preset: str | None) -> Iterator[str]:
    if more_jobs:
        yield more_jobs
    if plan.open_at is not None:
        yield _would_open(plan.open_at, remote=plan.target.destination is not None)
    if preset is not None:
        yield f"A dry run saves nothing: the preset “{preset}” was not saved."
