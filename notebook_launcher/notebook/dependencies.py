"""Collects the dependencies of a notebook: Python files in its folder that it imports, and files named by the user."""

from __future__ import annotations

import ast
import contextlib
import functools
import os
import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath

from notebook_launcher.core.bounded_read import read_at_most
from notebook_launcher.core.errors import NotebookInvalid
from notebook_launcher.core.quantities import file_size
from notebook_launcher.core.text import listed
from notebook_launcher.notebook.parameters import quoted

LARGEST = 64 * 1024 * 1024  # bytes of all files together
MOST = 2000  # files
_CACHES = {"__pycache__", "node_modules"}
_BY_COPY = "copy it there first: launch-notebook copy SOURCE login:FOLDER/"


class Dependencies:
    """Files by their paths relative to the notebook. ``notes``: sentences on what was left out."""

    def __init__(self, folder: Path, notebook: str, kind: str = "notebook") -> None:
        """``folder``: the notebook's; ``notebook``: its file name, which no dependency may have.

        ``kind``: what it is called in messages.
        """
        self._folder, self._notebook, self._kind = folder, notebook, kind
        self._files: dict[str, Path] = {}
        self._contents: dict[str, bytes] = {}
        self._left: list[str] = []
        self._imported: set[str] = set()

    # --- imports -------------------------------------------------------------------------------------------------

    def add_imported(self, cells: Sequence[str]) -> None:
        """Add the files in the notebook's folder that Python code imports or runs, and what these import."""
        waiting = [name for cell in cells for name in imports(cell)]
        scripts = [name for cell in cells for name in _RUN.findall(cell)]
        found = [path for name in scripts if name.endswith(".py") and _is_file(path := absolute(self._folder / name))]
        seen: set[str] = set()
        while found or waiting:
            for path in found:
                if self._add(path, imported=True):
                    waiting += imports(_text(path))
            name = waiting.pop() if waiting else ""
            found = [] if name in seen or not name else _modules(self._folder, name)
            seen.add(name)
        self._imported |= {name.partition(".")[0] for name in seen}

    def add_helper(self, path: Path) -> bool:
        """Add a module of the launcher if it is imported and the user has none of that name; return whether it was.

        A module or folder of the user counts wherever it is among the files, because code may have it on its path.
        """
        own = any({path.name, path.stem} & set(PurePosixPath(name).parts) for name in (*self._files, *self._left))
        if own or path.stem not in self._imported or (self._folder / path.stem).is_dir():
            return False
        self._files[path.name] = path
        return True

    def _add(self, path: Path, *, imported: bool = False) -> bool:
        """Add a file of the notebook's folder, once. Return whether it is new."""
        name = _below(path, self._folder)
        if name is None or name in self._files:
            return False
        if not path.resolve().is_relative_to(self._folder.resolve()):
            self._left.append(name)
            return False
        self._files[name] = path
        return True

    # --- files named by the user ---------------------------------------------------------------------------------

    def add_named(self, path: Path) -> None:
        """Add a file or a folder that the user has named. Raises ``NotebookInvalid``."""
        path = absolute(typed_path(path))
        name = _below(path, self._folder) or path.name
        if not path.exists():
            raise NotebookInvalid(
                f"{path} is not there.", hint=f"name a file that goes with the {self._kind}: --with FILE"
            )
        if path == self._folder:
            name = ""
        elif _is_hidden(name):
            raise NotebookInvalid(
                f"{path} is a hidden file, which other programs may read as their configuration.",
                hint="give it another name",
            )
        if path.is_dir():
            for file, below in self._walk(path):
                self._name(f"{name}/{below}" if name else below, file)
        elif path.is_file():
            if name == self._notebook and not self._is_notebook(path):
                raise NotebookInvalid(f"{path} has the {self._kind}'s own name.", hint="give it another name")
            self._name(name, path)
        else:
            raise NotebookInvalid(f"{path} is neither a file nor a folder.")

    def add_contents(self, contents: Mapping[str, bytes]) -> None:
        """Add files that have already been read, by their paths relative to the notebook, unless a path is taken."""
        self._contents |= contents

    def _is_notebook(self, path: Path) -> bool:
        return path == self._folder / self._notebook

    def _name(self, name: str, path: Path) -> None:
        if name == self._notebook:
            return
        other = self._files.setdefault(name, path)
        if other.resolve() != path.resolve():
            raise NotebookInvalid(
                f"{path} and {other} would become the same file beside the {self._kind}.",
                hint="give one of them another name",
            )

    def _walk(self, folder: Path) -> Iterator[tuple[Path, str]]:
        for path, below in _tree(folder):
            if path.is_symlink():
                self._left.append(below)
            else:
                yield path, below

    # --- all files -----------------------------------------------------------------------------------------------

    @property
    def notes(self) -> tuple[str, ...]:
        """Sentences on files that are not sent though they may be needed."""
        if not self._left:
            return ()
        left = listed(list(dict.fromkeys(self._left)))
        return (f"Not sent with the {self._kind}, as it is a symbolic link: {left}. --with FILE sends it.",)

    def read(self) -> dict[str, bytes]:
        """Return the content of all files. Raises ``NotebookInvalid`` if one cannot be read, or they are too large."""
        if len(self._files) > MOST:
            raise NotebookInvalid(
                f"{len(self._files)} files are too many to go with a {self._kind}, which takes {MOST}.", hint=_BY_COPY
            )
        for name, path in self._files.items():
            if above := next((str(above) for above in PurePosixPath(name).parents if str(above) in self._files), ""):
                raise NotebookInvalid(
                    f"{path} would lie in {above} beside the {self._kind}, which is a file.",
                    hint="give one of them another name",
                )
        contents = dict(self._contents)
        room = LARGEST - sum(map(len, contents.values()))
        for name, path in sorted(self._files.items()):
            if not name.isprintable():
                raise NotebookInvalid(
                    f"The name of {str(path)!a} has characters that a file beside a {self._kind} should not have.",
                    hint="give it another name",
                )
            contents[name] = read_file(path, room, f"with all else that goes with the {self._kind}, ")
            room -= len(contents[name])
        return contents


