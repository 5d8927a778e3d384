"""The matrix of a bench: ``env=tf-gpu,tf-mkl cores=1,4 gpus=0,1`` as combinations with stable names. Pure."""

from __future__ import annotations

import hashlib
import itertools
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import Literal

from notebook_launcher.core.errors import UsageError
from notebook_launcher.core.frozen import Frozen
from notebook_launcher.core.request import GPU_FLAGS, MEMORY_FLAGS
from notebook_launcher.core.sbatch_options import BY_NAME, FULFILLED, REFUSED
from notebook_launcher.core.suggestions import did_you_mean

MOST = 100  # combinations, unless the user confirms more
EXAMPLE = '--matrix "env=tf-gpu,tf-mkl cores=1,4 gpus=0,1 EPOCHS=1"'

Kind = Literal["env", "cores", "gpus", "flag", "parameter"]
#: flags that mean the same as one of our axes, and conflict with it
CORE_FLAGS = frozenset({"ntasks", "cpus-per-task", "ntasks-per-node", "tasks-per-node", "cpus-per-gpu"})
_KINDS: tuple[Kind, ...] = ("env", "cores", "gpus", "flag", "parameter")
#: flags that a bench needs itself, or that would make its combinations interfere with each other
_NOT_AN_AXIS = {
    "output": "each run has a log of its own",
    "error": "each run has a log of its own",
    "open-mode": "each run has a log of its own",
    "job-name": "each combination has a name of its own",
    "clusters": "sessions of one bench are in one queue; use another --output for another cluster",
    "dependency": "combinations do not wait for each other; --at-once says how many are in the queue",
}
#: flags about when a job may start, its time limit, its account and its reporting: they do not affect results
_WITHOUT_EFFECT = frozenset({
    "account", "begin", "comment", "deadline", "delay-boot", "dependency", "error", "hold", "job-name",
    "kill-on-invalid-dep", "mail-type", "mail-user", "mcs-label", "nice", "no-requeue", "open-mode", "output",
    "parsable", "priority", "qos", "quiet", "requeue", "signal", "time", "time-min", "wait", "wckey",
})  # fmt: skip
_PARAMETER = re.compile(r"[^\W\d]\w*")  # a Python identifier
_GPUS = re.compile(r"(?:[\w.-]+:)?\d{1,4}", re.A)
_DOUBLE_QUOTED = '"\'"\'"'  # a double quote within double quotes, for a shell
_LONGEST_FOLDER_NAME = 80  # characters of a folder's name


class Axis(Frozen):
    """One quantity that is varied, with its values as typed."""

    name: str
    kind: Kind
    values: tuple[str, ...]

    @property
    def order(self) -> tuple[int, str]:
        """Its position in the name of a combination, independent of the typed order."""
        return _KINDS.index(self.kind), self.name


class Combination(Frozen):
    """One value of each axis: pairs of an axis' name and its value, in the order of ``Axis.order``."""

    values: tuple[tuple[str, str], ...]
    axes: tuple[Axis, ...]

    @property
    def name(self) -> str:
        """Its name everywhere: ``env=tf-gpu cores=4 gpus=1``; the same for any order of the axes."""
        return " ".join(f"{name}={_quoted(value)}" for name, value in self.values) or "as it is"

    @property
    def folder(self) -> str:
        """A unique name for its folder, of plain characters."""
        text = self.name.replace(" ", ",")
        plain = re.sub(r"[^A-Za-z0-9.,=+-]+", "_", text)
        if plain == text and len(plain) <= _LONGEST_FOLDER_NAME:
            return plain
        return f"{plain[:_LONGEST_FOLDER_NAME]}-{hashlib.sha256(self.name.encode()).hexdigest()[:8]}"

    def value(self, axis: str) -> str | None:
        """Return its value on an axis, ``None`` if there is no such axis."""
        return dict(self.values).get(axis)

    def flags(self) -> dict[str, str | None]:
        """Return its scheduler flags, by long name."""
        found: dict[str, str | None] = {}
        for axis, (_, value) in zip(self.axes, self.values, strict=True):
            if axis.kind == "cores":  # one process: a notebook's work is divided among threads, not tasks
                found |= {"ntasks": "1", "cpus-per-task": value}
            elif axis.kind == "gpus":
                found["gpus"] = value
            elif axis.kind == "flag" and BY_NAME[axis.name].argument == "none":
                found |= {axis.name: None} if value == "yes" else {}
            elif axis.kind == "flag":
                found[axis.name] = value
        return found

    def pairs(self) -> list[tuple[str, str]]:
        """Return the notebook's parameters, as they were typed."""
        return [pair for axis, pair in zip(self.axes, self.values, strict=True) if axis.kind == "parameter"]


