"""``--help`` and mistakes are answered quickly, and commands start so: nothing is imported that they do not need."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.parametrize(
    "words", [["--help"], ["launch", "--help"], ["connect", "--help"], ["when", "--help"], ["--version"], ["--gpu"]]
)
def test_help_and_mistakes_are_quick(words: list[str]) -> None:
    program = (
        "import sys\n"
        "from notebook_launcher.cli import main\n"
        "try:\n    main(sys.argv[1:])\nexcept SystemExit:\n    pass\n"
        "heavy = {'paramiko', 'pydantic', 'rich', 'sshtunnel', 'asyncio', 'http.client', 'notebook_launcher.launch'}\n"
        "print('\\nHEAVY', sorted(heavy & sys.modules.keys()))\n"
    )
    # The exit code is that of the words, the wrong ones' too: main() ends the program for good (cli/__init__._leave).
    done = subprocess.run([sys.executable, "-c", program, *words], capture_output=True, text=True, check=False)
    assert done.stdout.endswith("HEAVY []\n"), done.stdout[-300:] + done.stderr[-300:]


@pytest.mark.parametrize("words", [["--help"], ["-h", "--json"]])
def test_the_list_of_commands_imports_no_other_and_nothing_of_what_they_do(words: list[str]) -> None:
    program = (
        "import sys\n"
        "from notebook_launcher.cli.app import run\n"
        "run(sys.argv[1:])\n"
        "print('\\nIMPORTED', *sorted(name for name in sys.modules if name.startswith('notebook_launcher.')))\n"
    )
    done = subprocess.run([sys.executable, "-c", program, *words], capture_output=True, text=True, check=True)
    modules = done.stdout.rpartition("IMPORTED ")[2].split()
    assert [name for name in modules if ".commands." in name] == ["notebook_launcher.cli.commands.launch"]
    others = {name.split(".")[1] for name in modules} - {"cli"}
    assert others == {"core"} and not {"events", "request", "view"} & {name.split(".")[-1] for name in modules}


@pytest.mark.parametrize("module", ["usage.inspect", "supervision.next_jobs"])
def test_what_shows_or_follows_a_session_does_without_pydantic(module: str) -> None:
    """It is for a session with programs of ``--app`` alone, and takes a tenth of a second."""
    program = f"import sys\nimport notebook_launcher.{module}\nprint('pydantic' in sys.modules)\n"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


PROFILE = """
base = "snellius"
host = "login.example"
user = "alice"
presets = { lab = "-t 2:00:00" }
"""


def imported_by(words: list[str], folder: Path) -> set[str]:
    """Return the modules that a command imports, with a cluster ``uni`` and its state in a folder."""
    program = (
        "import sys\n"
        "from notebook_launcher.cli.app import run\n"
        "print('\\nCODE', run(sys.argv[1:]))\n"
        "print(*sys.modules)\n"
    )
    places = {f"NOTEBOOK_LAUNCHER_{what}": str(folder / what) for what in ("CONFIG", "STATE")}
    command = [sys.executable, "-c", program, *words]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=os.environ | places, cwd=folder)
    told, _, modules = done.stdout.rstrip("\n").rpartition("\n")
    assert told.endswith("CODE 0"), told + done.stderr
    return set(modules.split())


@pytest.mark.parametrize(
    ("words", "unwanted"),
    [
        (
            ["list", "--cluster", "here"],
            {"pydantic", "paramiko", "cryptography", "asyncio", "notebook_launcher.launch"},
        ),
        (
            ["--dry-run", "--cluster", "uni", "-A", "p1"],
            {"pydantic", "paramiko", "cryptography", "asyncio", "notebook_launcher.schedulers.lsf.commands"}
            | {"notebook_launcher.supervision.jupyter", "notebook_launcher.jobs.submit", "notebook_launcher.sessions"}
            | {"notebook_launcher.cli.views.bench", "notebook_launcher.cli.views.status_and_usage", "rich.table"},
        ),
        (["clusters"], {"pydantic", "paramiko", "cryptography", "asyncio", "notebook_launcher.launch"}),
        (["again", "--cluster", "uni", "lab", "--dry-run", "-A", "p1"], {"pydantic", "paramiko", "cryptography"}),
    ],
    ids=["list", "dry run", "clusters", "preset"],
)
def test_a_command_imports_only_what_it_needs(words: list[str], unwanted: set[str], tmp_path: Path) -> None:
    profile = tmp_path / "CONFIG" / "clusters" / "uni.toml"
    profile.parent.mkdir(parents=True)
    profile.write_text(PROFILE)
    first, second = (imported_by(words, tmp_path) for _ in range(2))
    assert not second & unwanted
    assert not first & (unwanted - {"pydantic"})  # which checks the profiles that are new
