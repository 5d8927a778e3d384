"""Parameters put into notebooks: what a value means, and what is refused."""

from __future__ import annotations

import json
import math
from pathlib import Path

import nbformat
import papermill
import pytest

from notebook_launcher.notebook.parameters import UNKNOWN, defaults_in
from notebook_launcher.notebook.prepare import prepare
from tests.unit.notebook.notebook_files import HOSTILE, PARAMETERS, cell, refusal, sources, value_of, written

pytestmark = [pytest.mark.timeout(120), pytest.mark.usefixtures("folder")]


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
    assert prepared.cells == 2, "the cell that sets it is the launcher's"
    assert value_of(sources(prepared)[2], name) == value
    assert prepared.notes == ()


def test_of_several_values_the_last_counts(tagged: str) -> None:
    assert prepare("lab", [("EPOCHS", "1"), ("RATE", "1"), ("EPOCHS", "2")]).parameters == {"EPOCHS": 2, "RATE": 1}


def test_papermill_itself_would_do_the_same(tagged: str, folder: Path) -> None:
    prepared = prepare("lab", [("EPOCHS", "1"), ("DEVICE", 'a"b\\')])
    papermill.execute_notebook(
        tagged, "out.ipynb", {"EPOCHS": 1, "DEVICE": 'a"b\\'}, prepare_only=True, progress_bar=False
    )
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
    said = refusal("lab", [("epoch", "1")])
    assert "no parameter “epoch”" in said and "EPOCHS, RATE, EXTRA_LAYERS, DEVICE, CORES" in said
    assert said.endswith("→ did you mean EPOCHS?")


@pytest.mark.parametrize("name", ["1x", "a b", "", "A²", "import", "a;b", "x\nimport os", "None", "a.b"])
def test_what_cannot_be_a_name_is_refused(tagged: str, folder: Path, name: str) -> None:
    written(folder / "plain.ipynb", cell("1"))
    for word in ("lab", "plain"):
        assert "cannot be the name of a parameter" in refusal(word, [(name, "1")])


def test_a_number_that_the_notebook_may_not_expect_is_noted(tagged: str) -> None:
    prepared = prepare("lab", [("EPOCHS", "2.5"), ("EXTRA_LAYERS", "2"), ("RATE", "1")])
    assert prepared.parameters == {"EPOCHS": 2.5, "EXTRA_LAYERS": 2, "RATE": 1}
    assert prepared.notes == (
        "The parameter EPOCHS is 2.5 now, where the notebook has the whole number 5.",
        "The parameter EXTRA_LAYERS is the number 2 now, where the notebook has False.",
    )


def test_text_where_the_notebook_has_a_number_or_a_switch_is_refused(tagged: str) -> None:
    said = refusal("lab", [("EPOCHS", "abc")])
    assert "EPOCHS is a number, and “abc” is none. The notebook has 5. → for example: -p EPOCHS 5" in said
    assert "RATE is a number, and “” is none" in refusal("lab", [("RATE", "")])
    said = refusal("lab", [("EXTRA_LAYERS", "maybe")])
    assert "EXTRA_LAYERS is a switch, and “maybe” is none" in said and said.endswith("-p EXTRA_LAYERS true")


def test_a_parameter_in_one_word_is_shown_in_two(tagged: str) -> None:
    assert refusal("lab", [("EPOCHS=3", "x")]).endswith("-p EPOCHS 3")
    assert refusal("lab", [("DEVICE=a b", "x")]).endswith("-p DEVICE 'a b'")


def test_without_a_cell_for_them_parameters_come_first(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    written(folder / "plain.ipynb", cell("x"))
    prepared = prepare("plain", [("x", "1")])
    assert sources(prepared) == ["# Parameters\nx = 1\n", "x"]
    assert "no cell tagged “parameters”" in prepared.notes[0]
    assert capfd.readouterr() == ("", "")  # papermill logs a warning of its own


@pytest.mark.parametrize(
    ("cells", "place"),
    [
        (["n = 10", "print(sum(range(n)))"], 1),
        (["%matplotlib inline\nimport os", "n: int = 10"], 2),
        (["def f():\n    n = 1", "(n) = m = 2"], 2),
        (["n = n or 10"], None),
        (["print(n)", "n = 10"], None),
        (["n += 1", "n = 10"], None),
        (["!echo {n}", "n = 10"], None),
        (["if 'n' not in globals(): n = 10"], None),
        (["n, m = 1, 2"], None),  # not looked for
        (["this is no Python", "n = 10"], None),
        ([], None),
    ],
)
def test_a_parameter_that_the_notebook_sets_anew_has_no_effect(
    folder: Path, cells: list[str], place: int | None
) -> None:
    written(folder / "plain.ipynb", *map(cell, [*cells, "1"]))
    notes = prepare("plain", [("n", "5")]).notes
    assert [note for note in notes if "has no effect" in note] == (
        []
        if place is None
        else [
            f"The notebook itself sets n in code cell {place}, so -p n has no effect: "
            "tag that cell “parameters” (in JupyterLab: the gears at the top right, “Cell tags”)"
        ]
    )
    written(folder / "tagged.ipynb", cell("n = 1", tags=["parameters"]), *map(cell, cells), cell("1"))
    notes = prepare("tagged", [("n", "5")]).notes
    assert bool(notes) is (place is not None)
    assert place is None or f"in code cell {place + 1}, so -p n has no effect: remove that line" in notes[0]


@pytest.mark.parametrize("text", ["1e999", "9" * 5000, "\udcff"])
def test_a_value_that_cannot_be_expressed_is_refused(tagged: str, text: str) -> None:
    assert "parameter EPOCHS" in refusal("lab", [("EPOCHS", text)])


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

    assert (
        sources(prepare(other("R"), [("A", "1"), ("B", "true"), ("C", "a b")]))[0]
        == '# Parameters\nA = 1\nB = TRUE\nC = "a b"\n'
    )
    assert "cannot be put safely" in refusal(other("julia"), [("A", "$(run(`rm -r x`))")])
    assert "“_A” cannot be the name" in refusal(other("R"), [("_A", "1")])
    assert prepare(other("fortran"), []).cells == 1
    assert "Parameters cannot be put into a notebook in “fortran”" in refusal("fortran", [("A", "1")])


def test_what_a_cell_for_parameters_sets() -> None:
    assert defaults_in(PARAMETERS) == {
        "EPOCHS": 5,
        "RATE": 0.01,
        "EXTRA_LAYERS": False,
        "DEVICE": "auto",
        "CORES": UNKNOWN,
    }
    assert defaults_in("A = B = 1\nif A:\n    C = 2\nD, E = 1, 2\ndel X") == {
        "A": 1,
        "B": 1,
        "C": UNKNOWN,
        "D": UNKNOWN,
        "E": UNKNOWN,
    }
    for text in ("from defaults import *\nA = 1", "%%time\nA = 1", "", "# nothing yet", "A = \x00"):
        assert defaults_in(text) is None
