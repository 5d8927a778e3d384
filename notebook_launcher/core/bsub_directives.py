"""Translates the ``#BSUB`` lines of an LSF job script to sbatch's flags, of which every request consists. Pure.

An option that has no counterpart and would change what the job does is an error that names the line; one that the job
can do without is left out, and reported.
"""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Callable, Iterator, Mapping
from typing import ClassVar

from notebook_launcher.core.errors import UsageError
from notebook_launcher.core.frozen import Frozen
from notebook_launcher.core.text import whole_number

MARK = "#BSUB"
_DIRECTIVE = re.compile(r"#BSUB\s+(?P<words>.*)")
#: options of bsub whose values are those of a flag of sbatch
_SAME = {"-q": "partition", "-P": "account", "-U": "reservation", "-u": "mail-user", "-i": "input"}
_FILES = {"-o": "output", "-oo": "output", "-e": "error", "-eo": "error"}
#: options without a value that have a counterpart
_PLAIN = {"-x": "exclusive", "-H": "hold", "-r": "requeue"}
#: options without a value that only affect bsub itself, or repeat its default
_WITHOUT_EFFECT = frozenset({"-rn", "-ul", "-K", "-I", "-Ip", "-Is", "-tty"})
#: options with a value that are left out: limits besides those of the queue, and how LSF requeues a job
_LEFT_OUT = frozenset({"-M", "-v", "-S", "-D", "-F", "-c", "-p", "-T", "-Q", "-L", "-sp", "-ptl", "-eptl", "-Jd"})
_PART = re.compile(r"(?P<name>[a-z]+)\[(?P<value>(?:[^][]|\[[^][]*\])*)\]")  # of -R: rusage[mem=5GB], select[a[0]]
_RESERVED_MEMORY = re.compile(r"mem\s*=\s*(?P<size>\d+(?:\.\d+)?)\s*(?P<unit>[KMGT]?)B?", re.I | re.A)


class BsubDirectives(Frozen):
    """What ``#BSUB`` lines ask for: flags of sbatch by long name, and what was left out, as it was typed."""

    flags: Mapping[str, str | None]
    left_out: tuple[str, ...] = ()


def read_bsub_directives(text: str) -> BsubDirectives:
    """Return what the ``#BSUB`` lines above a script's first command ask for.

    If an option occurs twice, the last one counts. Raises ``UsageError`` for what cannot be read or translated.
    """
    reader = _Reader()
    for number, line in enumerate(text.split("\n"), 1):
        stripped = line.strip()
        if stripped and not stripped.startswith("#"):
            break
        if match := _DIRECTIVE.fullmatch(line.rstrip()):
            reader.read(number, match["words"])
    return reader.result()