class Matrix(Frozen):
    """The axes, in the order in which they were typed. Without any axis there is one combination."""

    axes: tuple[Axis, ...]

    def __len__(self) -> int:
        count = 1
        for axis in self.axes:
            count *= len(axis.values)
        return count

    def combinations(self) -> Iterator[Combination]:
        """Yield the combinations; the first axis varies slowest."""
        ordered = tuple(sorted(self.axes, key=lambda axis: axis.order))
        places = [self.axes.index(axis) for axis in ordered]
        for values in itertools.product(*(axis.values for axis in self.axes)):
            pairs = tuple((axis.name, values[place]) for axis, place in zip(ordered, places, strict=True))
            yield Combination(pairs, ordered)

    def kinds(self) -> frozenset[Kind]:
        """Return the kinds of its axes."""
        return frozenset(axis.kind for axis in self.axes)

    def conflicting_flag(self, asked: Sequence[str]) -> str | None:
        """Return the first of the user's flags that an axis sets as well; ``None`` if there is none."""
        taken: set[str] = set()
        for axis in self.axes:
            taken |= _family(axis)
        return next((flag for flag in sorted(asked) if flag in taken), None)


def _family(axis: Axis) -> frozenset[str]:
    if axis.kind == "cores":
        return CORE_FLAGS
    if axis.kind == "gpus" or axis.name in GPU_FLAGS:
        return GPU_FLAGS
    if axis.name in MEMORY_FLAGS:
        return MEMORY_FLAGS
    return frozenset({axis.name}) if axis.kind == "flag" else frozenset()


def beside(flags: Mapping[str, str | None], others: Mapping[str, object], arguments: Sequence[str]) -> str:
    """Return the options besides a matrix that may affect results, as typed: ``--mem=4G -- tf-gpu``.

    ``flags``: the scheduler's; ``others``: other options, by long name; ``arguments``: those after ``--``.
    """
    typed = [
        f"--{name}" if value is None else f"--{name}={value}"
        for name, value in sorted(flags.items())
        if name not in _WITHOUT_EFFECT
    ]
    for name, given in others.items():
        typed += [f"--{name}={value}" for value in ([given] if isinstance(given, str) else given or ())]  # type: ignore
    return shlex.join([*typed, *(["--", *arguments] if arguments else [])])


def parse(text: str) -> Matrix:
    """Parse a matrix: ``NAME=VALUE,VALUE``, with axes separated by spaces.

    Values with a space or a comma are in quotes. ``NAME`` is ``env``, ``cores``, ``gpus``, a long flag of sbatch
    (``--`` before it is optional), or else a parameter of the notebook. Raises ``UsageError`` for a mistake, with its
    position.
    """
    axes: list[Axis] = []
    for name, values in _assignments(text):
        axis = _axis(name, values)
        if any(axis.name == other.name for other in axes):
            raise UsageError(f"“{axis.name}” is twice in the matrix.", hint=f"put all its values in one: {axis.name}=…")
        axes.append(axis)
    families = [(axis, _family(axis)) for axis in axes]
    for (one, first), (other, second) in itertools.combinations(families, 2):
        if first & second:
            raise UsageError(
                f"“{one.name}” and “{other.name}” mean the same.",
                hint="leave one of the two out of the matrix",
            )
    return Matrix(tuple(axes))


def with_parameters(matrix: Matrix, pairs: Sequence[tuple[str, str]]) -> Matrix:
    """Return the matrix with parameters that are the same in all combinations. Raises ``UsageError``."""
    fixed = dict(pairs)  # if a name occurs several times, the last value counts
    if twice := [axis.name for axis in matrix.axes if axis.name in fixed]:
        raise UsageError(f"“{twice[0]}” stands in the matrix and after -p as well.", hint="leave out one of the two")
    return Matrix((*matrix.axes, *(Axis(name, "parameter", (value,)) for name, value in fixed.items())))


def check_size(matrix: Matrix, *, sure: bool) -> None:
    """Check that there are not too many combinations. Raises ``UsageError``; ``sure`` allows any number."""
    if len(matrix) > MOST and not sure:
        product = " × ".join(str(len(axis.values)) for axis in matrix.axes)
        raise UsageError(
            f"The matrix has {len(matrix)} combinations ({product}), each of them a job.",
            why=f"More than {MOST} are queued only if you confirm it.",
            hint="leave out some values, or give --yes",
        )


