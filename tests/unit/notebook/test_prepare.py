"""Notebooks before they leave: found, refused for what they are not, and made the same each time."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest
from hypothesis import HealthCheck, Phase, event, given, settings
from hypothesis import strategies as st

from notebook_launcher.core.errors import NotebookInvalid
from notebook_launcher.core.package_data import folder as shipped
from notebook_launcher.notebook import prepare as prepare_module
from notebook_launcher.notebook.bundled_notebooks import files_of
from notebook_launcher.notebook.prepare import bundled, prepare, sentence_of
from tests.fuzzing import examples
from tests.unit.notebook.notebook_files import HOSTILE, PARAMETERS, cell, refusal, sources, value_of, written

pytestmark = [pytest.mark.timeout(120), pytest.mark.usefixtures("folder")]


# --- which one is meant ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("word", ["lab.ipynb", "lab", "./lab.ipynb", "../here/lab"])
def test_a_file_is_found_with_its_ending_and_without(folder: Path, tagged: str, word: str) -> None:
    prepared = prepare(word, [])
    assert (prepared.name, prepared.folder, prepared.cells) == ("lab.ipynb", folder, 2)
    assert prepared.notes == ()


@pytest.mark.parametrize("word", ["hello", "hello.ipynb"])
def test_a_bundled_notebook_is_found_by_its_name(word: str, folder: Path) -> None:
    (folder / "hello").mkdir()  # a folder of that name is in nobody's way
    prepared = prepare(word, [])
    assert (prepared.name, prepared.folder, prepared.notes) == ("hello.ipynb", None, ())


def test_a_file_of_the_users_goes_first_and_that_is_noted(folder: Path) -> None:
    written(folder / "hello.ipynb", cell("mine"))
    prepared = prepare("hello", [])
    assert sources(prepared) == ["mine"] and prepared.folder == folder
    assert "hello.ipynb of this folder is used" in prepared.notes[0]


def test_the_nearest_name_is_suggested(tagged: str, folder: Path) -> None:
    assert refusal("helo").endswith("→ did you mean hello?")
    assert refusal("lba.ipynb").endswith("→ did you mean lab.ipynb?")
    assert refusal("../here/lap.ipynb").endswith("→ did you mean ../here/lab.ipynb?")
    said = refusal("something/else.ipynb")
    assert "→ check the name; the command runs in this folder; " in said and "notebooks list" in said


def test_what_is_no_file_is_refused(folder: Path, tagged: str) -> None:
    assert "is a folder. " in refusal(str(folder)) and refusal(str(folder)).endswith("lab.ipynb")
    os.mkfifo("pipe")
    assert "pipe is not a file" in refusal("pipe")  # and nothing waits for somebody to write into it
    assert "No notebook is named" in refusal("")
    assert "cannot be inspected" in refusal("x" * 5000)
    assert "No notebook is named" in refusal("a\0b")


def test_the_name_is_fit_for_a_line_of_a_file_and_a_shell(folder: Path) -> None:
    for name in ("a\nsetenv=X=1.ipynb", "\x1b[2J.ipynb", os.fsdecode(b"\xff.ipynb")):
        written(folder / name, cell("1"))
        assert "has characters" in refusal(name)
    written(folder / f"{'ü' * 98}.ipynb", cell("1"))
    assert "too long" in refusal(f"{'ü' * 98}.ipynb")
    written(folder / "-rf.ipynb", cell("1"))
    assert "home directory" in refusal("~nobody-here/lab.ipynb")
    assert "home directory" in refusal("-rf.ipynb", extra=[Path("~nobody-here/x")])
    assert prepare("-rf.ipynb", []).name == "rf.ipynb"
    written(folder / "größe 2; x.json", cell("1"))
    assert prepare("größe 2; x.json", []).name == "größe 2; x.json.ipynb"


# --- what it is -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "It is empty."),
        (b"print('a script')\n", "It is not JSON"),
        (b"\xff\xfe", "not text in UTF-8"),
        (b"[]", "it has no cells"),
        (b'{"a": 1}', "it has no cells"),
        (b'{"cells": []}', "which version"),
        (b'{"cells": [], "nbformat": true}', "which version"),
        (b'{"cells": [], "nbformat": 5}', "version 5 of the notebook format"),
        (b'{"cells": 1, "nbformat": 4}', "not a list"),
        (b'{"cells": [1], "nbformat": 4}', "A cell of the notebook is not valid"),
        (b'{"cells": [{"cell_type": "poem", "source": ""}], "nbformat": 4}', "is damaged"),
        (b'{"cells": [{"cell_type": "code", "source": 7}], "nbformat": 4}', "is damaged"),
        (b'{"worksheets": 1, "nbformat": 3}', "is damaged"),
        (b"[" * 100_000, "It is not JSON"),
        (b'{"nbformat": 4, "cells": ' + b"[" * 900 + b"]" * 900 + b"}", "A cell of the notebook is not valid"),
    ],
)
def test_what_is_no_notebook_is_refused(
    folder: Path, content: bytes, says: str, capfd: pytest.CaptureFixture[str]
) -> None:
    (folder / "odd.ipynb").write_bytes(content)
    assert says in refusal("odd.ipynb")
    assert capfd.readouterr() == ("", "")


def test_without_code_there_is_nothing_to_run(folder: Path) -> None:
    written(folder / "text.ipynb", cell("# Only words", "markdown"), cell(" \n"))
    assert "has no code in it" in refusal("text.ipynb")


def test_a_file_without_end_is_refused_and_not_read_whole(folder: Path) -> None:
    with (folder / "huge.ipynb").open("wb") as huge:
        huge.truncate(65 * 1024 * 1024)
    assert "too large" in refusal("huge.ipynb") and "launch-notebook copy" in refusal("huge.ipynb")


@pytest.mark.skipif(sys.platform != "linux", reason="a file that nobody can read")
def test_an_unreadable_one_is_refused() -> None:
    assert "/proc/self/mem cannot be read. Input/output error" in refusal("/proc/self/mem")


def test_a_mark_at_the_beginning_does_no_harm(folder: Path, tagged: str) -> None:
    (folder / "marked.ipynb").write_bytes(b"\xef\xbb\xbf" + Path(tagged).read_bytes())
    assert prepare("marked", []).cells == 2


def test_an_old_notebook_is_brought_up_to_date(folder: Path) -> None:
    code = {
        "cell_type": "code",
        "language": "python",
        "input": ["x = 1\n", "x"],
        "outputs": [],
        "collapsed": False,
        "prompt_number": 3,
        "metadata": {},
    }
    heading = {"cell_type": "heading", "level": 2, "source": "Old", "metadata": {}}
    old = {
        "nbformat": 3,
        "nbformat_minor": 0,
        "metadata": {"name": "old"},
        "worksheets": [{"cells": [heading, code], "metadata": {}}],
    }
    (folder / "old.ipynb").write_text(json.dumps(old))
    prepared = prepare("old", [("x", "2")])
    assert sources(prepared) == ["# Parameters\nx = 2\n", "## Old", "x = 1\nx"]
    assert prepare("old", []).content == prepare("old", []).content


def test_what_a_run_makes_anew_is_left_out_and_the_kernel_is_kept(folder: Path) -> None:
    ran = {
        **cell("1"),
        "outputs": [{"output_type": "stream", "name": "stdout", "text": "secret"}],
        "execution_count": 7,
    }
    broken = {**cell("2"), "outputs": "none", "metadata": {"tags": "parameters"}}
    kernel = {"name": "mine", "language": "python"}  # without a display_name, which the format asks for
    written(
        folder / "ran.ipynb",
        ran,
        broken,
        {"cell_type": "code", "source": ["a\n", "b"]},
        metadata={"kernelspec": kernel, "widgets": {"state": "x" * 100}, "custom": {"a": 1}},
    )
    prepared = prepare("ran", [])
    data = json.loads(prepared.content)
    nbformat.validate(data)
    assert b"secret" not in prepared.content and "widgets" not in data["metadata"]
    assert data["metadata"]["kernelspec"] == {**kernel, "display_name": "mine"}
    assert data["metadata"]["custom"] == {"a": 1}
    assert [(one["outputs"], one["execution_count"]) for one in data["cells"]] == [([], None)] * 3
    assert sources(prepared) == ["1", "2", "a\nb"]


def test_the_same_notebook_is_always_the_same(folder: Path, tagged: str) -> None:
    """Without ids, with ids that two cells share, and with ids that are none."""
    twice = [
        {**cell("1"), "id": "a"},
        {**cell("2"), "id": "a"},
        {**cell("3"), "id": "not an id"},
        {**cell("4"), "id": "b"},
    ]
    written(folder / "ids.ipynb", *twice, minor=5)
    for word, pairs in (("lab", [("EPOCHS", "1")]), ("ids", [("x", "1")])):
        one, other = (prepare(word, pairs).content for _ in range(2))
        assert one == other
        nbformat.validate(json.loads(one))
    ids = [one["id"] for one in json.loads(one)["cells"]]
    assert len(set(ids)) == 5 and {"a", "b"} < set(ids)


def test_half_a_sign_in_a_notebook_is_no_stumbling_block(folder: Path) -> None:
    assert "\\ud800" in Path(written(folder / "half.ipynb", cell("'\ud800'"))).read_text()
    assert sources(prepare("half", [])) == ["'\ud800'"]


# --- bundled notebooks --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", bundled())
def test_each_bundled_notebook_can_be_sent(name: str) -> None:
    prepared = prepare(name, [])
    assert prepared.notes == () and sentence_of(bundled()[name]).endswith((".", "!", "?"))
    code = [one for one in json.loads(prepared.content)["cells"] if one["cell_type"] == "code"]
    if any("timing" in "".join(one["source"]) for one in code):
        assert "timing.py" in prepared.dependencies


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("# Title\n\nThis **one** [times](http://x) `it`. Second.", "This one times it."),
        ("# Only a title", "Only a title"),
        ("Over two\nlines? Yes.", "Over two lines?"),
        ("", ""),
    ],
)
def test_a_notebooks_first_sentence(folder: Path, text: str, sentence: str) -> None:
    written(folder / "x.ipynb", cell("1"), cell(text, "markdown"), cell("Later.", "markdown"))
    assert sentence_of(folder / "x.ipynb") == sentence


# --- whatever comes -------------------------------------------------------------------------------------------------

LEAVES = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20)
JSON = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)
KINDS = st.sampled_from(["code", "code", "markdown", "raw", "heading", "x"])
TEXTS = st.text(max_size=60) | st.sampled_from([PARAMETERS, "import os", "%%time\nimport x", "!ls", *HOSTILE])
CELLS = st.fixed_dictionaries(
    {"cell_type": KINDS, "source": TEXTS | st.lists(TEXTS, max_size=2)},
    optional={
        "metadata": st.just({"tags": ["parameters"]}) | JSON,
        "outputs": JSON,
        "id": JSON,
        "input": TEXTS,
        "execution_count": JSON,
        "attachments": JSON,
        "level": JSON,
        "language": JSON,
        "prompt_number": JSON,
    },
)
NOTEBOOKS = st.fixed_dictionaries(
    {"nbformat": st.sampled_from([4, 4, 4, 3, 2, 1]) | JSON, "cells": st.lists(CELLS | JSON, max_size=3) | JSON},
    optional={
        "metadata": st.just({"language_info": {"name": "R"}}) | JSON,
        "nbformat_minor": st.integers(0, 9) | JSON,
        "worksheets": st.lists(st.fixed_dictionaries({"cells": st.lists(CELLS, max_size=2)}), max_size=2) | JSON,
    },
)
SOUND = st.fixed_dictionaries(
    {"cell_type": st.just("code"), "source": TEXTS.filter(str.strip), "metadata": st.just({}), "outputs": JSON},
    optional={"id": st.sampled_from(["a", "b", ""]), "execution_count": JSON},
)
TAGGED = st.builds(cell, st.sampled_from([PARAMETERS, "x = 1", "", "%cd"]), tags=st.just(["parameters"]))
MOSTLY_SOUND = st.builds(
    lambda first, tagged, last, minor: {"nbformat": 4, "nbformat_minor": minor, "cells": [first, *tagged, *last]},
    SOUND,
    st.lists(TAGGED, max_size=1),
    st.lists(SOUND | CELLS, max_size=2),
    st.integers(0, 6),
)
NAMES = st.sampled_from(["EPOCHS", "DEVICE", "CORES", "x", "ﬁx", "é"]) | st.text(max_size=5)


@settings(
    max_examples=examples(32),
    deadline=None,
    phases=set(Phase) - {Phase.explain},
    suppress_health_check=list(HealthCheck),
)
@given(
    data=MOSTLY_SOUND | NOTEBOOKS | JSON,
    pairs=st.lists(st.tuples(NAMES, TEXTS | st.from_regex(r"[-+0-9._einf]{1,9}")), max_size=3),
)
@pytest.mark.real_time
def test_any_notebook_and_any_parameters_are_prepared_or_refused(
    folder: Path, capfd: pytest.CaptureFixture[str], data: object, pairs: list[tuple[str, str]]
) -> None:
    (folder / "any.ipynb").write_text(json.dumps(data))
    try:
        prepared = prepare("any", pairs)
    except NotebookInvalid as refused:
        event(f"refused: {refused.what.replace(str(folder), '')[:50]}")
        assert refused.what
        return
    finally:
        assert [path.name for path in folder.iterdir()] == ["any.ipynb"]  # nothing was run
        assert capfd.readouterr() == ("", "")
    event("prepared")
    made = nbformat.reads(prepared.content.decode(), 4)
    nbformat.validate(made)
    code = [one for one in made.cells if one.cell_type == "code" and one.source.strip()]
    assert prepared.cells == len([one for one in code if "injected-parameters" not in one.metadata.get("tags", ())])
    assert set(prepared.parameters) == {notebooks_name(name) for name, _ in pairs}
    if pairs and made.metadata.get("language_info", {}).get("name", "python") == "python":
        (put_in,) = [one.source for one in made.cells if "injected-parameters" in one.metadata.get("tags", ())]
        lines = put_in.removeprefix("# Parameters\n").splitlines()
        assert len(lines) == len(prepared.parameters)
        for line, (name, value) in zip(lines, prepared.parameters.items(), strict=True):
            assert repr(value_of(line, name)) == repr(value)


def notebooks_name(name: str) -> str:
    """A name as Python reads it: ``ﬁx`` is ``fix``."""
    return ast.parse(name).body[0].value.id  # type: ignore[attr-defined, no-any-return]


def test_nothing_heavy_is_loaded_where_no_notebook_is_prepared() -> None:
    program = (
        f"import sys; from {prepare_module.__name__} import bundled, sentence_of\n"
        "assert [sentence_of(path) for path in bundled().values()]\n"
        "print(sorted({'nbformat', 'papermill'} & sys.modules.keys()))"
    )
    assert subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout == "[]\n"


def test_a_notebook_of_ours_brings_the_data_that_it_names() -> None:
    assert set(prepare("gpu-usage", []).dependencies) == {"timing.py", "recorded-usage.csv", "recorded-phases.json"}
    assert prepare("hello", []).dependencies == {}
    assert {"recorded-usage.csv", "recorded-phases.json"} <= set(files_of(["gpu-usage"]))
    assert not {name for name in files_of(["hello"]) if name.startswith("recorded-")}


def test_the_notebook_that_starts_the_trainer_brings_its_folder() -> None:
    trainer = shipped("jobscripts") / "training"
    wanted = {f"training/{path.name}": path.read_bytes() for path in trainer.glob("*.py")}
    assert "training/train_ddp.py" in wanted
    assert {name: text for name, text in prepare("scaling", []).dependencies.items() if name != "timing.py"} == wanted
    assert wanted.items() <= files_of(["scaling"]).items()
    assert not {name for name in files_of(["hello"]) if "/" in name}
