"""Types the commands of the lessons in docs/learn one after the other in real terminals of the practice cluster.

A command in a ``console`` block is typed at the prompt that the lesson shows, and the output must be the one in the
lesson, with ``...`` for text that differs between runs (as in doctest)::

    laptop$ ssh login
    ...
    login$ cat >hello.sh <<'END'
    > echo hello
    > END
    login$ bash hello.sh
    hello

The prompts are ``laptop$``, ``login$`` and ``node$`` (any compute node). Blocks of other kinds are not typed.

Each command must succeed, unless it opens a shell on another host. A command that fails on purpose is marked on the
line before its block, in a comment that readers do not see: ``<!-- fails: python3 mean.py -->``.
"""

from __future__ import annotations

import doctest
import itertools
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pexpect

from tests.paths import DOCS
from tests.practice_cluster import PracticeCluster

LESSONS = DOCS / "learn"

#: the hosts of the practice cluster that each prompt of the lessons stands for
PLACES = {"laptop": ("laptop",), "login": ("login", "login2"), "node": ("node1", "node2", "gpu1")}

_PROMPT = re.compile(r"^(laptop|login|node)\$ ?(.*)$")
#: Debian's prompt, optionally with the name of a virtual environment, and that of `launch-notebook shell`
_REAL_PROMPT = re.compile(
    r"\r?(?:\(\w+\) )?(?:\x1b\][^\x07]*\x07)?(?:\([^()\n]* on (\w+)\) alice|alice@(\w+)):[^\r\n$]*\$ $"
)
#: printed only if the job cannot start at once, which nobody can predict
_WAITED = re.compile(r"^(srun|salloc): (job \d+ |Pending job allocation |Nodes .* are ready).*\n?", re.M)
#: on the line before a block: the command in it that fails
_FAILS = re.compile(r"<!-- fails: (.+) -->\n\Z")
_SHOW_CODE = "_code=$?; echo $_code; (exit $_code)"  # keeps the exit code for the next command of the lesson
_WIDTH = 400  # columns: so that no typed line is wrapped
_SAME = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


@dataclass(frozen=True)
class Typed:
    """A command of a lesson: its prompt, its lines, the expected output, and its line number in the lesson.

    ``fails``: whether it ends with an exit code other than 0.
    """

    place: str
    lines: tuple[str, ...]
    expected: str
    number: int
    fails: bool = False

    def __str__(self) -> str:
        """The command as the lesson shows it."""
        return f"{self.place}$ {chr(10).join(self.lines)}\n{self.expected}"


def lessons() -> list[Path]:
    """Return the pages with commands, sorted by name."""
    return sorted(page for page in LESSONS.glob("*.md") if "```console" in page.read_text())


def typed_in(text: str) -> Iterator[Typed]:
    """Find the commands in a lesson's Markdown."""
    blocks = list(re.finditer(r"^```console\n(.*?)^```$", text, re.M | re.S))
    if len(blocks) != text.count("```console"):
        raise ValueError(
            f"{len(blocks)} of {text.count('```console')} blocks are complete, and begin in the first column"
        )
    for block in blocks:
        first = text.count("\n", 0, block.start(1)) + 1
        lines = block[1].splitlines()
        starts = [index for index, line in enumerate(lines) if _PROMPT.match(line)] + [len(lines)]
        if starts[0] != 0:
            raise ValueError(f"line {first}: a block begins with a prompt: {', '.join(PLACES)}")
        fails = {marked[1]} if (marked := _FAILS.search(text, 0, block.start())) else set()
        for index, end in itertools.pairwise(starts):
            found = _PROMPT.match(lines[index])
            assert found
            rest = lines[index + 1 : end]
            more = [line[2:] for line in itertools.takewhile(lambda line: line.startswith("> "), rest)]
            expected = "\n".join(rest[len(more) :])
            yield Typed(found[1], (found[2], *more), expected, first + index, found[2] in fails)
            fails.discard(found[2])
        if fails:
            raise ValueError(f"line {first}: not in the block: {fails.pop()}")


class Terminals:
    """A learner's terminals on the practice cluster, one on the laptop and one on the login node."""

    def __init__(self, cluster: PracticeCluster, folder: str) -> None:
        self._cluster = cluster
        self._folder = folder
        self._open: dict[str, pexpect.spawn[str]] = {}
        self._hosts: dict[str, str] = {}
        self._last = ""
        for box in ("laptop", "login"):
            cluster.run(box, "alice", ["mkdir", "-p", folder], check=True)

    def type(self, typed: Typed) -> tuple[str, int | None]:
        """Type a command in its terminal; return its output, and its exit code unless it leads to another host."""
        name = self._terminal_at(typed.place)
        child, host = self._open[name], self._hosts[name]
        for line in typed.lines[:-1]:
            child.sendline(line)
            child.expect_exact("> ")
        child.sendline(typed.lines[-1])
        printed = _without_echo(self._until_prompt(name), typed.lines[-1])
        if self._hosts[name] != host:
            return printed, None
        child.sendline(_SHOW_CODE)
        return printed, int(_without_echo(self._until_prompt(name), _SHOW_CODE))

    def close(self) -> None:
        """End all programs that still run in them."""
        for child in self._open.values():
            child.close(force=True)

    def _terminal_at(self, place: str) -> str:
        for name in (self._last, *self._open):
            if self._hosts.get(name) in PLACES[place]:
                self._last = name
                return name
        if place not in ("laptop", "login"):
            raise AssertionError("a lesson goes to a compute node from a login node")
        argv = self._cluster.argv(place, "alice", ["bash", "-l"])
        child = pexpect.spawn(argv[0], argv[1:], encoding="utf-8", timeout=120, dimensions=(40, _WIDTH))
        child.delaybeforesend = None
        self._open[place] = child
        self._until_prompt(place)
        # without bracketed paste and colours
        child.sendline(f"export TERM=dumb; cd {self._folder}; clear")
        self._until_prompt(place)
        self._last = place
        return place

    def _until_prompt(self, name: str) -> str:
        child = self._open[name]
        child.expect(_REAL_PROMPT)
        assert child.match
        self._hosts[name] = child.match[1] or child.match[2]
        return child.before or ""


def _without_echo(printed: str, command: str) -> str:
    text = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", printed).replace("\r\n", "\n").replace("\r", "")
    _, echo, printed = text.partition(command)
    assert echo == command, f"the terminal does not show what was typed: {command}\n{text}"
    return printed.strip("\n")


def is_same(expected: str, printed: str) -> bool:
    """Whether the output is the one in the lesson. Dots at the beginning may stand for no line at all."""
    wanted = [expected, expected.removeprefix("...\n")]
    got = _WAITED.sub("", printed + "\n")
    return any(doctest.OutputChecker().check_output(_WAITED.sub("", one + "\n"), got, _SAME) for one in wanted)
