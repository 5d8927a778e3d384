"""The list of sessions as it is shown: in a terminal of 80 columns, in a wide one, and in a pipe."""

from __future__ import annotations

import io
from datetime import datetime, timezone

import pytest
from rich.console import Console

from notebook_launcher.cli.views.session_list import SessionListView, state_in_words
from notebook_launcher.core import events

NOW = datetime(2026, 11, 21, 12, 0, tzinfo=timezone.utc)
END = events.ListDone("login", 1, 1, 0, (), NOW.isoformat())


def seen(name: str = "k3f9", state: str = "running", **others: object) -> events.SessionEntry:
    fields: dict[str, object] = {
        "session": f"20261121-014455-{name}", "state": state, "job": "1234567", "cluster": None, "node": "gpu1",
        "environment": "tf-gpu", "program": "jupyterlab", "created": None, "ends": None, "seconds_left": 6120,
        "walltime": "2 hours", "launched_from": None, "directory": "/x",
    }  # fmt: skip
    return events.SessionEntry(**(fields | others))  # type: ignore[arg-type]


WAITS = seen("x7q2", "pending", node=None, seconds_left=None, detail="12 jobs are ahead in partition gpu")


def shown(
    *all_: events.SessionEntry | events.ListDone, width: int = 80, terminal: bool = True, colour: bool = False
) -> str:
    file = io.StringIO()
    console = Console(file=file, width=width, force_terminal=terminal, no_color=not colour, highlight=False,
                      color_system="standard" if colour else None)  # fmt: skip
    listing = SessionListView(console)
    for event in all_:
        listing.show(event, NOW)
    return file.getvalue()


def test_eighty_columns_are_enough() -> None:
    long = seen("aaaa", environment="an-environment-with-a-long-name", node="compute-node-0123", cluster="snowy")
    text = shown(seen(), WAITS, long, END)
    assert max(map(len, text.splitlines())) <= 80
    assert all(one.session in text for one in (seen(), WAITS, long)), "names stay whole"
    assert "\x1b" not in text


def test_a_wide_terminal_and_a_pipe_fold_nothing() -> None:
    for text in (shown(seen(), WAITS, END, width=200), shown(seen(), WAITS, END, terminal=False)):
        rows = [line.split() for line in text.splitlines()]
        assert ["20261121-014455-k3f9", "running", "gpu1", "1234567", "1", "h", "42", "min", "tf-gpu"] in rows
        assert any("pending: 12 jobs are ahead in partition gpu" in line for line in text.splitlines())
    assert "Reconnect: launch-notebook connect k3f9" in shown(seen(), WAITS, END)
    assert "Come back" not in shown(seen(), END, terminal=False)


def test_the_newest_active_session_is_last_where_the_eye_is_and_a_pipe_gets_no_blanks_at_the_end() -> None:
    older = seen("aaaa", "ended", ended="2026-11-21T11:00:00+00:00", environment="")
    lines = shown(seen("bbbb"), WAITS, older, END, terminal=False).splitlines()
    assert [line[16:20] for line in lines[1:4]] == ["aaaa", "x7q2", "bbbb"]
    assert [line for line in lines if line != line.rstrip()] == []


def test_colours_are_where_they_are_wanted() -> None:
    assert "\x1b[32mrunning" in shown(seen(), END, colour=True)


def test_what_came_from_elsewhere_obeys_nobody() -> None:
    evil = seen(environment="\x1b[2Jx\x07", node="n\u202e1")
    assert "\x1b" not in (text := shown(evil, END)) and "\x07" not in text and "\u202e" not in text


def test_a_terminal_is_told_from_a_jupyterlab() -> None:
    assert shown(seen(program="shell"), END, width=200).splitlines()[1].endswith("  shell (tf-gpu)")
    assert shown(seen(program="shell", environment=None), END, width=200).splitlines()[1].split()[-1] == "shell"


def test_a_job_for_a_purpose_of_its_own_says_so() -> None:
    text = shown(seen(program="shell", purpose="image build", environment=None), END, width=200)
    assert text.splitlines()[1].endswith("  image build")
    text = shown(seen(program="shell", purpose="env check", environment="pod"), END, width=200)
    assert text.splitlines()[1].endswith("  env check (pod)")


def test_no_session() -> None:
    text = shown(events.ListDone("login", 0, 0, 0, (), ""))
    assert text == "There is no session on login. Start one: launch-notebook\n"


def test_commands_lead_to_the_place_that_was_asked_for() -> None:
    uni = "--cluster uni"
    assert "Start one: launch-notebook --cluster uni\n" in shown(events.ListDone("login", 0, 0, 0, (), "", uni))
    assert "launch-notebook list --cluster uni --all\n" in shown(
        events.ListDone("login", 0, 1, 1, (), "", uni), width=200
    )
    text = shown(seen(), events.ListDone("login", 1, 0, 0, (), "", uni), width=200)
    come_back, end = (
        "Reconnect: launch-notebook connect --cluster uni k3f9",
        "End: launch-notebook stop --cluster uni k3f9",
    )
    assert f"{come_back}   {end}\n" in text
    assert f"{come_back}\n{end}\n" in shown(seen(), events.ListDone("login", 1, 0, 0, (), "", uni), width=80)


def test_what_is_left_out_or_damaged_is_counted() -> None:
    names = tuple(f"20261121-014455-{letter * 4}" for letter in "abcdefg")
    text = shown(events.ListDone("login", 0, 3, 3, names, ""), width=300)
    assert "Not shown: 3 that ended more than a day ago. All: launch-notebook list --all" in text
    assert "7 records are damaged: " in text and names[4] in text and names[5] not in text and "and 2 more" in text
    assert "1 record is damaged: 20261121-014455-aaaa\n" in shown(events.ListDone("login", 0, 0, 0, names[:1], ""))


@pytest.mark.parametrize(
    ("one", "words"),
    [
        (seen(), "running"),
        (seen(state="pending", detail="waits for its begin time"), "pending: waits for its begin time"),
        (seen(state="ended", detail="shut down", ended="2026-11-21T10:30:00+00:00"), "ended 10:30: shut down"),
        (seen(state="ended", detail="stopped", ended="2026-11-20T10:30:00+00:00"), "ended Fri 10:30"),
        (seen(state="ended", detail="cancelled"), "ended: cancelled"),
        (seen(state="gone", detail="never ran"), "gone: never ran"),
        (seen(state="gone", detail="cancelled", ended="2026-11-21T11:58:00+00:00"), "ended 11:58: cancelled"),
    ],
)
def test_what_it_does_in_words(one: events.SessionEntry, words: str) -> None:
    assert state_in_words(one, NOW) == words
