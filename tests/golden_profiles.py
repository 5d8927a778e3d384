"""Golden files with the outcome of the same requests for each bundled profile, for review by people.

``python -m tests.golden_profiles --write`` updates the files; ``git diff`` then shows the effect of a change.
"""

from __future__ import annotations

import os
import shlex
import sys
import tempfile
from collections.abc import Iterator
from datetime import datetime, timezone
from pathlib import Path

import click

from notebook_launcher.cli.options import scheduler_options
from notebook_launcher.cli.unlisted_flags import SCHEDULER_FLAGS
from notebook_launcher.core.errors import LauncherError
from notebook_launcher.planning.plan import make_plan
from notebook_launcher.planning.target import LaunchOptions, LocalMachine
from notebook_launcher.profiles import ClusterProfile, load_profile
from notebook_launcher.profiles.store import bundled_profiles
from notebook_launcher.schedulers.base import Submission
from notebook_launcher.schedulers.make import make_scheduler
from tests.paths import GOLDEN

FOLDER = GOLDEN / "profiles"
LAPTOP = LocalMachine("laptop")
SUBMISSION = Submission("SESSION", "DIRECTORY", "SCRIPT", "LOG", datetime(2026, 11, 23, 14, 0, tzinfo=timezone.utc))

# a type of GPU to request; one of the profile's own if it names some, although it may not exist
TYPES = {
    "snellius": "h100",
    "dtu": "a100-80",
    "casper": "a100",
    "myriad": "a100",
    "alvis": "A40",
    "arrhenius": "gh200",
    "kebnekaise": "l40s",
    "snowy": "t4",
    "rackham": "t4",
    "pelle": "H100",
    "m3": "h100",
    "lumi": "mi250x",
    "perlmutter": "a100-80",
    "meluxina": "a100",
    "sherlock": "h100",
    "generic": "a100",
}
LINE = "the lab's line, or the site's own"
# command lines that an exercise, or the site's own pages, tell people to type there
LINES = {
    "snellius": ["-n 1 -t 00:10:00 -p gpu --gpus-per-node=1"],
    "casper": ["-A ABCD0001 -p casper -t 1:00:00 -n 1 --mem 10G"],
    "myriad": ["-t 0:10:00 -c 16 --mem-per-cpu 1G"],
    "dtu": ["-p gpuv100 -n 1 --gpus 1 -t 1:00:00 --mem-per-cpu 5G"],
    "alvis": ["--account NAISS2026-22-1234 --time=00:15:00 --ntasks 1 --nodes 1 --gpus-per-node=V100:1"],
    "arrhenius": ["-p gpu --gpus 1 -A naiss2026-1-23-gpu -t 1:0:0", "-p gpu -A naiss2026-1-23"],
    "kebnekaise": ["--account hpc2n2026-123 --time=00:15:00 --ntasks 1 --nodes 1 --gpus-per-node=V100:1"],
    "snowy": [
        "-A uppmax2026-1-23 -t 0:59:00 -p core -n 4 -M snowy --gres=gpu:t4:1",
        "-A uppmax2026-1-23 -n 4 -p devcore --gres=gpu:t4:0",
        "-A uppmax2026-1-23 -n 2 -c 4 --gres=gpu:t4:1,scratch:1",
    ],
    "rackham": ["-A g2021027 -t 0:59:00 -p core -n 4 -M snowy --gres=gpu:t4:1"],
    "pelle": ["-A uppmax2026-1-23 -t 1:0:0 -p haswell --gpus=t4"],
    "bianca": ["-A sens2026001 -n 1 --gpus=1 -t 01:10:00"],
    "m3": [
        "--account=vf68 --nodes=1 --ntasks=6 --cpus-per-task=1 --gres=gpu:P4:1 --mem=55G --partition=desktop "
        "--qos=desktopq",
        "--account=vf68 -p m3h --gres=gpu:1 --ntasks=6 --mem=55G",
        "-A proj1 -p gpu --gpus H100:1",
    ],
    "cvl-uwa": ["--account=vf68 --nodes=1 --ntasks=6 --cpus-per-task=1 --mem=40G --partition=desktop"],
    "lumi": ["-A project_465000123 -p small-g --gpus-per-node=1 -t 1:00:00"],
    "perlmutter": [
        "--nodes 1 --qos interactive --time 01:00:00 --constraint gpu --gpus 4 --account=m1234_g",
        "-A m1234_g --gpus 0",
        "-A m1234 --gpus 4",
    ],
    "meluxina": ["-A p200123 -p gpu -q default -N 1 -t 1:00:00", "-A p200123 --gpus 8"],
    "sherlock": ["-p gpu -G 1 -t 1:00:00"],
    "generic": ["-p gpu --gres=gpu:1"],
}


