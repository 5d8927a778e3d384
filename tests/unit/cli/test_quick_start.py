"""``--help`` and mistakes are answered quickly: nothing heavy is imported for them."""

from __future__ import annotations

import subprocess
import sys

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
def test_the_list_of_commands_imports_none_but_the_launch(words: list[str]) -> None:
    program = (
        "import sys\n"
        "from notebook_launcher.cli.app import run\n"
        "run(sys.argv[1:])\n"
        "commands = 'notebook_launcher.cli.commands.'\n"
        "print('\\nCOMMANDS', sorted(name for name in sys.modules if name.startswith(commands)))\n"
    )
    done = subprocess.run([sys.executable, "-c", program, *words], capture_output=True, text=True, check=True)
    assert done.stdout.endswith("COMMANDS ['notebook_launcher.cli.commands.launch']\n"), done.stdout[-300:]