class _Reader:
    """Collects the options line by line; some can be translated only once all are known."""

    def __init__(self) -> None:
        self._flags: dict[str, str | None] = {}
        self._left_out: list[str] = []
        self._mail: list[str] = []
        self._slots: int | None = None
        self._is_one_host = False
        self._warning = {"-wa": "", "-wt": ""}
        self._number = 0

    def read(self, number: int, text: str) -> None:
        self._number = number
        try:
            words = shlex.split(text, comments=True)
        except ValueError:
            raise self._wrong("a quote in it is not closed") from None
        while words:
            self._option(words.pop(0), words)

    def result(self) -> BsubDirectives:
        flags = dict(self._flags)
        if self._slots is not None:
            flags["cpus-per-task" if self._is_one_host else "ntasks"] = str(self._slots)
        if self._mail:
            flags["mail-type"] = ",".join(dict.fromkeys(self._mail))
        if self._warning["-wa"]:
            flags["signal"] = f"B:{self._warning['-wa']}@{60 * _minutes(self._warning['-wt'] or '1')}"
        return BsubDirectives(flags, tuple(dict.fromkeys(self._left_out)))

    def _option(self, option: str, rest: list[str]) -> None:
        if option in _PLAIN:
            self._flags[_PLAIN[option]] = None
        elif option in ("-B", "-N"):
            self._mail.append("BEGIN" if option == "-B" else "END")
        elif option in _WITHOUT_EFFECT:
            self._left_out.append(option)
        elif not option.startswith("-"):
            raise self._wrong(f"“{option}” is not an option of bsub")
        elif not rest:
            raise self._wrong(f"{option} needs a value, or is not an option of bsub")
        else:
            self._valued(option, rest.pop(0))

    def _valued(self, option: str, value: str) -> None:
        if option in _SAME:
            self._flags[_SAME[option]] = value
        elif option in _FILES:
            self._flags[_FILES[option]] = value
            if len(option) == 3:
                self._flags["open-mode"] = "truncate"
        elif option in self._warning:
            self._warning[option] = value
            if option == "-wt" and not _minutes(value):
                raise self._wrong(f"-wt {value} is not a time")
            if option == "-wa" and not re.fullmatch(r"(SIG)?[A-Z]+[12]?", value):
                raise self._wrong(f"-wa {value} is not a signal")
        elif option in _LEFT_OUT:
            self._left_out.append(f"{option} {value}")
        elif option in self._READERS:
            self._READERS[option](self, value)
        else:
            raise self._untranslated(f"{option} {value}")

    # --- options whose values are LSF's own

    def _job_name(self, value: str) -> None:
        name, bracket, array = value.partition("[")
        if name:
            self._flags["job-name"] = name
        if bracket:
            self._flags["array"] = array.replace("]", "")

    def _slot_count(self, value: str) -> None:
        slots = whole_number(value)
        if not slots:
            raise self._untranslated(f"-n {value}") if "," in value else self._wrong(f"-n {value} is not a number")
        self._slots = slots

    def _run_limit(self, value: str) -> None:
        minutes = _minutes(value.partition("/")[0])
        if not minutes:
            raise self._wrong(f"-W {value} is not a time: hours:minutes, or minutes")
        self._flags["time"] = f"{minutes // 60}:{minutes % 60:02d}:00"

    def _hosts(self, value: str) -> None:
        self._flags["nodelist"] = ",".join(value.split())

    def _begin(self, value: str) -> None:
        if not re.fullmatch(r"\d{1,2}:\d\d", value, re.A):
            raise self._untranslated(f"-b {value}")
        self._flags["begin"] = value

    def _gpus(self, value: str) -> None:
        parts = dict(part.strip().partition("=")[::2] for part in value.split(":") if part.strip() not in ("", "-"))
        number, _, each = (parts.pop("num", "") or "1").partition("/")
        if each not in ("", "host"):  # for each task
            raise self._untranslated(f"-gpu {value}")
        gpus = whole_number(number)
        if not gpus:
            raise self._wrong(f"-gpu {value} has no number of GPUs")
        self._flags["gpus"] = str(gpus)
        if parts.pop("mode", "exclusive_process") != "exclusive_process":
            self._left_out.append("mode=shared of -gpu")
        if parts:
            raise self._untranslated(f"-gpu {':'.join(f'{name}={one}' for name, one in parts.items())}")

    def _requirements(self, value: str) -> None:
        left = value
        for part in _PART.finditer(value):
            left = left.replace(part[0], "", 1)
            self._requirement(part["name"], part["value"].strip())
        if left.strip():
            self._requirement("select", left.strip())  # a string without a section name is a select string

    def _requirement(self, name: str, value: str) -> None:
        if name == "span" and value.replace(" ", "") == "hosts=1":
            self._is_one_host = True
        elif name == "select":
            before = self._flags.get("constraint")
            self._flags["constraint"] = f"({before}) && ({value})" if before else value
        elif name == "rusage" and (match := _RESERVED_MEMORY.fullmatch(value)):
            mib = float(match["size"]) * {"K": 1 / 1024, "": 1, "M": 1, "G": 1024, "T": 1024**2}[match["unit"].upper()]
            self._flags["mem-per-cpu"] = f"{max(1, math.ceil(mib))}M"
        else:
            raise self._untranslated(f"-R {name}[{value}]")

    _READERS: ClassVar[Mapping[str, Callable[[_Reader, str], None]]] = {
        "-J": _job_name,
        "-n": _slot_count,
        "-W": _run_limit,
        "-m": _hosts,
        "-b": _begin,
        "-gpu": _gpus,
        "-R": _requirements,
    }

    # --- errors

    def _wrong(self, why: str) -> UsageError:
        return UsageError(f"Line {self._number} of the script, a #BSUB line, cannot be read: {why}.")

    def _untranslated(self, what: str) -> UsageError:
        return UsageError(
            f"Line {self._number} of the script asks for {what}, which cannot be passed on from here.",
            why="Without it, the job would not be the one that the script asks for.",
            hint="leave it out, or submit the script on the login node: bsub < SCRIPT",
        )


def _minutes(text: str) -> int:
    """Return the minutes of ``1:30`` or ``90``, 0 if it is neither."""
    match = re.fullmatch(r"(?:(\d{1,5}):)?(\d{1,6})", text.strip(), re.A)
    return 60 * int(match[1] or 0) + int(match[2]) if match else 0


def marked_lines(flags: Mapping[str, str | None]) -> Iterator[str]:
    """Yield the ``#SBATCH`` lines for these flags, for a script."""
    for name, value in sorted(flags.items()):
        yield f"#SBATCH --{name}" + ("" if value is None else f"={shlex.quote(value)}")
