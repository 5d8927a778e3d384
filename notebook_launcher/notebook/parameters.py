"""Parameters of a notebook: what its parameters cell sets, and how a typed value is converted.

Pure: code of the notebook or the user is never run.
"""

from __future__ import annotations

import ast
import keyword
import math
import re
import shlex
import unicodedata
import warnings
from collections.abc import Collection, Mapping, Sequence

from notebook_launcher.core.errors import NotebookInvalid
from notebook_launcher.core.suggestions import did_you_mean

UNKNOWN = object()  # the default of a parameter that is computed
Defaults = Mapping[str, object]

_INTEGER = re.compile(r"[+-]?(0|[1-9][0-9]*)")
_INTEGER_FOR_SURE = re.compile(r"[+-]?[0-9]+(_[0-9]+)*")  # accepted if the parameter's default is a number
_FLOAT = re.compile(r"[+-]?((0|[1-9][0-9]*)(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?")
_FLOAT_FOR_SURE = re.compile(r"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?")
_WORDS: dict[str, object] = {"True": True, "true": True, "False": False, "false": False, "None": None}
_SWITCHES = {"1": True, "yes": True, "on": True, "0": False, "no": False, "off": False}
_ODD_FLOATS = re.compile(r"[+-]?inf|nan")
_NAME_ANYWHERE = re.compile(r"[A-Za-z][A-Za-z0-9_]*")  # an identifier in any language
_TEXT_ANYWHERE = re.compile(r"[A-Za-z0-9 _.,:;/+=@-]*")  # has the same meaning between quotes in any language
_MAGIC = re.compile(r"^[%!].*", re.M)
_READ_ANY = {"globals", "locals", "vars", "eval", "exec", "get_ipython"}
_LONGEST_NUMBER = 4000  # digits; Python converts at most 4300 from text


