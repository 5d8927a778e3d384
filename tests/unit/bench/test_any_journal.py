"""A bench's journal that was cut, edited or put in another order, or is somebody else's: as it was, or refused."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, example, given, settings
from hypothesis import strategies as st

from notebook_launcher.bench import journal
from notebook_launcher.bench.matrix import parse
from notebook_launcher.bench.report import make_report
from notebook_launcher.bench.report_forms import as_csv, as_html, as_markdown
from notebook_launcher.core.errors import BenchIncomplete, UsageError
from tests.fuzzing import JSON_VALUES
from tests.unit.bench.fake_cluster import BenchView, FakeCluster, Killed, killed, now, run, states
from tests.unit.bench.test_report import record

ABOUT = {"notebook": "n.ipynb", "digest": "d", "place": "practice", "asked": ""}
SESSIONS = [f"20261121-01445{number}-k3f9" for number in range(4)]


def written() -> tuple[bytes, str]:
    """Return a sound journal of four combinations, as a file and as what it says."""
    with TemporaryDirectory() as name, journal.lock_folder(Path(name, "b"), **ABOUT, now=now()) as folder:
        combinations = list(parse("""env=a,b TEXT="x y",z""").combinations())
        folder.add(combinations, matrix="m", command="c")
        for one, session in zip(combinations, SESSIONS, strict=True):
            at = now().isoformat(timespec="seconds")
            folder.change(one.name, state="done", session=session, job="7", queued=at, in_queue=1.5, number=1)
        folder.change(combinations[1].name, state="failed", why="no", kind="JobFailed")
        folder.put_back(combinations[1].name)
        folder.change(combinations[2].name, state="queued")
        return (folder.folder / journal.FILE).read_bytes(), said(folder.journal)


def said(one: journal.Journal) -> str:
    return one.model_dump_json(exclude={"check"})


SOUND, SAYS = written()
DATA = json.loads(SOUND)


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a bench, with a result outside of it that is none of its own."""
    folder = tmp_path_factory.mktemp("benches") / "bench"
    folder.mkdir()
    (folder / journal.RESULTS).write_text(record("of-another"))
    return folder


def read(folder: Path, content: bytes) -> journal.Journal | None:
    """Return the journal, having read all that it leads to; ``None`` if it is refused."""
    (folder / journal.FILE).write_bytes(content)
    try:
        with journal.lock_folder(folder, **ABOUT, now=now()) as opened:
            for entry in opened.journal.entries:
                assert opened.runs_folder(entry.name).parent == folder / journal.RUNS
            sessions = [entry.session for entry in opened.journal.entries if entry.session]
            assert len(set(sessions)) == len(sessions)
            opened.progress("")
            runs = opened.runs()
            report = make_report("n", opened.journal.matrix, opened.journal.command, "", runs, "")
            texts = as_html(report), as_markdown(report, "plots"), as_csv(report)
            assert all(text.encode() and "of-another" not in text for text in texts)
            return opened.journal
    except UsageError as error:
        assert error.what == f"{folder / journal.FILE} cannot be read." and error.why and "--fresh" in error.hint
        assert len(error.why) < 400
        return None


@st.composite
def edited(draw: st.DrawFn) -> Any:
    """Draw the journal with something changed in it: another value, another order, something of another entry."""
    data = copy.deepcopy(DATA)
    for _ in range(draw(st.integers(1, 3))):
        entries = data["entries"]
        one, other = draw(st.sampled_from(range(len(entries)))), draw(st.sampled_from(range(len(entries))))
        what = draw(st.sampled_from(["field", "value", "swap", "order", "twice", "gone", "top"]))
        key = draw(st.sampled_from(sorted(DATA["entries"][0])))
        if what == "value":
            entries[one][key] = draw(
                JSON_VALUES | st.sampled_from([SESSIONS[0], "../../x", "done", [["env", "a"]], -1])
            )
        elif what == "field":
            entries[one].pop(key, None)
        elif what == "swap":
            entries[one][key], entries[other][key] = entries[other].get(key), entries[one].get(key)
        elif what == "order":
            entries.insert(other, entries.pop(one))
        elif what == "twice":
            entries.append(copy.deepcopy(entries[one]))
        elif what == "gone" and len(entries) > 1:
            del entries[one]
        elif what == "top":
            data[draw(st.sampled_from(sorted(set(DATA) - {"entries"})))] = draw(JSON_VALUES)
    return data


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(edited())
@example({**DATA, "check": 7})
@example({**DATA, "entries": DATA["entries"][::-1]})
def test_a_journal_that_was_edited_is_as_it_was_or_refused(bench: Path, data: Any) -> None:
    assume("check" in data and data["check"] is not None)
    found = read(bench, json.dumps(data).encode())
    assert found is None or said(found) == SAYS


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(edited())
@example({**DATA, "entries": [{**DATA["entries"][0], "folder": "../.."}]})
@example({**DATA, "entries": [{**DATA["entries"][0], "folder": ".."}]})
@example({**DATA, "entries": [{**DATA["entries"][0], "name": "env=b TEXT=z"}]})
@example({**DATA, "entries": [{**DATA["entries"][0], "session": "x; rm -rf ~"}]})
@example({**DATA, "entries": [DATA["entries"][0], {**DATA["entries"][3], "session": SESSIONS[0]}]})
def test_a_journal_of_somebody_else_leads_nowhere_else(bench: Path, data: Any) -> None:
    """Whoever wrote it knows how to sum it up, too; or wrote it before there was a sum."""
    data.pop("check", None)
    read(bench, json.dumps(data).encode())


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.integers(0, len(SOUND)), st.binary(max_size=5))
def test_a_journal_that_was_cut_is_as_it_was_or_refused(bench: Path, at: int, instead: bytes) -> None:
    found = read(bench, SOUND[:at] + instead)
    assert found is None or said(found) == SAYS


@pytest.mark.parametrize("more", ["9" * 5000, "[" * 5000 + "]" * 5000, '"\\ud800"'])
def test_what_no_reader_of_json_takes_is_a_change(bench: Path, more: str) -> None:
    assert read(bench, SOUND.replace(b"{", f'{{"more": {more},'.encode(), 1)) is None


@pytest.fixture
def failing(fake: FakeCluster) -> Iterator[FakeCluster]:
    """Jobs that fail, with a word that no file can hold."""
    fake.exit_of = lambda _session: {"cause": "notebook-failed", "message": "No \ud800.", "exit_code": 1}
    yield fake


@pytest.mark.usefixtures("failing")
def test_what_a_job_says_of_its_end_can_be_any_text() -> None:
    view = BenchView()
    with pytest.raises(BenchIncomplete):
        run("EPOCHS=1", view=view)
    assert states() == {"EPOCHS=1": "failed"}


def test_an_edited_journal_forgets_no_job_by_starting_over(fake: FakeCluster) -> None:
    fake.exit_of = lambda _session: None
    fake.after_queueing = killed
    with pytest.raises(Killed):
        run("EPOCHS=1")
    path = Path("bench-tiny", journal.FILE)
    path.write_text(path.read_text().replace('"matrix": "EPOCHS=1"', '"matrix": "EPOCHS=2"'))
    with pytest.raises(UsageError, match="cannot be read"):
        run("EPOCHS=1")
    with pytest.raises(UsageError, match="has a job in the queue or running"):
        run("EPOCHS=1", fresh=True)
