"""The command ``init``: inspects a new cluster, and writes a profile of it."""

from __future__ import annotations

import shlex

import click

from notebook_launcher.cli.options import ENGINES, Where, user_interface


@click.command()
@click.option("--name", metavar="NAME", help="What to call the profile; without it the login node's name.")
@click.option("--force", is_flag=True, help="Replace a profile of that name without asking; the old file is kept.")
@click.option(
    "--probe/--no-probe",
    default=None,
    help="Submit a job of 5 minutes at most, to see what a compute node has and how to reach it.",
)
@click.option("--probe-gpu", is_flag=True, help="The same with one GPU.")
@click.option("--clusters", "-M", metavar="NAME", help="Another cluster of the same Slurm.")
@click.option("--json", "as_json", is_flag=True, help="Print events, one JSON object a line.")
@click.option("--ssh-config", metavar="FILE", help="An ssh configuration other than ~/.ssh/config.")
@click.option("--engine", metavar="NAME", type=click.Choice(ENGINES), help="auto, paramiko or openssh.")
@click.argument("login", metavar="[USER@]LOGIN", required=False)
def init(
    login: str | None,
    *,
    name: str | None,
    force: bool,
    probe: bool | None,
    probe_gpu: bool,
    clusters: str | None,
    as_json: bool,
    ssh_config: str | None,
    engine: str | None,
) -> int:
    """Log in, read what the cluster reports about itself, and write a profile with comments.

    \b
      launch-notebook init alice@login.uni.example
      launch-notebook init alice@login.uni.example --probe
      launch-notebook init                                    on a login node

    Comments in the profile say what it could not read. It changes nothing on the cluster, except that --probe submits
    a job, which `launch-notebook list` shows as a session.
    """  # \b is click's mark for lines to be left alone
    from notebook_launcher.discovery.init import InitRequest, initialise

    request = InitRequest(
        login,
        name,
        force,
        "gpu" if probe_gpu else "ask" if probe is None else "cpu" if probe else "no",
        clusters,
        ssh_config,
        engine,
        shlex.join(["launch-notebook", "init", *([login] if login else []), *(["-M", clusters] if clusters else [])]),
    )
    with user_interface(Where(ssh_config=ssh_config, engine=engine, as_json=as_json)) as (view, prompts, interrupts):
        initialise(request, view, prompts, interrupts)
    return view.exit_code