def defaults_in(source: str) -> Defaults | None:
    """Return the names that the cell tagged ``parameters`` sets, with their values if these are literals.

    ``setting("EPOCHS", 5)`` has the default 5. ``None``: the cell cannot be parsed.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    found: dict[str, object] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and any(alias.name == "*" for alias in node.names):
            return None
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            found.setdefault(node.id, UNKNOWN)
    for statement in tree.body:
        if isinstance(statement, ast.Assign | ast.AnnAssign) and statement.value is not None:
            targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
            default = _default(statement.value)
            found |= {target.id: default for target in targets if isinstance(target, ast.Name)}
    return found or None


def _default(value: ast.expr) -> object:
    if isinstance(value, ast.Call) and len(value.args) == 2:
        called = value.func.attr if isinstance(value.func, ast.Attribute) else getattr(value.func, "id", "")
        if called == "setting":
            value = value.args[1]
    try:
        return ast.literal_eval(value)
    except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError):
        return UNKNOWN


def read_pairs(pairs: Sequence[tuple[str, str]], defaults: Defaults | None, python: bool) -> dict[str, object]:
    """Return parameters by name, with their text converted to ``True``, ``None`` etc., a number, or else left as text.

    ``defaults``: what the notebook sets, if known: then an unknown name is refused, a parameter with a text as its
    default gets the text as it is, and for a number or a Boolean, text is refused. Raises ``NotebookInvalid``.
    """
    values: dict[str, object] = {}
    for typed, text in pairs:
        name = unicodedata.normalize("NFKC", typed)  # as Python normalises identifiers
        if not (typed.isidentifier() if python else _NAME_ANYWHERE.fullmatch(typed)) or keyword.iskeyword(name):
            what = f"{quoted(typed)} cannot be the name of a parameter."
            raise NotebookInvalid(
                what, hint=f"a name and a value: {as_two_arguments(typed) or 'for example -p EPOCHS 1'}"
            )
        if defaults is not None and name not in defaults:
            raise _unknown(name, defaults)
        values[name] = _value(name, text, (defaults or {}).get(name, UNKNOWN))
        if not python and isinstance(values[name], str) and not _TEXT_ANYWHERE.fullmatch(text):
            raise NotebookInvalid(
                f"The text {quoted(text)} of the parameter {name} cannot be put safely into this notebook.",
                why="It is not in Python, and the text has more in it than letters, digits, spaces and _.,:;/+=@-",
                hint="put it into the notebook yourself",
            )
    return values


def as_two_arguments(typed: str) -> str:
    """Return ``-p STEPS 3`` if ``STEPS=3`` was typed as a name; "" for anything else."""
    name, sign, value = typed.partition("=")
    return f"-p {name} {shlex.quote(value or 'VALUE')}" if sign and name.isidentifier() and value.isprintable() else ""


def _unknown(name: str, defaults: Defaults) -> NotebookInvalid:
    there = ", ".join(defaults)
    return NotebookInvalid(
        f"The notebook has no parameter {quoted(name)}.",
        why=f"Its parameters are: {there}.",
        hint=did_you_mean(name, defaults) or "name one of those",
    )


def _value(name: str, text: str, default: object) -> object:
    if any("\ud800" <= sign <= "\udfff" for sign in text):
        raise NotebookInvalid(f"The value of the parameter {name} is not in UTF-8.", hint="type it in another terminal")
    if isinstance(default, str):
        return text
    if isinstance(default, bool) and text.lower() in _SWITCHES:
        return _SWITCHES[text.lower()]
    if text in _WORDS:
        return _WORDS[text]
    number = _number(name, text, lenient=isinstance(default, int | float))
    whole = isinstance(default, int) and isinstance(number, float) and number.is_integer()
    if number is None and isinstance(default, int | float):
        raise _nonsense(name, text, default)
    return text if number is None else int(number) if whole else number


def _nonsense(name: str, text: str, default: float) -> NotebookInvalid:
    kind, example = ("a switch", str(not default).lower()) if isinstance(default, bool) else ("a number", repr(default))
    return NotebookInvalid(
        f"The parameter {name} is {kind}, and {quoted(text)} is none.",
        why=f"The notebook has {default!r}.",
        hint=f"for example: -p {name} {example}",
    )


def _number(name: str, text: str, *, lenient: bool) -> int | float | None:
    """Return a number; ``None`` if the text is none. ``lenient``: accept 007, which could also be an identifier."""
    if _ODD_FLOATS.fullmatch(text):
        return float(text)
    if len(text) > _LONGEST_NUMBER and re.fullmatch(r"[-+._0-9eE]+", text):
        raise NotebookInvalid(f"The value of the parameter {name} is too long for a number.")
    if (_INTEGER_FOR_SURE if lenient else _INTEGER).fullmatch(text):
        return int(text)
    if not (_FLOAT_FOR_SURE if lenient else _FLOAT).fullmatch(text):
        return None
    number = float(text)
    if not math.isfinite(number):
        raise NotebookInvalid(
            f"The value {text} of the parameter {name} is too large for a number.",
            hint="write inf if you mean infinity",
        )
    return number


def doubts(values: Mapping[str, object], defaults: Defaults | None) -> list[str]:
    """Return a sentence for each value whose type differs from the default's, such as a fraction for a whole number."""
    found = []
    for name, value in values.items():
        default = (defaults or {}).get(name)
        if isinstance(default, bool) and isinstance(value, int | float) and not isinstance(value, bool):
            found.append(f"The parameter {name} is the number {value!r} now, where the notebook has {default!r}.")
        elif isinstance(default, int) and not isinstance(default, bool) and isinstance(value, float):
            found.append(f"The parameter {name} is {value!r} now, where the notebook has the whole number {default!r}.")
    return found


def set_again(cells: Sequence[str], names: Collection[str]) -> dict[str, int]:
    """Return which names are overwritten before anything reads them, each with the index of the Python cell.

    Only certain cases are returned: a cell that cannot be parsed may read any of them.
    """
    found: dict[str, int] = {}
    pending = set(names)
    for number, source in enumerate(cells):
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                statements = ast.parse(_MAGIC.sub("", source)).body
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            break
        pending -= set(re.findall(r"\w+", " ".join(_MAGIC.findall(source))))
        for statement in statements:
            pending -= _read_by(statement, pending)
            if isinstance(statement, ast.Assign | ast.AnnAssign) and statement.value is not None:
                targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
                again = pending & {target.id for target in targets if isinstance(target, ast.Name)}
                found |= dict.fromkeys(again, number)
                pending -= again
    return found


def _read_by(statement: ast.stmt, names: Collection[str]) -> set[str]:
    """Return the names that a statement may read: all of them if it may look them up as text."""
    words = set()
    for node in ast.walk(statement):
        if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Store):
            words.add(node.id)
        elif isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name):
            words.add(node.target.id)
    return set(names) if words & _READ_ANY else words & set(names)


def quoted(text: str) -> str:
    """Return typed text, quoted for use in a sentence."""
    shown = "".join(sign if sign.isprintable() else "?" for sign in text)
    return f"“{shown[:60]}…”" if len(shown) > 60 else f"“{shown}”"
