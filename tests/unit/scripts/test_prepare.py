"""A job script as it is read before it is sent, and the bundled ones."""

from __future__ import annotations

from pathlib import Path

import pytest

from notebook_launcher import submit
from notebook_launcher.core.errors import EnvironmentUnknown, ScriptInvalid, UsageError
from notebook_launcher.planning.target import LaunchOptions, LocalMachine
from notebook_launcher.profiles.models import Environment
from notebook_launcher.scripts import templates
from notebook_launcher.scripts.preparation import preparation, prepared
from notebook_launcher.scripts.prepare import LARGEST, as_script, beside_note, prepare_script

TEMPLATE = """#!/bin/bash -l
# tiny: says hello.
#SBATCH --time=0:05:00
#SBATCH --array=1-3
TRAINING=${TRAINING:-training}   # the folder beside this file
MODULES=${MODULES-}              # such as PyTorch
IMAGE=${IMAGE-}
echo "$MODULES $IMAGE"
"""
HERE = LocalMachine("laptop")


@pytest.fixture
def bundled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the launcher's own job script, one template, and what it needs; the user's is another one."""
    folder = tmp_path / "bundled"
    (folder / "training").mkdir(parents=True)
    (folder / "training" / "train.py").write_text("print(1)\n")
    (folder / "tiny.sh").write_text(TEMPLATE)
    (folder / "jupyterlab.sh").write_text("#!/bin/bash\n")
    monkeypatch.setattr(templates, "folder", lambda _name: folder)
    own = tmp_path / "own"
    own.mkdir()
    monkeypatch.chdir(own)
    return own


def test_a_script_is_read_with_what_goes_along(bundled: Path) -> None:
    (bundled / "job.sh").write_bytes(b"\xef\xbb\xbf#!/bin/bash\r\n#SBATCH -n 2\r\npython train.py data.csv\r\n")
    (bundled / "train.py").write_text("x = 1\n")
    (bundled / "data.csv").write_text("1\n")
    script = prepare_script("job.sh", [Path("train.py")])
    assert (script.name, script.content.count(b"\r"), script.directives.flags) == ("job.sh", 0, {"ntasks": "2"})
    assert script.content.startswith(b"#!/bin/bash\n") and dict(script.files) == {"train.py": b"x = 1\n"}
    assert "copy that is sent: byte order mark and Windows line ends (CRLF) of job.sh" in script.notes[0]
    assert script.folder == bundled and script.beside == ("data.csv",)
    assert (
        beside_note(script)
        == "The script names data.csv beside it, which is not sent. To send it along: --with data.csv"
    )


def test_a_file_beside_a_script_elsewhere_is_named_as_it_is_typed_here(
    bundled: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (bundled / "my lab").mkdir()
    (bundled / "my lab" / "job.sh").write_text("#!/bin/bash\npython train.py\n")
    (bundled / "my lab" / "train.py").touch()
    note = beside_note(prepare_script("my lab/job.sh"))
    assert note is not None and note.endswith("--with 'my lab/train.py'")
    monkeypatch.chdir(bundled.parent / "bundled")
    note = beside_note(prepare_script("../own/my lab/job.sh"))
    assert note is not None and note.endswith(f"--with '{bundled}/my lab/train.py'")


@pytest.mark.parametrize(
    ("content", "what"),
    [
        (b"", "is empty"),
        (b" \n", "is empty"),
        (b"\x7fELF\0", "is not a text file"),
        (b"echo hi\n", "what runs it"),
        (b"#!bash\n", "what runs it"),
        (b"#" * (LARGEST + 1), "is too large"),
    ],
)
def test_what_is_no_job_script_is_refused(bundled: Path, content: bytes, what: str) -> None:
    (bundled / "job.sh").write_bytes(content)
    with pytest.raises(ScriptInvalid, match=what):
        prepare_script("job.sh")


@pytest.mark.parametrize(("name", "line"), [("job.sh", "#!/bin/bash"), ("train.py", "#!/usr/bin/env python3")])
def test_the_first_line_that_is_missing_fits_the_language(name: str, line: str) -> None:
    with pytest.raises(ScriptInvalid) as error:
        as_script(name, b"print(1)\n")
    assert error.value.hint.endswith(line)


@pytest.mark.parametrize(
    ("word", "what"),
    [
        ("", "No script"),
        ("nope", "no file or bundled script"),
        (".", "is a folder"),
        ("a\0b", "No script"),
        ("tiny.sh", "There is no file “tiny.sh”"),
        ("./tiny", "no file “./tiny”"),
        ("lab/x.sh", "no file"),
    ],
)
def test_a_script_that_is_not_there_is_named(bundled: Path, word: str, what: str) -> None:
    with pytest.raises(ScriptInvalid, match=what):
        prepare_script(word)


def test_the_closest_name_is_suggested(bundled: Path) -> None:
    with pytest.raises(ScriptInvalid) as caught:
        prepare_script("tinny")
    assert caught.value.hint == "did you mean tiny?" and caught.value.why == "The bundled scripts are: tiny."
    (bundled / "jobs.sh").write_text("#!/bin/sh\n")
    for word, hint in (("job.sh", "did you mean jobs.sh?"), ("tiny.sh", "launch-notebook submit tiny")):
        with pytest.raises(ScriptInvalid) as caught:
            prepare_script(word)
        assert hint in caught.value.hint


def test_a_file_that_cannot_go_along_is_an_error_about_the_script(bundled: Path) -> None:
    (bundled / "job.sh").write_text("#!/bin/sh\n")
    with pytest.raises(ScriptInvalid) as caught:
        prepare_script("job.sh", [Path("gone.py")])
    assert "--with FILE" in caught.value.hint and "script" in caught.value.hint


def test_a_template_brings_what_it_needs_and_a_file_of_that_name_comes_first(bundled: Path) -> None:
    template = prepare_script("tiny")
    assert (template.name, template.folder, set(template.files)) == ("tiny.sh", None, {"training/train.py"})
    (one,) = templates.templates()
    assert (one.name, one.sentence) == ("tiny", "says hello.")
    (bundled / "tiny").write_text("#!/bin/sh\n")
    own = prepare_script("tiny")
    assert own.folder == bundled and "not the bundled script of that name" in own.notes[0]


def test_a_template_is_filled_in_for_a_cluster(bundled: Path) -> None:
    (template,) = templates.templates()
    options = LaunchOptions({"time": "2:00:00"}, arguments=("IMAGE=/sw/a b.sif", "TRAINING=x"), cluster="here")
    event, notes = submit.filled_template(template, options, HERE)
    assert "#SBATCH --time=2:00:00\n#SBATCH --array=1-3\n" in event.text  # which only submit cannot do
    assert 'IMAGE="${IMAGE-/sw/a b.sif}"\n' in event.text and 'TRAINING="${TRAINING:-x}"   # the' in event.text
    assert notes == () and "MODULES=${MODULES-} " in event.text


def test_where_there_is_lsf_it_is_said_that_its_lines_stay(bundled: Path) -> None:
    (template,) = templates.templates()
    here = LocalMachine("login", ("lsf",))
    options = LaunchOptions({}, arguments=("TRAINING=x",), cluster="dtu")
    (note,) = submit.filled_template(template, options, here)[1]
    assert note.startswith("dtu has LSF, and flags are written into #SBATCH lines only: it has no #BSUB lines.")


@pytest.mark.parametrize("value", ["$(touch x)", "a`b`", 'a"b', "a}b", "$OTHER/x"])
def test_nothing_that_a_shell_would_run_comes_into_a_template_which_is_said(bundled: Path, value: str) -> None:
    (template,) = templates.templates()
    options = LaunchOptions({}, arguments=(f"IMAGE={value}", "MODULES=a", "TRAINING=x"), cluster="here")
    event, (note,) = submit.filled_template(template, options, HERE)
    assert "IMAGE=${IMAGE-}\n" in event.text and 'MODULES="${MODULES-a}"' in event.text
    assert note.startswith("IMAGE stays as it was, because a shell would expand") and value in note


@pytest.mark.parametrize(
    ("environment", "lines"),
    [
        (
            {"conda": "torch"},
            'module load $MODULES || exit\neval "$(conda shell.bash hook)" && conda activate torch || ',
        ),
        ({"venv": "~/my env"}, "|| exit\nsource \"$HOME\"/'my env/bin/activate' || exit\n"),
        ({"uv": "/p/$x"}, "|| exit\nsource '/p/$x/.venv/bin/activate' || exit\n"),
    ],
)
def test_an_environment_is_activated_in_a_template(environment: dict[str, str], lines: str) -> None:
    template = templates.template_named("train")
    event, notes = submit.filled_template(template, LaunchOptions({}, cluster="here", **environment), HERE)
    assert lines in event.text and len(notes) == 1  # on the folder that it needs
    (flag,) = environment
    (note,) = submit.filled_template(
        templates.template_named("first-job"), LaunchOptions({}, cluster="here", **environment), HERE
    )[1]
    assert note == f"first-job loads no software, so --{flag} has no effect on it."
    with pytest.raises(UsageError, match=f"--{flag} and the image /a.sif exclude each other"):
        options = LaunchOptions({}, arguments=("/a.sif",), cluster="here", **environment)
        submit.filled_template(template, options, HERE)


@pytest.mark.parametrize(
    ("software", "named"),
    [({"modules": ("a",)}, "--module"), ({"arguments": ("/a.sif",)}, "the image /a.sif"), ({}, "")],
)
def test_software_that_a_template_does_not_load_is_said(software: dict[str, tuple[str, ...]], named: str) -> None:
    options = LaunchOptions({}, cluster="here", **software)  # type: ignore[arg-type]
    notes = submit.filled_template(templates.template_named("first-job"), options, HERE)[1]
    assert notes == ((f"first-job loads no software, so {named} has no effect on it.",) if named else ())


def test_what_an_environment_sets_comes_before_its_modules() -> None:
    lines = preparation(Environment(env={"A": "b c"}, module_use=("/sw/m",), activate="ulimit -s unlimited"))
    text = prepared(templates.template_named("train-mpi").path.read_text(), lines)
    assert text is not None
    assert "\nexport A='b c'\nmodule use /sw/m || exit\n# shellcheck" in text and "exit\nulimit -s unlimited\n" in text


def test_an_image_in_the_home_folder_stays_there() -> None:
    own = templates.software_of({"MODULES": "", "IMAGE": ""}, Environment(modules=("a", "b/1")), "~/x.sif")
    assert own == {"MODULES": "a b/1", "IMAGE": "~/x.sif"}


def test_what_comes_after_the_dashes_is_told_apart() -> None:
    typed = submit.after_dashes(["EPOCHS=3", "tf-gpu", "X=a=b c", "--lr", "0.1", "Y=1"])
    assert typed.variables == {"EPOCHS": "3", "X": "a=b c"} and typed.software == ("tf-gpu",)
    assert typed.arguments == ("--lr", "0.1", "Y=1")
    with pytest.raises(UsageError, match="more than one line"):
        submit.after_dashes(["A=1\nprogram=shell"])
    with pytest.raises(UsageError, match="is not UTF-8"):
        submit.after_dashes(["--name", "caf\udce9"])
    with pytest.raises(UsageError) as spaced:
        submit.after_dashes(["EPOCHS", "=", "3", "--lr", "1"])
    assert spaced.value.hint == "without spaces: -- EPOCHS=3"


def test_a_word_that_is_no_environment_may_have_been_for_the_script() -> None:
    options = LaunchOptions({}, arguments=("5",), cluster="here")
    with pytest.raises(EnvironmentUnknown) as unknown:
        submit.script_plan(options, LocalMachine("login", ("slurm",)), {})
    assert "-- NAME=5" in unknown.value.hint


def test_a_script_runs_as_it_is_and_typed_flags_replace_its_own() -> None:
    options = LaunchOptions({"mem": "4G", "gpus": "0"}, arguments=("A=1",), cluster="generic", host=None)
    plan = submit.script_plan(options, LocalMachine("login", ("slurm",)), {"mem-per-cpu": "2G", "gres": "gpu:1"})
    assert plan.request.flags == {"mem": "4G", "time": "0:59:00"}
    assert dict(plan.environment.env) == {"A": "1"} and plan.environment_name is None and plan.container is None


@pytest.mark.parametrize(
    ("cluster", "word", "hint"),
    [
        ("here", "own.sh", "submit it with: sbatch own.sh   then, for what each task used: launch-notebook report JOB"),
        ("dtu", "own.sh", "launch-notebook copy own.sh login: --cluster dtu   and on the login node: bsub < own.sh"),
        ("dtu", "tiny", "launch-notebook jobscript tiny --cluster dtu --to FOLDER"),
        ("casper", "own.sh", "on the login node: qsub own.sh (which needs #PBS lines of its own: PBS reads no #SBATCH"),
    ],
)
def test_an_array_is_refused_without_slurm_with_what_to_type(bundled: Path, cluster: str, word: str, hint: str) -> None:
    (bundled / "own.sh").write_text("#!/bin/bash\n#SBATCH --array=1-3\n#BSUB -J a[1-3]\n")
    with pytest.raises(UsageError, match=r"is a job array .*only with Slurm") as caught:
        submit.planned(LaunchOptions(cluster=cluster), HERE, prepare_script(word))
    assert hint in caught.value.hint and ("report JOB" in caught.value.hint) is (cluster == "here")


def test_an_array_of_slurm_is_planned_with_the_tasks_that_were_typed(bundled: Path) -> None:
    (bundled / "own.sh").write_text("#!/bin/bash\n#SBATCH --array=1-3\n")
    script = prepare_script("own.sh")
    for typed, expected in (({}, "1-3"), ({"array": "0-9%2"}, "0-9%2")):
        plan, _ = submit.planned(LaunchOptions({**typed, "account": "a"}, cluster="m3"), HERE, script)
        assert plan.request.flags["array"] == expected
    with pytest.raises(UsageError, match="does not say which tasks"):
        submit.planned(LaunchOptions({"array": "3-1"}, cluster="m3"), HERE, script)


def test_without_slurm_only_what_is_understood_is_passed_on() -> None:
    flags = {"time": "5", "licenses": "a", "output": "%x.out", "ntasks": "2"}
    assert submit._understood(flags, "lsf") == {"time": "5", "ntasks": "2"}
    assert submit._understood(flags, "local") == {"time": "5"} and submit._understood(flags, "slurm") == flags


def test_plain_scripts_stay_as_they_are() -> None:
    assert as_script("a.sh", b"#! /bin/sh\n\xff\n") == (b"#! /bin/sh\n\xff\n", ())
