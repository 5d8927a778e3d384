"""Notebooks before they leave: found, refused for what they are not, given parameters, with what they import."""

from __future__ import annotations

import ast
import json
import math
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import nbformat
import papermill
import pytest
from hypothesis import HealthCheck, Phase, event, given, settings
from hypothesis import strategies as st

from notebook_launcher.core.errors import NotebookInvalid
from notebook_launcher.notebook import prepare as notebooks
from notebook_launcher.notebook.dependencies import imports
from notebook_launcher.notebook.examples import files_of
from notebook_launcher.notebook.parameters import UNKNOWN, defaults_in
from notebook_launcher.notebook.prepare import Prepared, bundled, prepare, sentence_of

pytestmark = pytest.mark.timeout(120)
PARAMETERS = """\
import measuring as timing
EPOCHS = timing.setting("EPOCHS", 5, least=1)
RATE: float = 0.01
EXTRA_LAYERS = False
DEVICE = "auto"
CORES = len([1])
"""
HOSTILE = [
    "1); import os #",
    "'",
    '"',
    "\\",
    "'''\n\"\"\"",
    'x"\nopen("owned", "w")',
    "\u2028",
    "{}",
    "%s",
    "é中🙂",
    "\x1b[2J\x00",
]


def cell(source: str, kind: str = "code", **metadata: Any) -> dict[str, Any]:
    made = {"cell_type": kind, "metadata": metadata, "source": source}
    return {**made, "outputs": [], "execution_count": None} if kind == "code" else made


def written(path: Path, *cells: dict[str, Any], minor: int = 4, **others: Any) -> str:
    """A notebook in a file, and the file's name."""
    kernel = {"kernelspec": {"display_name": "Mine", "language": "python", "name": "mine"}}
    about = {"nbformat": 4, "nbformat_minor": minor, "metadata": kernel, "cells": list(cells), **others}
    path.write_text(json.dumps(about))
    return str(path)


def told(word: str, pairs: Any = (), extra: Any = ()) -> str:
    """What is said of a notebook that is refused."""
    with pytest.raises(NotebookInvalid) as caught:
        prepare(word, pairs, extra)
    error = caught.value
    assert error.exit_code == 26
    return f"{error.what} {error.why} → {error.mend}"