def find(combinations: Sequence[Combination], text: str) -> Combination:
    """Return the first combination that has these values: ``cores=1 gpus=0``. Raises ``UsageError``."""
    wanted = [(axis.name, value) for axis in parse(text).axes for value in axis.values]
    if wanted:
        for one in combinations:
            if all(one.value(name) == value for name, value in wanted):
                return one
    named = " ".join(sorted({name for one in combinations for name, _ in one.values}))
    raise UsageError(
        f"No combination of the matrix is “{text}”.",
        why=f"Its axes are: {named or 'none'}.",
        hint="for example: --baseline cores=1",
    )


# --- parsing ------------------------------------------------------------------------------------------------------


def _assignments(text: str) -> Iterator[tuple[str, list[str]]]:
    """Split a text at spaces into axes, and each at commas into values; quoted text is not split."""
    name: str | None = None
    values: list[str] = []
    word, quote, began = "", "", False
    for char in f"{text} ":
        if quote:
            if char == quote:
                quote = ""
            else:
                word += char
        elif char in "'\"":
            quote, began = char, True
        elif char == "=" and name is None:
            name, word = word, ""
        elif char == "," and name is not None:
            values, word = [*values, word], ""
        elif not char.isspace():
            word, began = word + char, True
        elif began or name is not None:
            if name is None:
                raise UsageError(
                    f"“{word}” in the matrix has no values.",
                    why="An axis is NAME=VALUE,VALUE.",
                    hint=f"for example: {EXAMPLE}",
                )
            yield name, [*values, word]
            name, values, word, began = None, [], "", False
    if quote:
        raise UsageError(f"A quote ({quote}) is not closed in the matrix.", hint=f"for example: {EXAMPLE}")


def _axis(name: str, values: list[str]) -> Axis:
    kind, plain = _kind(name)
    if kind != "env" and "" in values:
        raise UsageError(
            f"“{name}” has an empty value in the matrix.",
            why=f"It has: {','.join(values)}",
            hint="remove the extra comma",
        )
    if kind in ("cores", "gpus"):
        values = [_number(plain, value) for value in values]
    elif kind == "flag" and BY_NAME[plain].argument == "none" and not set(values) <= {"yes", "no"}:
        raise UsageError(f"--{plain} takes no value.", hint=f"in the matrix: {plain}=yes,no")
    if bad := [value for value in values if re.search("[\x00-\x1f\x7f\ud800-\udfff]", value)]:
        raise UsageError(f"A value of “{name}” has a control character: {bad[0]!r}")
    if len(set(values)) < len(values):
        twice = next(value for value in values if values.count(value) > 1)
        raise UsageError(
            f"“{plain}” has the value “{twice}” twice in the matrix.",
            why="A combination is run once; the notebook decides how often it measures.",
        )
    return Axis(plain, kind, tuple(values))


def _kind(name: str) -> tuple[Kind, str]:
    """Return the kind of an axis, and its name without dashes. Raises ``UsageError``."""
    if name in ("env", "cores", "gpus"):
        return name, name  # type: ignore[return-value]
    flag = name.removeprefix("--")
    if flag in BY_NAME:
        if why := REFUSED.get(flag) or FULFILLED.get(flag) or _NOT_AN_AXIS.get(flag):
            raise UsageError(f"“{flag}” cannot be in the matrix: {why}.")
        return "flag", flag
    if name.startswith("-") or not _PARAMETER.fullmatch(name):
        raise UsageError(
            f"“{name}” cannot be varied." if name else "A name is missing before “=”.",
            why="An axis is env, cores, gpus, a long flag of sbatch, or a parameter of the notebook.",
            hint=did_you_mean(flag, ["env", "cores", "gpus", *BY_NAME], "{}=…") or f"for example: {EXAMPLE}",
        )
    return "parameter", name


def _number(axis: str, value: str) -> str:
    if axis == "cores" and value.isascii() and value.isdecimal() and 0 < int(value) < 100_000:
        return str(int(value))
    if axis == "gpus" and _GPUS.fullmatch(value):
        kind, _, count = value.rpartition(":")
        return f"{kind}:{int(count)}" if kind else str(int(count))
    known = "a number of cores, 1 at least" if axis == "cores" else "a number of GPUs, or with a type a100:1"
    raise UsageError(f"“{value}” is not {known}.", hint=f"in the matrix: {axis}={'1,4' if axis == 'cores' else '0,1'}")


def _quoted(value: str) -> str:
    """Return a value quoted for a matrix."""
    if not re.search(r"[\s,'\"]", value):
        return value
    if '"' in value and "'" not in value:
        return f"'{value}'"
    return '"' + _DOUBLE_QUOTED.join(value.split('"')) + '"'
