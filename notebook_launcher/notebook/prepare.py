"""Prepares a notebook before it leaves this machine: finds and checks it, sets parameters, collects dependencies."""

from __future__ import annotations

import json
import logging
import re
import warnings
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from notebook_launcher.core.errors import NotebookInvalid
from notebook_launcher.core.frozen import Frozen
from notebook_launcher.core.package_data import folder as shipped
from notebook_launcher.core.suggestions import did_you_mean
from notebook_launcher.notebook.dependencies import LARGEST, Dependencies, absolute, read_file, typed_path
from notebook_launcher.notebook.parameters import defaults_in, doubts, quoted, read_pairs, set_again

LONGEST_NAME = 200  # bytes of a notebook's name: names derived from it are longer, and file systems allow 255
HELPER = "timing.py"  # the module with which the bundled notebooks measure
TRAINER = "training/train_ddp.py"  # one of the job scripts; its folder is sent with a bundled notebook that starts it
COMPARES, FILES_COMPARED = "compare.ipynb", "RESULTS"  # the bundled notebook that reads results, and its parameter
_ENDING = ".ipynb"
_SEE = "list the bundled notebooks: launch-notebook notebooks list"
_TO_MEASURE = (
    "run a notebook that records times first, in an environment with numpy and matplotlib, for example: "
    "launch-notebook run beginner-torch -- torch   and then: launch-notebook run compare -- torch"
)
_OPEN_IT = "open it in JupyterLab, and save it anew"
_INJECTED = "injected-parameters"
_TAG_IT = "tag that cell “parameters” (in JupyterLab: the gears at the top right, “Cell tags”)"
_MINOR = 5  # the newest minor version of nbformat 4 whose keys are all known here
_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")


class Prepared(Frozen):
    """A notebook that is ready to run.

    ``name``: the file's, with its suffix. ``content``: the notebook as UTF-8, with ``parameters`` set and without
    outputs. ``cells``: the number of code cells that are not empty, without the one that sets the parameters.
    ``dependencies``: the files that it needs, by their relative paths; ``helpers``: those of them that are the
    launcher's own. ``folder``: its folder on this machine; ``None`` for a bundled notebook. ``notes``: remarks for the
    user, in sentences, for ``events.Note``.
    """

    name: str
    content: bytes
    cells: int
    parameters: Mapping[str, object]
    dependencies: Mapping[str, bytes]
    folder: Path | None
    notes: tuple[str, ...] = ()
    helpers: tuple[str, ...] = ()


def prepare(
    path_or_name: str, pairs: Sequence[tuple[str, str]], extra: Sequence[Path] = (), runs: Path | None = None
) -> Prepared:
    """Return a notebook with parameters set, and its dependencies. Nothing of it is run.

    ``path_or_name``: a file, or the name of a bundled notebook, with or without its suffix. ``pairs``: names and values
    of parameters, as typed; of several for one name the last counts. ``extra``: more files and folders to send with it.
    ``runs``: the folder with the results of runs, which are sent with the bundled notebook that compares them, unless
    ``pairs`` or ``extra`` specify what it compares. Raises ``NotebookInvalid``, also if there is nothing to compare.
    """
    found = find(path_or_name)
    notebook = _read(found.path)
    code = [cell.source for cell in notebook.cells if cell.cell_type == "code"]
    python = _language(notebook) == "python"
    values, notes = _set_parameters(notebook, pairs, found.path) if pairs else ({}, [])
    name = _name_of(found.path)
    dependencies = Dependencies(found.path.parent, name)
    if python:
        dependencies.add_imported(code)
    named = tuple(extra)
    if found.is_bundled:  # its folder is not the user's
        extra = [*data_of(found.path), *extra]
    for path in extra:
        dependencies.add_named(path)
    if runs is not None and found.is_bundled and name == COMPARES and not named and FILES_COMPARED not in dict(pairs):
        from notebook_launcher.notebook.own_results import own_results

        own = own_results(runs)
        if not own.files:
            raise NotebookInvalid("There is nothing to compare.", why=own.note, hint=_TO_MEASURE)
        dependencies.add_contents(own.files)
        notes.append(own.note)
    helpers = (HELPER,) if dependencies.add_helper(absolute(shipped("notebooks") / HELPER)) else ()
    if helpers:
        notes.append(f"The launcher's {HELPER} is sent along: the notebook imports it, and there is none beside it.")
    return Prepared(
        name,
        _written(notebook, found.path),
        sum(map(_is_counted, notebook.cells)),
        values,
        dependencies.read(),
        None if found.is_bundled else found.path.parent,
        (*found.notes, *notes, *dependencies.notes),
        helpers,
    )