def sources(prepared: Prepared) -> list[str]:
    return [cell.source for cell in nbformat.reads(prepared.content.decode(), 4).cells]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder, in which we are."""
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    return tmp_path / "here"


@pytest.fixture
def tagged(folder: Path) -> str:
    """A notebook with a cell for parameters."""
    return written(folder / "lab.ipynb", cell("# Title", "markdown"), cell(PARAMETERS, tags=["parameters"]), cell("1"))


# --- which one is meant ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("word", ["lab.ipynb", "lab", "./lab.ipynb", "../here/lab"])
def test_a_file_is_found_with_its_ending_and_without(folder: Path, tagged: str, word: str) -> None:
    prepared = prepare(word, [])
    assert (prepared.name, prepared.folder, prepared.cells) == ("lab.ipynb", folder, 2)
    assert prepared.notes == ()


@pytest.mark.parametrize("word", ["hello", "hello.ipynb"])
def test_a_notebook_that_comes_along_is_found_by_its_name(word: str, folder: Path) -> None:
    (folder / "hello").mkdir()  # a folder of that name is in nobody's way
    prepared = prepare(word, [])
    assert (prepared.name, prepared.folder, prepared.notes) == ("hello.ipynb", None, ())


def test_a_file_of_the_users_goes_first_and_that_is_noted(folder: Path) -> None:
    written(folder / "hello.ipynb", cell("mine"))
    prepared = prepare("hello", [])
    assert sources(prepared) == ["mine"] and prepared.folder == folder
    assert "hello.ipynb of this folder is taken" in prepared.notes[0]


def test_the_nearest_name_is_suggested(tagged: str, folder: Path) -> None:
    assert told("helo").endswith("→ did you mean hello?")
    assert told("lba.ipynb").endswith("→ did you mean lab.ipynb?")
    assert told("../here/lap.ipynb").endswith("→ did you mean ../here/lab.ipynb?")
    assert "notebooks list" in told("something/else.ipynb")


def test_what_is_no_file_is_refused(folder: Path, tagged: str) -> None:
    assert "is a folder. " in told(str(folder)) and told(str(folder)).endswith("lab.ipynb")
    os.mkfifo("pipe")
    assert "pipe is no file" in told("pipe")  # and nothing waits for somebody to write into it
    assert "No notebook is named" in told("")
    assert "cannot be looked at" in told("x" * 5000)
    assert "No notebook is named" in told("a\0b")


def test_the_name_is_fit_for_a_line_of_a_file_and_a_shell(folder: Path) -> None:
    for name in ("a\nsetenv=X=1.ipynb", "\x1b[2J.ipynb", os.fsdecode(b"\xff.ipynb")):
        written(folder / name, cell("1"))
        assert "has signs in it" in told(name)
    written(folder / f"{'ü' * 98}.ipynb", cell("1"))
    assert "too long" in told(f"{'ü' * 98}.ipynb")
    written(folder / "-rf.ipynb", cell("1"))
    assert "home directory" in told("~nobody-here/lab.ipynb")
    assert "home directory" in told("-rf.ipynb", extra=[Path("~nobody-here/x")])
    assert prepare("-rf.ipynb", []).name == "rf.ipynb"
    written(folder / "größe 2; x.json", cell("1"))
    assert prepare("größe 2; x.json", []).name == "größe 2; x.json.ipynb"


# --- what it is -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "It is empty."),
        (b"print('a script')\n", "It is not JSON"),
        (b"\xff\xfe", "no text in UTF-8"),
        (b"[]", "it has no cells"),
        (b'{"a": 1}', "it has no cells"),
        (b'{"cells": []}', "which version"),
        (b'{"cells": [], "nbformat": true}', "which version"),
        (b'{"cells": [], "nbformat": 5}', "version 5 of the notebook format"),
        (b'{"cells": 1, "nbformat": 4}', "no list"),
        (b'{"cells": [1], "nbformat": 4}', "A cell of the notebook is none"),
        (b'{"cells": [{"cell_type": "poem", "source": ""}], "nbformat": 4}', "is damaged"),
        (b'{"cells": [{"cell_type": "code", "source": 7}], "nbformat": 4}', "is damaged"),
        (b'{"worksheets": 1, "nbformat": 3}', "is damaged"),
        (b"[" * 100_000, "It is not JSON"),
        (b'{"nbformat": 4, "cells": ' + b"[" * 900 + b"]" * 900 + b"}", "A cell of the notebook is none"),
    ],
)
def test_what_is_no_notebook_is_refused(
    folder: Path, content: bytes, says: str, capfd: pytest.CaptureFixture[str]
) -> None:
    (folder / "odd.ipynb").write_bytes(content)
    assert says in told("odd.ipynb")
    assert capfd.readouterr() == ("", "")


def test_without_code_there_is_nothing_to_run(folder: Path) -> None:
    written(folder / "text.ipynb", cell("# Only words", "markdown"), cell(" \n"))
    assert "has no code in it" in told("text.ipynb")


def test_a_file_without_end_is_refused_and_not_read_whole(folder: Path) -> None:
    with (folder / "huge.ipynb").open("wb") as huge:
        huge.truncate(65 * 1024 * 1024)
    assert "too large" in told("huge.ipynb") and "launch-notebook copy" in told("huge.ipynb")


@pytest.mark.skipif(sys.platform != "linux", reason="a file that nobody can read")
def test_an_unreadable_one_is_refused() -> None:
    assert "/proc/self/mem cannot be read. Input/output error" in told("/proc/self/mem")


def test_a_mark_at_the_beginning_does_no_harm(folder: Path, tagged: str) -> None:
    (folder / "marked.ipynb").write_bytes(b"\xef\xbb\xbf" + Path(tagged).read_bytes())
    assert prepare("marked", []).cells == 2


def test_an_old_notebook_is_brought_up_to_date(folder: Path) -> None:
    code = {"cell_type": "code", "language": "python", "input": ["x = 1\n", "x"], "outputs": [], "collapsed": False,
            "prompt_number": 3, "metadata": {}}  # fmt: skip
    heading = {"cell_type": "heading", "level": 2, "source": "Old", "metadata": {}}
    old = {"nbformat": 3, "nbformat_minor": 0, "metadata": {"name": "old"},
           "worksheets": [{"cells": [heading, code], "metadata": {}}]}  # fmt: skip
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
    written(folder / "ran.ipynb", ran, broken, {"cell_type": "code", "source": ["a\n", "b"]},
            metadata={"kernelspec": kernel, "widgets": {"state": "x" * 100}, "custom": {"a": 1}})  # fmt: skip
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


# --- parameters -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("EPOCHS", "1", 1),
        ("EPOCHS", "-3", -3),
        ("EPOCHS", "007", 7),  # the notebook has a number there
        ("EPOCHS", "1_000", 1000),
        ("EPOCHS", "1e3", 1000),
        ("EPOCHS", "None", None),
        ("EPOCHS", "True", True),
        ("RATE", "1e-3", 0.001),
        ("RATE", ".5", 0.5),
        ("RATE", "-inf", -math.inf),
        ("EXTRA_LAYERS", "true", True),
        ("EXTRA_LAYERS", "0", False),
        ("EXTRA_LAYERS", "No", False),
        ("DEVICE", "cuda:1", "cuda:1"),
        ("DEVICE", "7", "7"),  # the notebook has text there
        ("DEVICE", "None", "None"),
        ("DEVICE", "", ""),
        ("CORES", "4", 4),
        ("CORES", "007", "007"),
        ("CORES", "1_000", "1_000"),
        ("CORES", "0", 0),
        ("CORES", "false", False),
        ("CORES", "٣", "٣"),
        ("CORES", " 4", " 4"),
        ("CORES", "nano", "nano"),
        ("CORES", "1.2.3", "1.2.3"),
    ],
)
def test_what_a_value_means(tagged: str, name: str, text: str, value: object) -> None:
    prepared = prepare("lab", [(name, text)])
    assert prepared.parameters == {name: value} and type(prepared.parameters[name]) is type(value)
    assert prepared.cells == 3
    assert value_of(sources(prepared)[2], name) == value
    assert prepared.notes == ()


def value_of(source: str, name: str) -> object:
    """What a cell sets a name to, where it is nothing but literals."""
    (statement,) = ast.parse(source).body
    assert isinstance(statement, ast.Assign)
    (target,) = statement.targets
    assert isinstance(target, ast.Name) and target.id == name
    if isinstance(statement.value, ast.Call):
        assert ast.unparse(statement.value) in ("float('inf')", "float('-inf')", "float('nan')")
        return float(ast.unparse(statement.value)[7:-2])
    return ast.literal_eval(statement.value)


def test_of_several_values_the_last_counts(tagged: str) -> None:
    assert prepare("lab", [("EPOCHS", "1"), ("RATE", "1"), ("EPOCHS", "2")]).parameters == {"EPOCHS": 2, "RATE": 1}


def test_papermill_itself_would_do_the_same(tagged: str, folder: Path) -> None:
    prepared = prepare("lab", [("EPOCHS", "1"), ("DEVICE", 'a"b\\')])
    papermill.execute_notebook(tagged, "out.ipynb", {"EPOCHS": 1, "DEVICE": 'a"b\\'}, prepare_only=True,
                               progress_bar=False)  # fmt: skip
    theirs = nbformat.read("out.ipynb", 4)
    assert sources(prepared) == [one.source for one in theirs.cells]
    tags = [one.metadata.get("tags", []) for one in nbformat.reads(prepared.content.decode(), 4).cells]
    assert tags == [one.metadata.tags for one in theirs.cells]


def test_an_earlier_runs_parameters_are_replaced(folder: Path) -> None:
    cells = [cell("A = 1", tags=["parameters"]), cell("A = 5", tags=["injected-parameters"]), cell("A")]
    written(folder / "again.ipynb", *cells, metadata={"papermill": {"version": "2"}})
    prepared = prepare("again", [("A", "6")])
    assert sources(prepared) == ["A = 1", "# Parameters\nA = 6\n", "A"]
    assert json.loads(prepared.content)["metadata"]["papermill"] == {"version": "2"}


def test_an_unknown_parameter_is_refused_with_the_nearest_name(tagged: str) -> None:
    said = told("lab", [("epoch", "1")])
    assert "no parameter “epoch”" in said and "EPOCHS, RATE, EXTRA_LAYERS, DEVICE, CORES" in said
    assert said.endswith("→ did you mean EPOCHS?")


@pytest.mark.parametrize("name", ["1x", "a b", "", "A²", "import", "a;b", "x\nimport os", "None", "a.b"])
def test_what_cannot_be_a_name_is_refused(tagged: str, folder: Path, name: str) -> None:
    written(folder / "plain.ipynb", cell("1"))
    for word in ("lab", "plain"):
        assert "cannot be the name of a parameter" in told(word, [(name, "1")])


def test_a_number_that_the_notebook_may_not_expect_is_noted(tagged: str) -> None:
    prepared = prepare("lab", [("EPOCHS", "2.5"), ("EXTRA_LAYERS", "2"), ("RATE", "1")])
    assert prepared.parameters == {"EPOCHS": 2.5, "EXTRA_LAYERS": 2, "RATE": 1}
    assert prepared.notes == (
        "The parameter EPOCHS is 2.5 now, where the notebook has the whole number 5.",
        "The parameter EXTRA_LAYERS is the number 2 now, where the notebook has False.",
    )


def test_text_where_the_notebook_has_a_number_or_a_switch_is_refused(tagged: str) -> None:
    said = told("lab", [("EPOCHS", "abc")])
    assert "EPOCHS is a number, and “abc” is none. The notebook has 5. → for example: -p EPOCHS 5" in said
    assert "RATE is a number, and “” is none" in told("lab", [("RATE", "")])
    said = told("lab", [("EXTRA_LAYERS", "maybe")])
    assert "EXTRA_LAYERS is a switch, and “maybe” is none" in said and said.endswith("-p EXTRA_LAYERS true")


def test_a_parameter_in_one_word_is_shown_in_two(tagged: str) -> None:
    assert told("lab", [("EPOCHS=3", "x")]).endswith("-p EPOCHS 3")
    assert told("lab", [("DEVICE=a b", "x")]).endswith("-p DEVICE 'a b'")


def test_without_a_cell_for_them_parameters_come_first(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    written(folder / "plain.ipynb", cell("x"))
    prepared = prepare("plain", [("x", "1")])
    assert sources(prepared) == ["# Parameters\nx = 1\n", "x"]
    assert "no cell tagged “parameters”" in prepared.notes[0]
    assert capfd.readouterr() == ("", "")  # papermill logs a warning of its own


@pytest.mark.parametrize("text", ["1e999", "9" * 5000, "\udcff"])
def test_a_value_that_cannot_be_expressed_is_refused(tagged: str, text: str) -> None:
    assert "parameter EPOCHS" in told("lab", [("EPOCHS", text)])


@pytest.mark.parametrize("text", [*HOSTILE, "a" * 100_000])
@pytest.mark.parametrize("name", ["DEVICE", "CORES"])
def test_a_hostile_value_is_text_and_nothing_else(tagged: str, name: str, text: str) -> None:
    prepared = prepare("lab", [(name, text)])
    assert value_of(sources(prepared)[2], name) == text
    assert [path.name for path in Path().iterdir()] == ["lab.ipynb"]


def test_notebooks_in_other_languages(folder: Path) -> None:
    def other(language: str) -> str:
        kernel = {"kernelspec": {"display_name": "x", "name": "x"}, "language_info": {"name": language}}
        return written(folder / f"{language}.ipynb", cell("1"), metadata=kernel)

    assert sources(prepare(other("R"), [("A", "1"), ("B", "true"), ("C", "a b")]))[0] == \
        '# Parameters\nA = 1\nB = TRUE\nC = "a b"\n'  # fmt: skip
    assert "cannot be put safely" in told(other("julia"), [("A", "$(run(`rm -r x`))")])
    assert "“_A” cannot be the name" in told(other("R"), [("_A", "1")])
    assert prepare(other("fortran"), []).cells == 1
    assert "Parameters cannot be put into a notebook in “fortran”" in told("fortran", [("A", "1")])


def test_what_a_cell_for_parameters_sets() -> None:
    assert defaults_in(PARAMETERS) == {
        "EPOCHS": 5,
        "RATE": 0.01,
        "EXTRA_LAYERS": False,
        "DEVICE": "auto",
        "CORES": UNKNOWN,
    }
    assert defaults_in("A = B = 1\nif A:\n    C = 2\nD, E = 1, 2\ndel X") == \
        {"A": 1, "B": 1, "C": UNKNOWN, "D": UNKNOWN, "E": UNKNOWN}  # fmt: skip
    for text in ("from defaults import *\nA = 1", "%%time\nA = 1", "", "# nothing yet", "A = \x00"):
        assert defaults_in(text) is None


# --- what goes along ------------------------------------------------------------------------------------------------


def test_what_it_imports_goes_along_and_what_that_imports(folder: Path) -> None:
    tree = {
        "helper.py": "import deeper\nimport os\nraise SystemExit('this is run only there')",
        "deeper.py": "def f():\n    from pkg.part import x",
        "pkg/__init__.py": "from . import part",
        "pkg/part.py": "import late",
        "pkg/sub/more.py": "",
        "pkg/__pycache__/part.cpython-311.pyc": "",
        "pkg/__pycache__/odd.py": "",
        "pkg/.hidden.py": "",
        "pkg/data.csv": "1",
        "late.py": "import helper",
        "plain/tool.py": "",
        "plain/other.py": "",
        "unused.py": "",
        "script.py": "",
        "timed.py": "",
    }
    for name, text in tree.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    written(
        folder / "lab.ipynb",
        cell("%matplotlib inline\nimport numpy as np, helper\nfiles = !ls\n!pip list\nnp.array?\n%run -i script.py"),
        cell("%%time\nfrom plain import tool\nx = %timeit -o f()"),
        cell("%time import timed\n100 % 3"),
        cell("%%bash\nimport unused"),  # no Python, and looks like it
        cell("import unused", "markdown"),
    )
    companions = prepare("lab", []).companions
    package = {"pkg/__init__.py", "pkg/part.py", "pkg/sub/more.py"}
    others = {"helper.py", "deeper.py", "late.py", "plain/tool.py", "script.py", "timed.py"}
    assert set(companions) - {"unused.py"} == package | others
    assert companions["pkg/part.py"] == b"import late"


@pytest.mark.parametrize(
    ("source", "names"),
    [
        ("import a, b.c as d\nfrom e import f", {"a", "b.c", "e.f"}),
        ("from . import a\nfrom .b import c", set()),
        ("def broken(:\n    import a\nfrom b import (c,\n d)\nimport e as f, g  # h", {"a", "b", "e", "g"}),
        ("text = '''\n%magic\n'''\nimport a", {"a"}),
        ("  %cd x\nimport a", {"a"}),
        ("x = 1 \\\n  % 2\nimport a", {"a"}),
        ("if y:\n    !ls\nimport a", {"a"}),
        ("what?\nimport a", {"a"}),
        ("\x00import a", set()),
        ("import a\n" + " " * 300_000 + "%x\n" + "(" * 5000, {"a"}),
    ],
)
def test_what_code_imports(source: str, names: set[str]) -> None:
    assert set(imports(source)) == names


def test_links_that_lead_elsewhere_are_not_followed_in_silence(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "secret.py").write_text("SECRET = 1")
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "__init__.py").write_text("")
    (folder / "lib").mkdir()
    (folder / "lib" / "inner.py").write_text("")
    (folder / "helper.py").symlink_to(tmp_path / "secret.py")
    (folder / "package").symlink_to(tmp_path / "outside")
    (folder / "near.py").symlink_to("lib/inner.py")
    (folder / "loop.py").symlink_to("loop.py")
    written(folder / "lab.ipynb", cell("import helper, package, near, loop\n%run ../secret.py"))
    prepared = prepare("lab", [])
    assert set(prepared.companions) == {"near.py"}
    (note,) = prepared.notes
    assert "link that leads elsewhere: " in note and "helper.py" in note and "package/__init__.py" in note
    named = prepare("lab", [], [Path("helper.py")])
    assert named.companions["helper.py"] == b"SECRET = 1"


def test_our_timing_goes_with_a_notebook_that_imports_it_and_has_none(folder: Path, tmp_path: Path) -> None:
    ours = (bundled()["hello"].parent / "timing.py").read_bytes()
    written(folder / "lab.ipynb", cell("import helper\nimport data"))
    (folder / "helper.py").write_text("from timing import measure")
    prepared = prepare("lab", [])
    assert prepared.companions == {"helper.py": b"from timing import measure", "timing.py": ours}
    assert prepared.lent == ("timing.py",) and prepared.notes[0].startswith("timing.py of the launcher goes with it")
    assert prepared.folder == folder and not (folder / "timing.py").exists()
    (folder / "helper.py").write_text("import timings")
    assert prepare("lab", []).lent == () and prepare("lab", []).notes == ()


@pytest.mark.parametrize("own", ["timing.py", "timing/__init__.py", "timing/part.py", "lib/timing.py", "a link"])
def test_our_timing_is_never_put_over_the_users_own(folder: Path, tmp_path: Path, own: str) -> None:
    written(folder / "lab.ipynb", cell("import timing, timing.part"))
    path = tmp_path / "timing.py" if own == "a link" else folder / own
    path.parent.mkdir(exist_ok=True)
    path.write_text("mine")
    if own == "a link":
        (folder / "timing.py").symlink_to(path)
    prepared = prepare("lab", [], [Path("lib")] if own.startswith("lib") else [])
    assert prepared.lent == () and set(prepared.companions.values()) <= {b"mine"}
    named = prepare("lab", [], [path]) if own == "a link" else prepared
    assert set(named.companions.values()) == {b"mine"}


def test_named_files_and_folders_go_along(folder: Path, tmp_path: Path, tagged: str) -> None:
    for name in ("data/x.csv", "data/deep/y.csv", "data/.git/config", "data/__pycache__/z"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(name)
    (folder / "data" / "link").symlink_to(tmp_path)
    (tmp_path / "far.csv").write_text("far")
    prepared = prepare("lab", [], [Path("data"), tmp_path / "far.csv", Path("../here/data/x.csv")])
    assert prepared.companions == {
        "data/x.csv": b"data/x.csv",
        "data/deep/y.csv": b"data/deep/y.csv",
        "far.csv": b"far",
    }
    assert "data/link" in prepared.notes[0] or "link" in prepared.notes[0]
    everything = prepare("lab", [], [Path()])
    assert set(everything.companions) == {"data/x.csv", "data/deep/y.csv"}
    ours = prepare("hello", [], [Path("data/x.csv")])
    assert ours.companions == {"x.csv": b"data/x.csv"}


def test_what_cannot_go_along_is_refused(folder: Path, tmp_path: Path, tagged: str) -> None:
    (folder / ".env").write_text("")
    (tmp_path / "x.csv").write_text("far")
    (folder / "x.csv").write_text("near")
    (tmp_path / "lab.ipynb").write_text("")
    os.mkfifo(folder / "pipe")
    assert "is not there" in told("lab", extra=[Path("nothing.csv")])
    assert "is hidden" in told("lab", extra=[Path(".env")])
    assert "neither a file nor a folder" in told("lab", extra=[Path("pipe")])
    assert "become the same file" in told("lab", extra=[Path("x.csv"), tmp_path / "x.csv"])
    assert "has the notebook's own name" in told("lab", extra=[tmp_path / "lab.ipynb"])
    (folder / "a\nb").write_text("")
    assert "has signs in it" in told("lab", extra=[Path("a\nb")])
    (tmp_path / "data").write_text("")
    (folder / "data").mkdir()
    (folder / "data" / "y").write_text("")
    assert "which is a file" in told("lab", extra=[tmp_path / "data", Path("data")])


def test_what_is_too_much_is_refused_with_the_way_to_bring_it(folder: Path, tagged: str) -> None:
    for name in ("one", "two"):
        with (folder / name).open("wb") as large:
            large.truncate(40 * 1024 * 1024)
    assert set(prepare("lab", [], [Path("one")]).companions) == {"one"}
    assert "two is too large" in told("lab", extra=[Path("one"), Path("two")])
    assert "launch-notebook copy" in told("lab", extra=[Path("one"), Path("two")])
    (folder / "many").mkdir()
    for number in range(2001):
        (folder / "many" / str(number)).touch()
    assert "too many" in told("lab", extra=[Path("many")])


# --- what comes along -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", bundled())
def test_each_notebook_that_comes_along_can_be_sent(name: str) -> None:
    prepared = prepare(name, [])
    assert prepared.notes == () and sentence_of(bundled()[name]).endswith((".", "!", "?"))
    code = [one for one in json.loads(prepared.content)["cells"] if one["cell_type"] == "code"]
    if any("timing" in "".join(one["source"]) for one in code):
        assert "timing.py" in prepared.companions


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
    optional={"metadata": st.just({"tags": ["parameters"]}) | JSON, "outputs": JSON, "id": JSON, "input": TEXTS,
              "execution_count": JSON, "attachments": JSON, "level": JSON, "language": JSON, "prompt_number": JSON},
)  # fmt: skip
NOTEBOOKS = st.fixed_dictionaries(
    {"nbformat": st.sampled_from([4, 4, 4, 3, 2, 1]) | JSON, "cells": st.lists(CELLS | JSON, max_size=3) | JSON},
    optional={"metadata": st.just({"language_info": {"name": "R"}}) | JSON, "nbformat_minor": st.integers(0, 9) | JSON,
              "worksheets": st.lists(st.fixed_dictionaries({"cells": st.lists(CELLS, max_size=2)}), max_size=2) | JSON},
)  # fmt: skip
SOUND = st.fixed_dictionaries(
    {"cell_type": st.just("code"), "source": TEXTS.filter(str.strip), "metadata": st.just({}), "outputs": JSON},
    optional={"id": st.sampled_from(["a", "b", ""]), "execution_count": JSON},
)
TAGGED = st.builds(cell, st.sampled_from([PARAMETERS, "x = 1", "", "%cd"]), tags=st.just(["parameters"]))
MOSTLY_SOUND = st.builds(
    lambda first, tagged, last, minor: {"nbformat": 4, "nbformat_minor": minor, "cells": [first, *tagged, *last]},
    SOUND, st.lists(TAGGED, max_size=1), st.lists(SOUND | CELLS, max_size=2), st.integers(0, 6),
)  # fmt: skip
NAMES = st.sampled_from(["EPOCHS", "DEVICE", "CORES", "x", "ﬁx", "é"]) | st.text(max_size=5)


@settings(max_examples=200, deadline=None, phases=set(Phase) - {Phase.explain}, suppress_health_check=list(HealthCheck))
@given(
    data=MOSTLY_SOUND | NOTEBOOKS | JSON,
    pairs=st.lists(st.tuples(NAMES, TEXTS | st.from_regex(r"[-+0-9._einf]{1,9}")), max_size=3),
)
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
    assert prepared.cells == sum(one.cell_type == "code" and bool(one.source.strip()) for one in made.cells)
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
        f"import sys; from {notebooks.__name__} import bundled, sentence_of\n"
        "assert [sentence_of(path) for path in bundled().values()]\n"
        "print(sorted({'nbformat', 'papermill'} & sys.modules.keys()))"
    )
    assert subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout == "[]\n"


def test_a_notebook_of_ours_brings_the_data_that_it_names() -> None:
    assert set(prepare("gpu-usage", []).companions) == {"timing.py", "recorded-usage.csv", "recorded-phases.json"}
    assert prepare("hello", []).companions == {}
    assert {"recorded-usage.csv", "recorded-phases.json"} <= set(files_of(["gpu-usage"]))
    assert not {name for name in files_of(["hello"]) if name.startswith("recorded-")}
