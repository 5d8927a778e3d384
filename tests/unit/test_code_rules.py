"""What holds for every file of the package: what is pure stays pure, nobody else prints, no site is built in."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from notebook_launcher.core.package_data import job_script
from notebook_launcher.profiles.store import bundled_profiles
from tests.package_source import FILES, imports, package_of, tree

#: Packages that are pure: data in, data out.
PURE = ("schedulers", "diagnosis")
IO_MODULES = {"os", "subprocess", "socket", "pathlib", "shutil", "io", "tempfile", "threading", "time", "paramiko"}


def names(path: Path) -> set[str]:
    return {node.id for node in ast.walk(tree(path)) if isinstance(node, ast.Name)}


def attributes(path: Path) -> set[str]:
    return {
        f"{node.value.id}.{node.attr}"
        for node in ast.walk(tree(path))
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name)
    }


def test_schedulers_and_diagnosis_are_pure() -> None:
    for path in FILES:
        if package_of(path) in PURE:
            assert [name for name in imports(path) if name.split(".")[0] in IO_MODULES] == [], path
            assert not names(path) & {"open", "print", "input"}, path


@pytest.mark.real_time
def test_only_the_command_line_prints_asks_and_exits() -> None:
    for path in FILES:
        assert not {"exec", "eval"} & names(path), path
        if package_of(path) not in ("cli", "__main__"):
            assert not {"print", "input", "exit", "quit"} & names(path), path
            exits = {"sys.exit", "os._exit", "sys.stdout", "sys.stderr", "sys.stdin"}
            assert not exits & attributes(path), path


def test_no_shell_gets_a_string_of_ours() -> None:
    for path in (path for path in FILES if "shell" in path.read_text(encoding="utf-8")):
        for node in ast.walk(tree(path)):
            if isinstance(node, ast.Call):
                assert not [word for word in node.keywords if word.arg == "shell"], f"{path}:{node.lineno}"


def test_names_are_suggested_in_one_way() -> None:
    for path in FILES:
        compares = any(name.split(".")[0] == "difflib" for name in imports(path))
        assert not compares or path.name == "suggestions.py", f"{path}: use core/suggestions.py"


def test_frozen_dataclasses_are_made_when_they_are_needed() -> None:
    for path in FILES:
        if path.name != "frozen.py":
            assert "dataclass(frozen=True" not in path.read_text(), f"{path}: extend core/frozen.py's Frozen"


# addresses of the documentation ranges and of this machine may stand in examples
_EXAMPLES = re.compile(r"(^|\.)(example(\.(org|com|net))?|localhost)$")
_XML_NAMESPACE = re.compile(r"http://www\.w3\.org/\S+")  # a name that nobody looks up
_HOST_NAME = re.compile(r"\b(?:[a-z0-9-]+\.)+(?:se|edu|fi|de|no|dk|uk|ch|fr|eu|gov|int|org|com|net|io|cloud)\b")
_ADDRESS = re.compile(r"\b\d{1,3}(?:\.\d{1,3}){3}\b")
_NAMES = "|".join(map(re.escape, {*bundled_profiles()} - {"generic"}))  # which is no site
_SITES = re.compile(rf"\b({_NAMES}|uppmax|dardel|berzelius|tetralith|puhti|mahti|g202\d+|/proj/)\b", re.I)


@pytest.mark.real_time
def test_no_sites_name_or_address_stands_in_the_code() -> None:
    """Sites are data. The one exception is documentation: a cluster's name as an example in a docstring."""
    for path in FILES:
        for text in texts(path):
            assert not _SITES.search(text), (path, text)
            text = _XML_NAMESPACE.sub("", text)
            assert [name for name in _HOST_NAME.findall(text) if not _EXAMPLES.search(name)] == [], (path, text)
            assert [found for found in _ADDRESS.findall(text) if not found.startswith("127.")] == [], (path, text)


def texts(path: Path) -> Iterator[str]:
    """Yield the strings of a file, but for docstrings."""
    docstrings = {
        id(node.body[0].value)
        for node in ast.walk(tree(path))
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef)
        and node.body
        and isinstance(node.body[0], ast.Expr)
    }
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docstrings:
            yield node.value


#: by which bash 5.2 loses a trap that is due: ``$(…)`` (not backquotes), ``<(…)``, ``break`` and ``continue``
LOSES_A_TRAP = re.compile(r"[$<>]\((?!\()|\b(break|continue)\b(?=\s*\d*\s*([;&|#)}]|$))")


@pytest.mark.parametrize("script", ["jupyterlab", "job_services", "lib", "program", "workers"])
def test_the_script_of_a_job_loses_no_signal(script: str) -> None:
    once = ("users_options=", "{ exec {pause_fd}", "exec {reverse}", "exec {holding}")
    for number, line in enumerate(job_script(f"{script}.sh").read_text(encoding="utf-8").splitlines(), 1):
        code = line.strip()
        if not code.startswith(("#", *once)):
            assert not LOSES_A_TRAP.search(code), f"{script}.sh:{number}"
