"""The parts of execute.py: what is kept of a cell's output, headings, the line that names an error."""

from __future__ import annotations

import asyncio
import os
import re
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest

from notebook_launcher.core.package_data import job_script
from tests.doubles import wait_until
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
    assert time.monotonic() - began < 20


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
    monkeypatch.setattr(execute_outputs.LineFile, "LONGEST_LINE", 20)
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
LEAVES_A_CHILD = "import subprocess; subprocess.Popen(['sleep', '8'])"


def page_of(session: Path) -> Path:
    """Make a session in which a notebook was run."""
    for folder in ("work", "runtime"):
        (session / folder).mkdir()
    (session / "work" / "a [1].ipynb").touch()
    return session / "work" / "a [1].html"


def make_html(session: Path, stopped: bool | None = False) -> None:
    """``stopped``: before it, not at all, or (``None``) while it is made."""

    async def make() -> None:
        stop: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        if stopped:
            stop.set_result(15)
        elif stopped is None:
            asyncio.get_running_loop().call_later(0.1, stop.set_result, 15)
        work = session / "work"
        run = SimpleNamespace(work=work, session=session, stem="a [1]", result=work / "a [1].ipynb")
        await execute_html.make_html(run, stop)

    asyncio.run(make())


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
        (b"old" + execute_html.MARK, "", False, b"old" + execute_html.MARK, "no HTML copy was made: "),
        (None, f"{WRITES}; {LEAVES_A_CHILD}", False, b"<html>" + execute_html.MARK, ""),
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
    page = page_of(tmp_path)
    if there:
        page.write_bytes(there)
    monkeypatch.setattr(execute_html, "CODE", code)

    began = time.monotonic()
    make_html(tmp_path, stopped)
    assert time.monotonic() - began < 30
    assert (page.read_bytes() if page.exists() else None) == copy
    log = capsys.readouterr().err
    assert said in log if said else log == ""
    assert list((tmp_path / "runtime").iterdir()) == []


# what imports html, as nbconvert does
AN_NBCONVERT = """import html, os, pathlib, sys
def main():
    pathlib.Path(sys.argv[3].partition('=')[2], 'copy.html').write_text(html.escape('<') + os.getcwd())
"""


def test_nothing_in_the_folder_of_the_job_takes_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Others may write there; and nbconvert takes settings and templates from the folder it runs in."""
    page = page_of(tmp_path)
    for folder, text in (("ours", AN_NBCONVERT), ("theirs", "raise OSError('theirs')")):
        (tmp_path / folder / "nbconvert").mkdir(parents=True)
        (tmp_path / folder / "nbconvert" / "__init__.py").touch()
        (tmp_path / folder / "nbconvert" / "exporters").mkdir()
        (tmp_path / folder / "nbconvert" / "exporters" / "html.py").write_text("HTMLExporter = object")
        (tmp_path / folder / "nbconvert" / "nbconvertapp.py").write_text(text)
    (tmp_path / "theirs" / "html.py").write_text("raise OSError('theirs')")
    (tmp_path / "runtime" / "html.py").write_text("raise OSError('in the folder it runs in')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "ours"))
    monkeypatch.chdir(tmp_path / "theirs")
    make_html(tmp_path)
    assert page.read_bytes() == f"&lt;{tmp_path / 'runtime'}".encode() + execute_html.MARK


@pytest.mark.parametrize("kind", ["pipe", "folder", "link", "link to nothing"])
def test_what_is_no_copy_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], kind: str
) -> None:
    monkeypatch.setattr(execute_html, "CODE", WRITES)
    page = page_of(tmp_path)
    opened = threading.Timer(5, lambda: os.close(os.open(page, os.O_RDWR)))  # ends the wait for a writer
    if kind == "pipe":
        os.mkfifo(page)
        opened.start()
    elif kind == "folder":
        page.mkdir()
    else:
        page.symlink_to(tmp_path / "elsewhere")
        if kind == "link":
            (tmp_path / "elsewhere").write_bytes(execute_html.MARK)
    before = page.lstat().st_ino
    make_html(tmp_path)
    opened.cancel()
    assert page.lstat().st_ino == before
    assert capsys.readouterr().err == ""


def test_all_that_nbconvert_has_started_ends_with_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    code = f"import sys, subprocess; subprocess.Popen(['sleep', '60'], cwd='{tmp_path}').wait()"
    monkeypatch.setattr(execute_html, "CODE", code)
    page = page_of(tmp_path)
    monkeypatch.setattr(execute_html, "WITHIN", 0.5)
    began = time.monotonic()
    make_html(tmp_path)
    assert time.monotonic() - began < 20
    assert not page.exists()
    wait_until(lambda: all(one.info["cwd"] != str(tmp_path) for one in psutil.process_iter(["cwd"])))
