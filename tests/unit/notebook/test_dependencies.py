"""What goes with a notebook: what it imports, and what the user names."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from notebook_launcher.notebook.dependencies import imports
from notebook_launcher.notebook.prepare import bundled, prepare
from tests.unit.notebook.notebook_files import cell, refusal, written

pytestmark = [pytest.mark.timeout(120), pytest.mark.usefixtures("folder")]


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
    dependencies = prepare("lab", []).dependencies
    package = {"pkg/__init__.py", "pkg/part.py", "pkg/sub/more.py"}
    others = {"helper.py", "deeper.py", "late.py", "plain/tool.py", "script.py", "timed.py"}
    assert set(dependencies) - {"unused.py"} == package | others
    assert dependencies["pkg/part.py"] == b"import late"


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
    assert set(prepared.dependencies) == {"near.py"}
    (note,) = prepared.notes
    assert "symbolic link: " in note and "helper.py" in note and "package/__init__.py" in note
    named = prepare("lab", [], [Path("helper.py")])
    assert named.dependencies["helper.py"] == b"SECRET = 1"


def test_our_timing_goes_with_a_notebook_that_imports_it_and_has_none(folder: Path, tmp_path: Path) -> None:
    ours = (bundled()["hello"].parent / "timing.py").read_bytes()
    written(folder / "lab.ipynb", cell("import helper\nimport data"))
    (folder / "helper.py").write_text("from timing import measure")
    prepared = prepare("lab", [])
    assert prepared.dependencies == {"helper.py": b"from timing import measure", "timing.py": ours}
    assert prepared.helpers == ("timing.py",) and prepared.notes[0].startswith("The launcher's timing.py is sent along")
    assert prepared.folder == folder and not (folder / "timing.py").exists()
    (folder / "helper.py").write_text("import timings")
    assert prepare("lab", []).helpers == () and prepare("lab", []).notes == ()


@pytest.mark.parametrize("own", ["timing.py", "timing/__init__.py", "timing/part.py", "lib/timing.py", "a link"])
def test_our_timing_is_never_put_over_the_users_own(folder: Path, tmp_path: Path, own: str) -> None:
    written(folder / "lab.ipynb", cell("import timing, timing.part"))
    path = tmp_path / "timing.py" if own == "a link" else folder / own
    path.parent.mkdir(exist_ok=True)
    path.write_text("mine")
    if own == "a link":
        (folder / "timing.py").symlink_to(path)
    prepared = prepare("lab", [], [Path("lib")] if own.startswith("lib") else [])
    assert prepared.helpers == () and set(prepared.dependencies.values()) <= {b"mine"}
    named = prepare("lab", [], [path]) if own == "a link" else prepared
    assert set(named.dependencies.values()) == {b"mine"}


def test_named_files_and_folders_go_along(folder: Path, tmp_path: Path, tagged: str) -> None:
    for name in ("data/x.csv", "data/deep/y.csv", "data/.git/config", "data/__pycache__/z"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(name)
    (folder / "data" / "link").symlink_to(tmp_path)
    (tmp_path / "far.csv").write_text("far")
    prepared = prepare("lab", [], [Path("data"), tmp_path / "far.csv", Path("../here/data/x.csv")])
    assert prepared.dependencies == {
        "data/x.csv": b"data/x.csv",
        "data/deep/y.csv": b"data/deep/y.csv",
        "far.csv": b"far",
    }
    assert "data/link" in prepared.notes[0] or "link" in prepared.notes[0]
    everything = prepare("lab", [], [Path()])
    assert set(everything.dependencies) == {"data/x.csv", "data/deep/y.csv"}
    ours = prepare("hello", [], [Path("data/x.csv")])
    assert ours.dependencies == {"x.csv": b"data/x.csv"}


def test_what_cannot_go_along_is_refused(folder: Path, tmp_path: Path, tagged: str) -> None:
    (folder / ".env").write_text("")
    (tmp_path / "x.csv").write_text("far")
    (folder / "x.csv").write_text("near")
    (tmp_path / "lab.ipynb").write_text("")
    os.mkfifo(folder / "pipe")
    assert "is not there" in refusal("lab", extra=[Path("nothing.csv")])
    assert "is a hidden file" in refusal("lab", extra=[Path(".env")])
    assert "neither a file nor a folder" in refusal("lab", extra=[Path("pipe")])
    assert "become the same file" in refusal("lab", extra=[Path("x.csv"), tmp_path / "x.csv"])
    assert "has the notebook's own name" in refusal("lab", extra=[tmp_path / "lab.ipynb"])
    (folder / "a\nb").write_text("")
    assert "should not have" in refusal("lab", extra=[Path("a\nb")])
    (tmp_path / "data").write_text("")
    (folder / "data").mkdir()
    (folder / "data" / "y").write_text("")
    assert "which is a file" in refusal("lab", extra=[tmp_path / "data", Path("data")])


@pytest.mark.real_time
def test_what_is_too_much_is_refused_with_the_way_to_bring_it(folder: Path, tagged: str) -> None:
    for name in ("one", "two"):
        with (folder / name).open("wb") as large:
            large.truncate(40 * 1024 * 1024)
    assert set(prepare("lab", [], [Path("one")]).dependencies) == {"one"}
    assert "two is too large" in refusal("lab", extra=[Path("one"), Path("two")])
    assert "launch-notebook copy" in refusal("lab", extra=[Path("one"), Path("two")])
    (folder / "many").mkdir()
    for number in range(2001):
        (folder / "many" / str(number)).touch()
    assert "too many" in refusal("lab", extra=[Path("many")])
