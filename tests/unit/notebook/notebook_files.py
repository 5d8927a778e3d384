"""Notebooks that tests write and read."""

from __future__ import annotations

import ast
import json
from pathlib import Path
from typing import Any

import nbformat
import pytest

from notebook_launcher.core.errors import NotebookInvalid
from notebook_launcher.notebook.prepare import Prepared, prepare

PARAMETERS = """\
import measuring as timing
EPOCHS = timing.setting("EPOCHS", 5, least=1)
RATE: float = 0.01
EXTRA_LAYERS = False
DEVICE = "auto"
CORES = len([1])
"""
HOSTILE = [
    "1); import os #",
    "'",
    '"',
    "\\",
    "'''\n\"\"\"",
    'x"\nopen("owned", "w")',
    "\u2028",
    "{}",
    "%s",
    "é中🙂",
    "\x1b[2J\x00",
]


def cell(source: str, kind: str = "code", **metadata: Any) -> dict[str, Any]:
    made = {"cell_type": kind, "metadata": metadata, "source": source}
    return {**made, "outputs": [], "execution_count": None} if kind == "code" else made


def written(path: Path, *cells: dict[str, Any], minor: int = 4, **others: Any) -> str:
    """A notebook in a file, and the file's name."""
    kernel = {"kernelspec": {"display_name": "Mine", "language": "python", "name": "mine"}}
    about = {"nbformat": 4, "nbformat_minor": minor, "metadata": kernel, "cells": list(cells), **others}
    path.write_text(json.dumps(about))
    return str(path)


def refusal(word: str, pairs: Any = (), extra: Any = ()) -> str:
    """What is said of a notebook that is refused."""
    with pytest.raises(NotebookInvalid) as caught:
        prepare(word, pairs, extra)
    error = caught.value
    assert error.exit_code == 26
    return f"{error.what} {error.why} → {error.hint}"


def sources(prepared: Prepared) -> list[str]:
    return [cell.source for cell in nbformat.reads(prepared.content.decode(), 4).cells]


def value_of(source: str, name: str) -> object:
    """What a cell sets a name to, where it is nothing but literals."""
    (statement,) = ast.parse(source).body
    assert isinstance(statement, ast.Assign)
    (target,) = statement.targets
    assert isinstance(target, ast.Name) and target.id == name
    if isinstance(statement.value, ast.Call):
        assert ast.unparse(statement.value) in ("float('inf')", "float('-inf')", "float('nan')")
        return float(ast.unparse(statement.value)[7:-2])
    return ast.literal_eval(statement.value)