def cases(name: str) -> Iterator[tuple[str, str]]:
    """Yield each request in words, and as it is typed."""
    profile = load_profile(name)
    while profile.status == "retired" and profile.successor:
        profile = load_profile(profile.successor)
    if profile.unavailable:
        yield "nothing is said", ""
        yield from ((LINE, line) for line in LINES[name])
        return
    who = f"-A {profile.account.example or 'proj1'}" if profile.account.required else ""
    if who:
        yield "no account is named", ""
    requests = {
        "nothing is said": "",
        "no GPU": "--gpus 0",
        "one GPU": "--gpus 1",
        "two GPUs": "--gpus 2",
        "a GPU of a type": f"--gpus {TYPES[name]}:1",
        "a type that is not there": "--gpus voodoo:1",
        "three hours from three o'clock": "--gpus 1 -t 3:00:00 -b 15:00",
        "eleven days": "-t 11-0",
    }
    for request, words in requests.items():
        yield request, f"{who} {words}".strip()
    yield from ((LINE, line) for line in LINES[name])


def rendered(name: str) -> str:
    """Return the golden file of a profile, independent of the user's own configuration."""
    with tempfile.TemporaryDirectory() as folder:
        before = os.environ.get("NOTEBOOK_LAUNCHER_CONFIG")
        os.environ["NOTEBOOK_LAUNCHER_CONFIG"] = folder
        _answer_what_is_asked(Path(folder), name)
        try:
            blocks = [_heading(name, load_profile(name)), *(_case(name, *case) for case in cases(name))]
        finally:
            os.environ.pop("NOTEBOOK_LAUNCHER_CONFIG")
            if before is not None:
                os.environ["NOTEBOOK_LAUNCHER_CONFIG"] = before
    return "\n".join(blocks)


def _answer_what_is_asked(folder: Path, name: str) -> None:
    """Save a login node for a profile that is not for a particular cluster, as the first run does."""
    profile = load_profile(name)
    if profile.host is None and "host" in profile.ask:
        (folder / "clusters").mkdir()
        own = folder / "clusters" / f"{name}.toml"
        own.write_text(f'base = "{name}"\nhost = "you@login.example.org"\n', encoding="utf-8")


def _heading(name: str, profile: ClusterProfile) -> str:
    rows = {
        "status": profile.status + (f", now {profile.successor}" if profile.successor else ""),
        "login": f"{profile.host or 'not known'}{f' port {profile.port}' if profile.port else ''}",
        "scheduler": profile.scheduler,
        "route": profile.route,
        "asked for": ", ".join(profile.ask) or "nothing",
        "environments": ", ".join(profile.environments) or "none known",
    }
    return "".join([f"{name}: {profile.description}\n", *(f"  {key:<13} {value}\n" for key, value in rows.items())])


def _case(name: str, request: str, words: str) -> str:
    typed = f"launch-notebook --cluster {name} {words}".strip()
    return "".join([f"# {request}\n", f"$ {typed}\n", *(f"  {line}\n" for line in _answer(name, words))])


def _answer(name: str, words: str) -> Iterator[str]:
    """Yield the outcome of --dry-run: the notes and the submit command, or the refusal."""
    try:
        plan = make_plan(LaunchOptions(flags_of(words), cluster=name), LAPTOP)
        command = make_scheduler(plan.target.scheduler, "DIRECTORY", plan.target.profile.scheduler_options).submit(
            plan.request, SUBMISSION
        )
    except LauncherError as error:
        yield f"{error.kind} (exit code {error.exit_code}): {error.what} {error.why}".strip()
        yield f"-> {error.hint}"
        return
    yield from (f"note: {note}" for note in (*plan.target.notes, *plan.notes, *filter(None, [plan.environment_notice])))
    yield shlex.join(command)


@click.command()
@scheduler_options
def _read() -> None:
    pass


def flags_of(words: str) -> dict[str, str | None]:
    """Parse flags as the command line does."""
    found: dict[str, dict[str, str | None]] = {SCHEDULER_FLAGS: {}}
    _read.main(shlex.split(words), obj=found, standalone_mode=False)
    return found[SCHEDULER_FLAGS]


def main() -> int:
    """Update the files with ``--write``; without it, print which of them differ."""
    different = []
    for name in bundled_profiles():
        path, text = FOLDER / f"{name}.txt", rendered(name)
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            different.append(path.name)
            if "--write" in sys.argv:
                FOLDER.mkdir(parents=True, exist_ok=True)
                path.write_text(text, encoding="utf-8")
    print("different:", ", ".join(different) or "none")
    return 1 if different and "--write" not in sys.argv else 0


if __name__ == "__main__":
    sys.exit(main())
