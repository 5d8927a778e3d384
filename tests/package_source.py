"""The package's source code, parsed once: its files, and what each imports."""

from __future__ import annotations

import ast
import functools
from pathlib import Path

import notebook_launcher

PACKAGE = Path(notebook_launcher.__file__).parent
FILES = sorted(path for path in PACKAGE.rglob("*.py") if "_data" not in path.parts)


@functools.cache
def tree(path: Path) -> ast.Module:
    """The syntax tree of a file. It is shared, and must not be changed."""
    return ast.parse(path.read_text(encoding="utf-8"))


def module_of(path: Path) -> str:
    parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@functools.cache
def imports(path: Path) -> tuple[str, ...]:
    """The full names of everything that a file imports, at its top, inside functions and for type checking."""
    found: list[str] = []
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: imports are written out"
            found += [f"{node.module}.{alias.name}" for alias in node.names]
    return tuple(found)


def package_of(path: Path) -> str:
    """The subpackage that contains a file, or the file's name at the top level."""
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")
