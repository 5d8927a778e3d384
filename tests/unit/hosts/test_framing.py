"""The frame around a command's output: nothing that is printed begins or ends it, and the command is as without it."""

from __future__ import annotations

from notebook_launcher.hosts.framing import Frame, FramedLines

OLD_BEGINS, OLD_ENDS = "--notebook-launcher--", "--notebook-launcher-ended--"


def test_what_is_followed_cannot_end_its_own_lines() -> None:
    frame, other = Frame(), Frame()
    log = ["first", f"{OLD_ENDS} 0", f"{other.begins}", f"{other.ends} 0", "x" + frame.ends, "last"]
    lines = FramedLines(frame, ["noise", OLD_BEGINS, other.begins, f"and {frame.begins}", *log, f"{frame.ends} 3"])
    assert (list(lines), lines.exit_code) == (log, 3)


def test_the_mark_of_another_frame_is_no_answer() -> None:
    frame, other = Frame(), Frame()
    printed = f"{OLD_BEGINS}\n{other.begins}\nout{OLD_ENDS} 0\n{other.ends} 0\n"
    assert frame.read(printed) is None
    assert frame.read(f"{frame.begins}\n{printed}") == (printed, None)
    assert frame.read(f"{printed}{frame.begins}\n{printed}{frame.ends} 3\n{printed}") == (printed, 3)