def read_file(path: Path, at_most: int, how: str = "") -> bytes:
    """Return a file's content. Raises ``NotebookInvalid`` if it cannot be read, or is larger than ``at_most``."""
    try:
        content = read_at_most(path, at_most)
    except OSError as error:
        raise NotebookInvalid(f"{path} cannot be read.", why=error.strerror or str(error)) from None
    if content is None:
        raise NotebookInvalid(
            f"{path} is too large to be sent: {how}it is more than {file_size(LARGEST)}.", hint=_BY_COPY
        )
    return content


def _below(path: Path, folder: Path) -> str | None:
    """Return the path of a file relative to a folder; ``None`` if it is elsewhere."""
    return path.relative_to(folder).as_posix() if path != folder and path.is_relative_to(folder) else None


def typed_path(word: str | Path) -> Path:
    """Return a typed path, with ``~`` expanded; it need not exist. Raises ``NotebookInvalid``."""
    try:
        path = Path(word).expanduser()
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            path.stat()
    except (RuntimeError, OSError, ValueError) as error:  # an unknown home, a name that is too long, a null character
        why = (error.strerror if isinstance(error, OSError) else None) or str(error)
        raise NotebookInvalid(
            f"{quoted(str(word))} cannot be inspected.", why=f"{why.rstrip('.')}.", hint="write another path"
        ) from None
    return path


def absolute(path: Path) -> Path:
    """Return the absolute, normalised path; links are not resolved."""
    return Path(os.path.abspath(path.expanduser()))  # noqa: PTH100 - resolve() follows links


def _is_hidden(name: str) -> bool:
    return any(part.startswith(".") or part in _CACHES for part in name.split("/"))


def _is_file(path: Path) -> bool:
    with contextlib.suppress(OSError, ValueError):
        return path.is_file()
    return False


def _tree(folder: Path) -> Iterator[tuple[Path, str]]:
    """Yield the files in a folder with their paths there: no hidden ones, no caches; links are not followed."""
    for above, folders, files in os.walk(folder):
        folders[:] = sorted(name for name in folders if not _is_hidden(name))
        links = [name for name in folders if (Path(above) / name).is_symlink()]
        for name in (*links, *sorted(files)):
            path = Path(above) / name
            if not _is_hidden(name) and (path.is_symlink() or _is_file(path)):
                yield path, path.relative_to(folder).as_posix()


def _modules(folder: Path, name: str) -> list[Path]:
    """Return the files that an import of this name needs: one file, or a whole package."""
    place = folder
    for part in name.split("."):
        if _is_file(place / part / "__init__.py"):
            return [path for path, _ in _tree(place / part) if path.suffix == ".py"]
        if _is_file(place / f"{part}.py"):
            return [place / f"{part}.py"]
        place /= part
    return []


def _text(path: Path) -> str:
    try:
        return read_file(path, LARGEST).decode("utf-8-sig", errors="replace")
    except NotebookInvalid:
        return ""  # the error is reported when the file is to be sent


# --- what code imports -----------------------------------------------------------------------------------------

_RUN = re.compile(r"^[ \t]*%run[ \t]+(?:-\w+[ \t]+)*[\"']?([\w./-]+)", re.M)
_CELL_MAGIC = re.compile(r"\s*%%[^\n]*\n?")
_LONGEST_LINE = 1000  # characters of a line that may contain a magic: IPython's are short
_TIMED = re.compile(r"^([ \t]*)%(?:time|timeit|prun)[ \t]+(?=[^\s-])")
_ASSIGNED = re.compile(r"^([ \t]*[\w ,.\[\]\"']+=[ \t]*)[%!].*$")
_LINE_MAGIC = re.compile(r"^([ \t]*)(?:[%!?].*|[^#'\"]*\?[ \t]*)$")
_IMPORT = re.compile(r"^[ \t]*(?:from[ \t]+([\w.]+)[ \t]+import\b|import[ \t]+([^#;\n]+))", re.M)


@functools.lru_cache(maxsize=256)  # cells and modules of a notebook are read again for each combination of a bench
def imports(source: str) -> tuple[str, ...]:
    """Return the full names that Python code imports; ``from a import b`` may mean ``a.b``. Magics are ignored."""
    own = _CELL_MAGIC.sub("", source, count=1) if _CELL_MAGIC.match(source) else source
    for text in (own, "\n".join(_without_magic(line) for line in own.split("\n"))):
        with contextlib.suppress(SyntaxError, ValueError, RecursionError, MemoryError), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return tuple(_imported(ast.parse(text)))
    names = [name for found in _IMPORT.finditer(own) for name in (found[1] or found[2]).split(",")]
    return tuple(words[0] for name in names if (words := name.split()))


def _without_magic(line: str) -> str:
    if len(line) > _LONGEST_LINE:
        return line
    return _LINE_MAGIC.sub(r"\1pass", _ASSIGNED.sub(r"\1None", _TIMED.sub(r"\1", line)))


def _imported(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
