"""Recorded output of schedulers' commands, read; and the same, damaged."""

from __future__ import annotations

import re
from pathlib import Path

from hypothesis import strategies as st

from notebook_launcher.core.command_result import CommandResult


def recorded(folder: Path, name: str) -> CommandResult:
    """Return what was recorded; an exit code that was not is taken for success."""
    text = (folder / f"{name}.txt").read_text()
    head, stdout, rest = re.split(r"^--- (?:stdout|stderr).*\n", text, flags=re.M)
    code = re.search(r"^exit: (\d+)$", head, re.M)
    return CommandResult(int(code[1]) if code else 0, stdout, rest.partition("--- source\n")[0])


def damaged(text: str) -> st.SearchStrategy[str]:
    """Return this text cut, with lines left out, repeated or in another order, or with some characters replaced."""
    lines = text.splitlines(keepends=True)
    cut = st.integers(0, len(text)).map(lambda at: text[:at])
    some = st.lists(st.sampled_from(lines), max_size=2 * len(lines)).map("".join)
    spoilt = st.tuples(st.integers(0, len(text) - 1), st.characters()).map(
        lambda at: text[: at[0]] + at[1] + text[at[0] + 1 :]
    )
    return st.one_of(cut, some, st.permutations(lines).map("".join), spoilt, st.text())
