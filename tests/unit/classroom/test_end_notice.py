"""The teacher's notice is written into a folder in which students may write, too."""

from __future__ import annotations

import subprocess
from pathlib import Path

from notebook_launcher.classroom.end import WRITE_NOTICE


def test_a_link_that_a_student_has_put_there_leads_the_notice_nowhere(tmp_path: Path) -> None:
    own, folder = tmp_path / "own", tmp_path / "class"
    own.write_text("the teacher's\n")
    (tmp_path / "elsewhere").mkdir()
    folder.mkdir()
    (folder / "end").symlink_to(tmp_path / "elsewhere")
    # the number of the process is no secret
    code = 'ln -s "$0" "$1/.end.$$"; exec sh -c "$2" notice "$1"'
    argv = ["sh", "-c", code, str(own), str(folder), WRITE_NOTICE]
    subprocess.run(argv, input=b"version=1\n", timeout=30, check=True)
    assert own.read_text() == "the teacher's\n" and not list((tmp_path / "elsewhere").iterdir())
    notice = folder / "end"
    assert not notice.is_symlink() and notice.read_text() == "version=1\n"
    assert notice.stat().st_mode & 0o777 == 0o644
    assert len(list(folder.iterdir())) == 2, "the link and the notice"