def data_of(path: Path) -> list[Path]:
    """Return the files that a bundled notebook refers to: data files beside it, and the trainer's folder."""
    text = path.read_text(encoding="utf-8")
    data = [file for file in sorted(path.parent.iterdir()) if file.suffix not in (_ENDING, ".py") and file.is_file()]
    trainer = absolute(shipped("jobscripts") / TRAINER)
    return [file for file in data if file.name in text] + [trainer.parent] * (trainer.name in text)


# --- finding it --------------------------------------------------------------------------------------------------


class FoundNotebook(Frozen):
    """The absolute path of a notebook. ``is_bundled``: it is one of the launcher's own."""

    path: Path
    is_bundled: bool = False
    notes: tuple[str, ...] = ()


def bundled() -> Mapping[str, Path]:
    """Return the bundled notebooks, by their names without the suffix."""
    return {path.stem: absolute(path) for path in sorted(shipped("notebooks").glob(f"*{_ENDING}"))}


def named(word: str) -> Path:
    """Return a bundled notebook by its name. Raises ``NotebookInvalid``, suggesting the closest name."""
    there = bundled()
    name = word.removesuffix(_ENDING)
    if name in there:
        return there[name]
    raise NotebookInvalid(
        f"There is no bundled notebook {quoted(word)}.",
        why=f"The bundled ones are: {', '.join(there) or 'none'}.",
        hint=did_you_mean(name, there) or "name one of those",
    )


def find(word: str) -> FoundNotebook:
    """Return the notebook with this path or name; the user's files have priority. Raises ``NotebookInvalid``."""
    if not word or "\0" in word:
        raise NotebookInvalid("No notebook is named.", hint=_SEE)
    path = typed_path(word)
    ours = bundled().get(word.removesuffix(_ENDING))
    for own in (path, path.with_name(path.name + _ENDING)) if path.name else ():
        if _is_there(own):
            notes = (f"{own} of this folder is used, not the bundled notebook of that name.",) if ours else ()
            return FoundNotebook(absolute(own), notes=notes)
    if ours:
        return FoundNotebook(ours, is_bundled=True)
    if path.is_dir():
        raise NotebookInvalid(f"{path} is a folder.", hint=_in_folder(path))
    if path.exists():
        raise NotebookInvalid(f"{path} is not a file.", hint=_SEE)
    raise _missing(word, path)


def _is_there(path: Path) -> bool:
    try:
        return path.is_file()
    except (OSError, ValueError) as error:
        raise NotebookInvalid(f"{quoted(str(path))} cannot be inspected.", why=str(error)) from None


def _in_folder(folder: Path) -> str:
    there = _notebooks_of(folder)
    return f"name a notebook in it: {folder / there[0]}" if there else "name a notebook"


def _missing(word: str, path: Path) -> NotebookInvalid:
    known = {str(path.with_name(name)) for name in _notebooks_of(path.parent)}
    known |= set() if len(path.parts) > 1 else set(bundled())
    meant = did_you_mean(word, known) or did_you_mean(f"{word}{_ENDING}", known)
    return NotebookInvalid(
        f"There is no notebook {quoted(word)}.",
        why="No file has that name, and no bundled notebook.",
        hint=meant or f"check the name; the command runs in this folder; {_SEE}",
    )


def _notebooks_of(folder: Path) -> list[str]:
    try:
        return sorted(path.name for path in folder.glob(f"*{_ENDING}"))
    except OSError:
        return []


def _name_of(path: Path) -> str:
    """Return the notebook's name on the cluster; it becomes a line of ``session.env`` and the name of the result."""
    if not path.name.isprintable() or "�" in path.name.encode(errors="replace").decode(errors="replace"):
        raise NotebookInvalid(
            f"The name of {str(path)!a} has characters that a notebook's name should not have.",
            hint="give it another name",
        )
    if len(path.name.encode()) > LONGEST_NAME:
        raise NotebookInvalid(
            f"The name of the notebook {quoted(path.name)} is too long.",
            why=f"It may have {LONGEST_NAME} bytes: its results are named after it.",
            hint="give it a shorter name",
        )
    return f"{path.name.removesuffix(_ENDING).lstrip('.-') or 'notebook'}{_ENDING}"


# --- reading it --------------------------------------------------------------------------------------------------


