"""The parts of execute.py: what is kept of a cell's output, headings, the line that names an error."""

from __future__ import annotations

import re
import time
from pathlib import Path

import pytest

from notebook_launcher.core.package_data import job_script
from tests.unit.jobscripts.execute_run import execute, execute_common, execute_outputs, execute_script


@pytest.mark.parametrize(
    ("printed", "seen"),
    [
        (["a\n", "b"], "a\nb"),
        (["10 %", "\r20 %", "\r30 %\n", "done\n"], "30 %\ndone\n"),
        (["one\r\ntwo\r\n"], "one\r\ntwo\r\n"),
        (["bar 1\r", "bar 2\r", "\n"], "bar 2\r\n"),
        (["abc\b\b", "X"], "aX"),
        (["\b\b"], ""),
        (["1/5" + "\b" * 3 + "\r", "2/5\n"], "2/5\n"),
    ],
)
def test_what_is_seen_of_what_is_printed(printed: list[str], seen: str) -> None:
    text = execute_outputs.Printed()
    for part in printed:
        text.add(part)
    assert str(text) == seen


@pytest.mark.parametrize("part", ["x" * 1000, "x" * 50 + "\n", "x" * 50 + "\r", "y" * 10])
def test_whatever_is_printed_is_bounded(part: str) -> None:
    text = execute_outputs.Printed(room=2000)
    began = time.monotonic()
    for _ in range(5000):
        text.add(part)
    text.add("\nend")
    assert len(str(text)) < 3 * 2000 + 200
    assert str(text).endswith("end") and str(text)[:2000].strip("\n\r") == str(text)[:2000].strip("\n\r")
    assert time.monotonic() - began < 2


def test_the_gap_tells_how_much_is_missing() -> None:
    text = execute_outputs.Printed(room=2**20)
    for _ in range(64):
        text.add("0123456789abcde\n" * 2**12)
    kept = 64 * 2**16 - text.left_out
    assert 2 * 2**20 <= kept <= 2 * 2**20 + 2**16
    assert (
        f"\n[notebook-launcher: {text.left_out / 2**20:.1f} MiB of what this cell has printed are left out]\n"
        in str(text)
    )
    assert len(re.sub(r"\n\[.*\]\n", "", str(text))) == kept


def test_the_last_heading_above_a_cell() -> None:
    last = execute.last_heading
    assert last("text\n# One\n## Two ##\nmore") == "Two"
    assert last("```python\n# a comment\n```") == ""
    assert last("# See [the **docs**](https://example.org) and `x_y`") == "See the docs and x_y"
    assert last("#hashtag\n    # code") == ""
    assert len(last("# " + "long " * 99)) == 60
    assert last("# a\x1b[31mb\x07") == "ab"


@pytest.mark.parametrize(
    ("output", "line"),
    [
        ('Traceback (most recent call last):\n  File "x"\nValueError: no\n', "ValueError: no"),
        ("Traceback\ntorch.cuda.OutOfMemoryError: CUDA\nTried to allocate\n", "torch.cuda.OutOfMemoryError: CUDA"),
        ("\x1b[31mKeyError\x1b[39m: 'a'\n", "KeyError: 'a'"),
        ("bye\n", "bye"),
        ("", ""),
    ],
)
def test_the_line_that_names_the_error(output: str, line: str, tmp_path: Path) -> None:
    (tmp_path / "out").write_text(output)
    assert execute_script.last_error(tmp_path / "out") == line


def test_durations() -> None:
    assert [execute_common.duration(seconds) for seconds in (0.4, 42, 61, 3723)] == ["0:00", "0:42", "1:01", "1:02:03"]


def test_old_pythons_can_read_it() -> None:
    """Containers have what they have."""
    import ast

    for name in ("execute.py", "execute_common.py", "execute_kernel.py", "execute_outputs.py", "execute_script.py"):
        ast.parse(job_script(name).read_text(), feature_version=(3, 8))
