"""The parts of execute.py: what is kept of a cell's output, headings, the line that names an error."""

from __future__ import annotations

import asyncio
import re
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from notebook_launcher.core.package_data import job_script
from tests.unit.jobscripts.execute_run import execute, execute_common, execute_html, execute_outputs, execute_script


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


def test_lines_to_follow_are_whole_and_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(execute_outputs.LineFile, "MOST", 60)
    monkeypatch.setattr(execute_outputs.LineFile, "LONGEST", 20)
    path = tmp_path / "printed"
    lines = execute_outputs.LineFile(path)
    for stream, text in (("stdout", "a\nb"), ("stderr", "an error\n"), ("stdout", "c\n1 %\r2"), ("stdout", " %\r")):
        lines.add(stream, text)
    assert path.read_text() == "a\nan error\nbc\n"
    lines.end_lines()
    lines.add("stdout", "x" * 30)  # a line that does not end
    assert path.read_text().splitlines()[3:] == ["2 %", "x" * 30]
    for _ in range(3):
        lines.add("stdout", "y" * 15 + "\n")
    assert path.read_text().endswith("x\n" + execute_outputs.LineFile.FULL.decode())
    execute_outputs.LineFile(tmp_path / "not there" / "printed").add("stdout", "nobody reads it\n")


WRITES = "import pathlib, sys; pathlib.Path(sys.argv[3].partition('=')[2], 'copy.html').write_text('<html>')"


@pytest.mark.parametrize(
    ("there", "code", "stopped", "copy", "said"),
    [
        (None, WRITES, False, b"<html>" + execute_html.MARK, ""),
        (b"old" + execute_html.MARK, WRITES, False, b"<html>" + execute_html.MARK, ""),
        (b"the user's", WRITES, False, b"the user's", ""),
        (None, "raise OSError('no template')", False, None, "no HTML copy was made: OSError: no template"),
        (None, f"{WRITES}; raise SystemExit(3)", False, None, "no HTML copy was made: exit code 3"),
        (None, WRITES, True, None, ""),
        (None, "import time; time.sleep(60)", None, None, "no HTML copy was made: the job was ended"),
    ],
)
def test_an_html_copy_is_made_or_not_and_nothing_fails(
    there: bytes | None,
    code: str,
    stopped: bool | None,
    copy: bytes | None,
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """``stopped``: before it, not at all, or (``None``) while it is made."""
    for folder in ("work", "runtime"):
        (tmp_path / folder).mkdir()
    page, notebook = tmp_path / "work" / "a [1].html", tmp_path / "work" / "a [1].ipynb"
    notebook.touch()
    if there:
        page.write_bytes(there)
    monkeypatch.setattr(execute_html, "CODE", code)

    async def make() -> None:
        stop: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        if stopped:
            stop.set_result(15)
        elif stopped is None:
            asyncio.get_running_loop().call_later(0.1, stop.set_result, 15)
        run = SimpleNamespace(work=tmp_path / "work", session=tmp_path, stem="a [1]", result=notebook)
        await execute_html.make_html(run, stop)

    asyncio.run(make())
    assert (page.read_bytes() if page.exists() else None) == copy
    log = capsys.readouterr().err
    assert said in log if said else log == ""
    assert list((tmp_path / "runtime").iterdir()) == []
