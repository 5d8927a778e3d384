"""What was recorded of copied files: whatever a record holds, no name of it leads out of the folder."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st

from notebook_launcher.core.errors import LauncherError
from notebook_launcher.core.interrupts import Interrupts
from notebook_launcher.notebook import results
from notebook_launcher.notebook.manifest import copied_digests, copied_files, state_of
from notebook_launcher.session.context import Context
from notebook_launcher.session.record import Session, record_in
from tests.doubles import RecordingView
from tests.fuzzing import JSON_VALUES, examples
from tests.unit.supervision.launcher_doubles import RECORD
from tests.unit.transfer.answering_host import AnsweringHost

NAMES = st.sampled_from(
    ["train.ipynb", "../x", "/etc/x", "a/../..", "a//b", "", ".", "run.json", "a\0b", "\ud800", "a" * 300]
)
FILES = st.fixed_dictionaries(
    {"name": NAMES | JSON_VALUES, "sha256": st.just("a" * 64) | JSON_VALUES, "bytes": st.just(3) | JSON_VALUES,
     "time": st.just("1.0") | JSON_VALUES},
    optional={"before": JSON_VALUES, "x": JSON_VALUES},
)  # fmt: skip
RECORDS = st.dictionaries(NAMES.map(lambda name: f"work/{name}"), FILES | JSON_VALUES, max_size=3)


@given(RECORDS | JSON_VALUES)
@example({"work/x": {"name": "\ud800", "sha256": "", "bytes": 3, "time": ""}})
def test_any_record_of_copied_files_names_none_outside(record: object) -> None:
    with TemporaryDirectory() as folder:
        for file in copied_files(record).values():
            assert (Path(folder) / file.name).resolve().is_relative_to(Path(folder).resolve())
            json.dumps(file.as_record())
            state_of(Path(folder), file.name)
    copied_digests(record)


SIZES = st.sampled_from(["0", "3", "-1", "9" * 15, "9" * 5000, "x", "٣"])
LISTED = st.lists(
    st.tuples(SIZES, st.sampled_from(["1.0", "x"]), NAMES.map(lambda name: f"work/{name}") | NAMES), max_size=4
)


@settings(deadline=None, max_examples=examples(10))
@given(LISTED, RECORDS | JSON_VALUES, st.sampled_from([b"", b"\0" * 1024, b"x" * 512]))
@example([("0", "1.0", "work/a\ud800")], {}, b"")
def test_any_list_of_results_stays_in_the_folder(listed: list[tuple[str, ...]], kept: object, tar: bytes) -> None:
    """And any record of an earlier fetch."""
    fields = b"".join(
        word.encode(errors="surrogatepass") + b"\0" for line in listed for word in line if "\0" not in word
    )
    host = AnsweringHost(fields, b"\0000 \n", then=tar + b"\0000 \n")
    context: Any = Context(*[None] * 9)  # type: ignore[arg-type]
    context.host, context.interrupts, context.view = host, Interrupts(), RecordingView()
    session = Session(record_in(json.dumps({**RECORD, "program": "notebook", "notebook": "train.ipynb"})), "/far")
    with TemporaryDirectory() as folder:
        here = Path(folder, "here")
        here.mkdir()
        (here / "run.json").write_text(json.dumps({"fetched": kept, "session": kept}))
        with contextlib.suppress(LauncherError):
            results.fetch_results(context, session, here)
        assert [path.name for path in Path(folder).iterdir()] == ["here"]
        assert {path.name for path in here.iterdir()} <= {"run.json"}
        json.loads((here / "run.json").read_text())