def _read(path: Path) -> Any:
    """Return a notebook in the newest version of nbformat, without outputs. Raises ``NotebookInvalid``."""
    text = _text(path)
    data = _json_object(text, path)
    version, minor = data.get("nbformat"), data.get("nbformat_minor", 0)
    if type(version) is not int or type(minor) is not int:
        raise NotebookInvalid(f"{path} is not a notebook: it does not say which version of the format it has.")
    if not 1 <= version <= 4:
        raise NotebookInvalid(
            f"{path} has version {version} of the notebook format, and this launcher knows up to 4.",
            hint="check for a newer version of launch-notebook",
        )
    from nbformat import ValidationError, convert, from_dict, reader, v4, validate
    from nbformat.validator import normalize

    with warnings.catch_warnings(), _quiet("nbformat", "traitlets"):
        warnings.simplefilter("ignore")
        try:
            if version < 4:
                data = convert(reader.reads(text), 4)
            notebook: Any = v4.upgrade(from_dict(_cleaned(data)))
            _give_ids(notebook, anew=(version, minor) < (4, 5))  # the converters' own ids are random
            _, notebook = normalize(notebook, strip_invalid_metadata=True)
            validate(notebook)
        except ValidationError as error:
            raise NotebookInvalid(
                f"{path} is damaged.", why=str(error).strip().partition("\n")[0][:300], hint=_OPEN_IT
            ) from None
        except NotebookInvalid:
            raise
        except Exception as error:  # errors of the format's own converters on a damaged notebook
            why = f"{type(error).__name__}: {error}"[:300]
            raise NotebookInvalid(f"{path} is damaged.", why=why, hint=_OPEN_IT) from None
    if not any(map(_runs, notebook.cells)):
        raise NotebookInvalid(f"{path} has no code in it to run.")
    return notebook


def _runs(cell: Any) -> bool:
    return cell.cell_type == "code" and bool(cell.source.strip())


def _is_counted(cell: Any) -> bool:
    """Whether a cell is counted: it contains code other than the launcher's own. ``execute.py`` counts the same way."""
    return _runs(cell) and _INJECTED not in cell.metadata.get("tags", ())


def _text(path: Path) -> str:
    try:
        return read_file(path, LARGEST).decode("utf-8-sig")
    except UnicodeDecodeError:
        raise NotebookInvalid(f"{path} is not a notebook: it is not text in UTF-8.", hint=_SEE) from None


def _json_object(text: str, path: Path) -> dict[str, Any]:
    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as error:
        why = f"It is not JSON: {error}." if text.strip() else "It is empty."
        raise NotebookInvalid(f"{path} is not a notebook.", why=why, hint=_SEE) from None
    if not isinstance(data, dict) or not ("cells" in data or "worksheets" in data):
        raise NotebookInvalid(f"{path} is not a notebook: it has no cells.", hint=_SEE)
    return data


def _cleaned(data: Mapping[str, Any]) -> dict[str, Any]:
    """Return a notebook of version 4 without outputs and irrelevant metadata."""
    metadata = _mapping(data.get("metadata"))
    metadata.pop("widgets", None)  # the state of widgets belongs to the outputs, and is large
    kernel = metadata.get("kernelspec")
    if isinstance(kernel, dict) and isinstance(kernel.get("name"), str):
        metadata["kernelspec"] = {"display_name": kernel["name"], **kernel}
    cells = data.get("cells")
    if not isinstance(cells, list):
        raise NotebookInvalid("The notebook's cells are not a list.", hint=_OPEN_IT)
    minor = min(data.get("nbformat_minor", 0), _MINOR)  # keys of later versions are dropped
    return {"nbformat": 4, "nbformat_minor": minor, "metadata": metadata, "cells": [_cleaned_cell(c) for c in cells]}


def _cleaned_cell(cell: Any) -> dict[str, Any]:
    if not isinstance(cell, dict):
        raise NotebookInvalid("A cell of the notebook is not valid.", hint=_OPEN_IT)
    source = cell.get("source", "")
    if isinstance(source, list) and all(isinstance(line, str) for line in source):
        source = "".join(source)
    kept = {key: cell[key] for key in ("cell_type", "id", "attachments") if key in cell}
    clean = {**kept, "source": source, "metadata": _mapping(cell.get("metadata"))}
    if cell.get("cell_type") != "code":
        return clean
    clean.pop("attachments", None)
    return {**clean, "outputs": [], "execution_count": None}


def _mapping(value: Any) -> dict[str, Any]:
    return dict(value) if isinstance(value, dict) else {}


def _give_ids(notebook: Any, *, anew: bool = False) -> None:
    """Give each cell a unique, reproducible id, so that the same notebook always has the same content."""
    used: set[str] = set()
    for number, cell in enumerate(notebook.cells):
        own = None if anew else cell.get("id")
        if not isinstance(own, str) or not _ID.fullmatch(own) or own in used:
            own = next(
                name
                for extra in range(len(notebook.cells) + 1)
                if (name := f"cell-{number}" + f"-{extra}" * bool(extra)) not in used
            )
        cell["id"] = own
        used.add(own)


def _language(notebook: Any) -> str:
    """Return the language of a notebook's kernel as papermill calls it; Python by default."""
    about, kernel = (_mapping(notebook.metadata.get(key)) for key in ("language_info", "kernelspec"))
    language = about.get("name") or kernel.get("language")
    if not isinstance(language, str) or language.lower() in ("python", "ipython"):
        return "python"
    return language


