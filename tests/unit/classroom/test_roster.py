"""A list of students, as people write it and as spreadsheets do."""

from __future__ import annotations

from pathlib import Path

import pytest

from notebook_launcher.classroom.roster import Student, parse_roster, read_roster
from notebook_launcher.core.errors import RosterInvalid

BOTH = (Student("alice", "Alice A."), Student("bob", "Bob, B."))


@pytest.mark.parametrize(
    "text",
    [
        'user,name\nalice,Alice A.\nbob,"Bob, B."\n',
        'name;username\nAlice A.;alice\n"Bob, B.";bob\n',
        "# of Tuesday\n\nlogin\tname\tgroup\nalice\tAlice A.\t1\nbob\tBob, B.\t2\n",
        'alice,Alice A.\r\nbob,"Bob, B."\r\n',
        'alice,"\x1b[31mAlice\u202e A."\nbob,"Bob,   B."',
    ],
)
def test_the_students_of_a_list(text: str) -> None:
    assert parse_roster(text, "students.csv") == BOTH


def test_a_name_on_each_line_will_do() -> None:
    assert parse_roster("alice\nbob\n", "students.csv") == (Student("alice", "alice"), Student("bob", "bob"))


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("", "students.csv names no students."),
        ("user,name\n", "students.csv names no students."),
        ("user\nalice\nbob\nalice\n", "students.csv, line 4: alice is there twice, also on line 2."),
        ("user,name\n,Alice\n", "students.csv, line 2: there is no user's name."),
        ("alice\n--all\n", "students.csv, line 2: “--all” is not a user's name on a cluster."),
        ("alice\nbob carol\n", "students.csv, line 2: “bob carol” is not a user's name on a cluster."),
        ("alice\n$(id)\n", "students.csv, line 2: “$(id)” is not a user's name on a cluster."),
        ("\n".join(f"u{n}" for n in range(5001)), "students.csv names 5001 students."),
    ],
)
def test_a_list_that_cannot_be_meant(text: str, what: str) -> None:
    with pytest.raises(RosterInvalid) as raised:
        parse_roster(text, "students.csv")
    assert raised.value.what == what


def test_a_file_of_a_spreadsheet(tmp_path: Path) -> None:
    path = tmp_path / "students.csv"
    path.write_bytes("\ufeffuser,name\nalice,Ålice\n".encode())
    assert read_roster(path) == (Student("alice", "Ålice"),)
    path.write_bytes("user,name\nalice,Ålice\n".encode("latin-1"))
    assert read_roster(path) == (Student("alice", "Ålice"),)
    with pytest.raises(RosterInvalid) as raised:
        read_roster(tmp_path / "student.csv")
    assert raised.value.hint == f"did you mean {path}?"
    path.write_bytes(b"x" * (1024 * 1024 + 1))
    with pytest.raises(RosterInvalid, match="larger than 1024 KiB"):
        read_roster(path)
