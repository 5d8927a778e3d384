"""The rooms of the house: imports only point downwards, schedulers do no I/O, no site is built in, --help is quick."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import notebook_launcher
from notebook_launcher.profiles.store import bundled_profiles

PACKAGE = Path(notebook_launcher.__file__).parent
FILES = sorted(path for path in PACKAGE.rglob("*.py") if "_data" not in path.parts)

FLOORS = {
    1: (
        "errors",
        "request",
        "flags",
        "events",
        "answer",
        "resources",
        "interrupts",
        "profiles",
        "state",
        "text",
        "wildcards",
        "expressions",
        "samples",
        "paths",
        "moments",
    ),
    2: ("schedulers", "hosts"),
    3: (
        *(
            "session",
            "lacking",
            "catalogue",
            "watch",
            "asked",
            "pace",
            "tunnel",
            "ways",
            "keys",
            "mending",
            "remaining",
            "tally",
            "bill",
            "advice",
        ),
        *(
            "dialect",
            "pricing",
            "measures",
            "fitting",
            "causes",
            "explain",
            "evidence",
            "rules",
            "variations",
            "occupancy",
            "checkup",
        ),
        *("usage", "plotting"),
        *("notebooks", "companions", "parameters"),
        *("matrix", "comparing", "report", "charts", "ledger"),
        *("wire", "ends", "transfer"),
        *("survey", "drafting", "findings"),
    ),
    4: (
        *("fetching", "courses", "bringing", "providing"),
        "plan",
        "stage",
        "opening",
        "queueing",
        "costing",
        "ending",
        "holding",
        "passage",
        "verdict",
        "waiting",
        "attendance",
        "attend",
        "starting",
        *("attend_run", "results", "run", "bench"),
        "launch",
        "clusters",
        "first_run",
        "forecast",
        "billing",
        "sessions",
        "copying",
        "following",
        "looking",
        "finding",
        "stopping",
        "trial",
        "checks",
        "doctor",
        "images",
        "errand",
        "environments",
        "surveying",
    ),
    5: ("cli", "__main__"),
}
FLOOR = {room: floor for floor, rooms in FLOORS.items() for room in rooms}
IO_MODULES = {"os", "subprocess", "socket", "pathlib", "shutil", "io", "tempfile", "threading", "time", "paramiko"}


def module_of(path: Path) -> str:
    parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imports(path: Path) -> Iterator[str]:
    """Yield the full name of everything that a file imports, at its top, inside functions and for typing alike."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: imports are written out"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def room(module: str) -> str | None:
    """Return the room of a module of ours: ``notebook_launcher.hosts.base.Host`` is in ``hosts``."""
    words = module.split(".")
    return words[1] if words[0] == "notebook_launcher" and len(words) > 1 and words[1] in FLOOR else None


def ids(path: Path) -> str:
    return module_of(path)


def test_every_room_has_its_floor() -> None:
    rooms = {path.relative_to(PACKAGE).parts[0].removesuffix(".py") for path in FILES}
    assert rooms - {"__init__"} == set(FLOOR)


@pytest.mark.parametrize("path", FILES, ids=ids)
def test_imports_only_point_downwards(path: Path) -> None:
    own = room(module_of(path))
    if own is None:  # the package itself
        assert [name for name in imports(path) if room(name)] == []
        return
    above = [name for name in imports(path) if (other := room(name)) and FLOOR[other] > FLOOR[own]]
    assert above == []


@pytest.mark.parametrize(("one", "other"), [("schedulers", "hosts"), ("hosts", "schedulers")])
def test_schedulers_and_hosts_do_not_know_each_other(one: str, other: str) -> None:
    for path in FILES:
        if room(module_of(path)) == one:
            assert [name for name in imports(path) if room(name) == other] == [], path


def test_no_two_files_import_each_other() -> None:
    graph = {
        module_of(path): {name for name in map(nearest, imports(path)) if name and name != module_of(path)}
        for path in FILES
    }
    for start in graph:
        seen: set[str] = set()
        ahead = set(graph[start])
        while ahead:
            name = ahead.pop()
            assert name != start, f"{start} is imported by what it imports"
            if name not in seen:
                seen.add(name)
                ahead |= graph.get(name, set())


def nearest(name: str) -> str | None:
    """Return the module of ours that an imported name lies in."""
    names = {module_of(path) for path in FILES}
    while name and name not in names:
        name = name.rpartition(".")[0]
    return name if name and name != "notebook_launcher" else None


@pytest.mark.parametrize("path", [path for path in FILES if room(module_of(path)) == "schedulers"], ids=ids)
def test_schedulers_are_pure(path: Path) -> None:
    assert [name for name in imports(path) if name.split(".")[0] in IO_MODULES] == []
    called = {node.id for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Name)}
    assert not called & {"open", "print", "input", "exec", "eval"}


@pytest.mark.parametrize("path", FILES, ids=ids)
def test_only_the_command_line_prints_asks_and_exits(path: Path) -> None:
    text = ast.parse(path.read_text())
    names = {node.id for node in ast.walk(text) if isinstance(node, ast.Name)}
    attributes = {
        f"{node.value.id}.{node.attr}"
        for node in ast.walk(text)
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name)
    }
    assert not {"exec", "eval"} & names
    if room(module_of(path)) not in ("cli", "__main__"):
        assert not {"print", "input", "exit", "quit"} & names
        assert not {"sys.exit", "os._exit", "sys.stdout", "sys.stderr", "sys.stdin"} & attributes


@pytest.mark.parametrize("path", FILES, ids=ids)
def test_no_shell_gets_a_string_of_ours(path: Path) -> None:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Call):
            assert not [word for word in node.keywords if word.arg == "shell"], f"{path}:{node.lineno}"


# addresses of the documentation ranges and of this machine may stand in examples
_EXAMPLES = re.compile(r"(^|\.)(example(\.(org|com|net))?|localhost)$")
_HOST_NAME = re.compile(r"\b(?:[a-z0-9-]+\.)+(?:se|edu|fi|de|no|dk|uk|ch|fr|eu|gov|int|org|com|net|io|cloud)\b")
_ADDRESS = re.compile(r"\b\d{1,3}(?:\.\d{1,3}){3}\b")
_NAMES = "|".join(map(re.escape, {*bundled_profiles()} - {"generic"}))  # which is no site
_SITES = re.compile(rf"\b({_NAMES}|uppmax|dardel|berzelius|tetralith|puhti|mahti|g202\d+|/proj/)\b", re.I)


@pytest.mark.parametrize("path", FILES, ids=ids)
def test_no_sites_name_or_address_stands_in_the_code(path: Path) -> None:
    """Sites are data. The one exception is documentation: a cluster's name as an example in a docstring."""
    for node in ast.walk(without_docstrings(ast.parse(path.read_text(encoding="utf-8")))):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            text = node.value
            assert not _SITES.search(text), text
            assert [name for name in _HOST_NAME.findall(text) if not _EXAMPLES.search(name)] == [], text
            assert [address for address in _ADDRESS.findall(text) if not address.startswith("127.")] == [], text


def without_docstrings(tree: ast.Module) -> ast.Module:
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
            node.body = [
                line for line in node.body if not (isinstance(line, ast.Expr) and isinstance(line.value, ast.Constant))
            ]
    return tree


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