def _written(notebook: Any, path: Path) -> bytes:
    import nbformat

    try:
        content: str = nbformat.writes(notebook, ensure_ascii=True)
    except (ValueError, RecursionError) as error:
        raise NotebookInvalid(f"{path} cannot be written anew.", why=str(error)[:300], hint=_OPEN_IT) from None
    return content.encode() + b"\n"


# --- parameters --------------------------------------------------------------------------------------------------


def _set_parameters(notebook: Any, pairs: Sequence[tuple[str, str]], path: Path) -> tuple[dict[str, object], list[str]]:
    """Set the parameters of a notebook. Returns them, and remarks for the user."""
    language = _language(notebook)
    tagged = [cell for cell in notebook.cells if "parameters" in cell.metadata.get("tags", ())]
    defaults = defaults_in(tagged[0].source) if tagged and language == "python" else None
    values = read_pairs(pairs, defaults, python=language == "python")
    notes = doubts(values, defaults)
    if not tagged:
        notes.append(f"{path.name} has no cell tagged “parameters”: they are set in a new cell before all others.")
    _inject(notebook, values, language)
    if language == "python":
        notes += _notes_on_set_again(notebook, values, "remove that line" if tagged else _TAG_IT)
    return values, notes


def _notes_on_set_again(notebook: Any, names: Collection[str], hint: str) -> list[str]:
    """Return a sentence for each parameter that the notebook sets anew after the cell that has been inserted."""
    place = next(at for at, cell in enumerate(notebook.cells) if _INJECTED in cell.metadata.get("tags", ()))
    before = sum(map(_is_counted, notebook.cells[:place]))
    code = [cell.source for cell in notebook.cells[place + 1 :] if _runs(cell)]
    return [
        f"The notebook itself sets {name} in code cell {before + number + 1}, so -p {name} has no effect: {hint}"
        for name, number in set_again(code, names).items()
    ]


def _inject(notebook: Any, values: Mapping[str, object], language: str) -> None:
    """Insert the cell as papermill does: after the one tagged ``parameters``, in place of an earlier one, or first."""
    with _quiet("papermill"):
        from papermill.exceptions import PapermillException
        from papermill.parameterize import parameterize_notebook

        untagged = [cell for cell in notebook.cells if "tags" not in cell.metadata]
        for cell in untagged:
            cell.metadata["tags"] = []  # as papermill does
        noted = notebook.metadata.pop("papermill", None)
        notebook.metadata["papermill"] = {}
        kernel = "python" if language == "python" else str(_mapping(notebook.metadata.get("kernelspec")).get("name"))
        try:
            made = parameterize_notebook(notebook, dict(values), kernel_name=kernel, language=language)
        except (PapermillException, NotImplementedError):
            raise NotebookInvalid(
                f"Parameters cannot be put into a notebook in {quoted(language)}.",
                why="Papermill, which does it, does not know how.",
                hint="leave out -p, and set them in the notebook",
            ) from None
    del notebook.metadata["papermill"]
    if noted is not None:
        notebook.metadata["papermill"] = noted
    for cell in untagged:
        del cell.metadata["tags"]
    notebook.cells = made.cells
    next(cell for cell in notebook.cells if _INJECTED in cell.metadata.get("tags", ()))["id"] = _INJECTED
    _give_ids(notebook)


class _quiet:
    """Silences loggers during the block."""

    def __init__(self, *names: str) -> None:
        self._loggers = [logging.getLogger(name) for name in names]
        self._were: list[bool] = []

    def __enter__(self) -> None:
        self._were = [logger.disabled for logger in self._loggers]
        for logger in self._loggers:
            logger.disabled = True

    def __exit__(self, *_: object) -> None:
        for logger, was in zip(self._loggers, self._were, strict=True):
            logger.disabled = was


# --- bundled notebooks --------------------------------------------------------------------------------------------


def sentence_of(path: Path) -> str:
    """Return the first sentence of a notebook's first text, or its heading; "" if there is none."""
    cells = _json_object(_text(path), path).get("cells")
    texts = (cell["source"] for cell in cells or () if isinstance(cell, dict) and cell.get("cell_type") == "markdown")
    text = next(texts, "")
    lines = (text if isinstance(text, str) else "".join(text)).strip().splitlines()
    headings = [line.lstrip("# ") for line in lines if line.startswith("#")]
    after = "\n".join(line for line in lines if not line.startswith("#")).strip()
    paragraph = " ".join(after.partition("\n\n")[0].split())
    plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", paragraph).replace("**", "").replace("`", "")
    return re.split(r"(?<=[.!?])\s", plain, maxsplit=1)[0] or (headings[0] if headings else "")
