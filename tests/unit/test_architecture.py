"""The packages: what each may import is said in its ``__init__.py``, and held here."""

from __future__ import annotations

import ast
import graphlib
import re

import pytest

from tests.package_source import FILES, PACKAGE, imports, module_of, package_of

PACKAGES = sorted(path.parent.name for path in PACKAGE.glob("*/__init__.py"))

#: What a user would name, one module each: it may import every package but these, and what stands before it here.
STORIES = ("forecast", "sessions", "stop", "renew", "launch", "run", "submit", "shell")
ABOVE_STORIES = {"cli", "classroom", "bench", "doctor", "discovery", "environments"}


def part(module: str) -> str | None:
    """Return the package or story of a module: ``notebook_launcher.hosts.base.Host`` is in ``hosts``."""
    words = module.split(".")
    known = {*PACKAGES, *STORIES, "__main__"}
    return words[1] if words[0] == "notebook_launcher" and len(words) > 1 and words[1] in known else None


def says(name: str) -> str:
    """What the ``__init__.py`` of a package says of it."""
    return ast.get_docstring(ast.parse((PACKAGE / name / "__init__.py").read_text(encoding="utf-8"))) or ""


def may_import(name: str) -> set[str]:
    """What the ``__init__.py`` of a package, or the order of the stories, allows it to import."""
    everything = {*PACKAGES, *STORIES}
    if name == "__main__":
        return {"cli"}
    if name in STORIES:
        return everything - ABOVE_STORIES - {*STORIES[STORIES.index(name) :]}
    found = re.search(r"^May import: (.+)\.$", says(name), re.MULTILINE)
    assert found, f"{name}/__init__.py does not say what it may import"
    named = {"everything": everything, "nothing of the project": set[str]()}
    return named[found[1]] if found[1] in named else set(found[1].split(", "))


def test_the_top_holds_a_handful_of_stories() -> None:
    assert {path.stem for path in PACKAGE.glob("*.py")} == {"__init__", "__main__", *STORIES}


@pytest.mark.parametrize("name", PACKAGES)
def test_a_package_says_what_lives_in_it(name: str) -> None:
    assert len(says(name).splitlines()) <= 5
    assert may_import(name) <= {*PACKAGES, *STORIES}


def test_a_package_imports_only_what_it_says() -> None:
    allowed = {name: {None, name, *may_import(name)} for name in [*PACKAGES, *STORIES, "__main__"]}
    used = {
        (package_of(path), part(imported), module_of(path))
        for path in FILES
        if package_of(path) in allowed
        for imported in imports(path)
    }
    assert {found for found in used if found[1] not in allowed[found[0]]} == set()


def test_arrows_only_point_down() -> None:
    graph = {name: may_import(name) - {name} for name in [*PACKAGES, *STORIES]}
    graphlib.TopologicalSorter(graph).prepare()  # raises CycleError


def test_no_two_files_import_each_other() -> None:
    names = {module_of(path) for path in FILES}
    graph = {module_of(path): {nearest(name, names) for name in imports(path)} for path in FILES}
    graphlib.TopologicalSorter({name: used - {name, ""} for name, used in graph.items()}).prepare()


def nearest(name: str, names: set[str]) -> str:
    """Return the module of ours that an imported name lies in, or nothing."""
    while name and name not in names:
        name = name.rpartition(".")[0]
    return name if name != "notebook_launcher" else ""
