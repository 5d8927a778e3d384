"""The environment of JupyterLab: settings, virtual environments, conda, activation code and modules."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import psutil
import pytest

from notebook_launcher.core.package_data import job_script
from tests.unit.jobscripts.job import STAND_IN, Job, library, module_system, set_up

pytestmark = pytest.mark.real_time


def test_no_jupyterlab(job: Job) -> None:
    job.tool("python3", "#!/bin/sh\nexit 1\n")
    report = job.run()
    assert report["cause"] == "jupyter-missing"
    assert f"plain environment of {os.uname().nodename}; choose" in report["message"]


def test_jupyterlab_without_its_command(job: Job) -> None:
    """`pip install --user` puts commands where few clusters look for them."""
    package = job.home / "jupyterlab"
    package.mkdir()
    (package / "__init__.py").touch()
    shutil.copy(job.tool("stand-in", STAND_IN), package / "__main__.py")
    job.tool("python3", f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    job.env["PYTHONPATH"] = str(job.home)
    for name in ("jupyterlab", "json", "runpy"):
        (job.work / f"{name}.py").write_text(f"open({str(job.root / 'taken')!r}, 'w')\n")
    job.start()
    assert job.endpoint()
    assert not (job.root / "taken").exists(), "what lies in the working directory may be somebody else's"


def test_modules_in_the_working_directory_do_not_count(tmp_path: Path) -> None:
    for name in ("jupyterlab", "theirs", "contextlib", "warnings"):
        (tmp_path / f"{name}.py").write_text("open('taken', 'w')\n")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "python3").write_text(f'#!/bin/sh\nexec {sys.executable} -S "$@"\n')
    (tmp_path / "bin" / "python3").chmod(0o755)
    look = "has_jupyterlab; echo $?; has_modules python3 theirs; echo $?; has_modules python3 json; echo $?"
    code = f'source "$1"; cd "$2"; {look}'
    env = {"PATH": f"{tmp_path}/bin:/usr/bin:/bin"}
    assert library(code, str(job_script("enter.sh")), str(tmp_path), env=env).split() == ["1", "1", "0"]
    assert not (tmp_path / "taken").exists()


def test_setenv_and_names_that_are_none(quick: Job) -> None:
    quick.ask("setenv=STAND_IN=fails", "setenv=NOT A NAME=1", "setenv=nothing")
    report = quick.run()
    assert (report["cause"], report["exit_code"]) == ("jupyter-failed", 7)
    assert "ignoring setenv=NOT A NAME" in quick.log.read_text()


def test_a_virtual_environment(job: Job) -> None:
    venv = job.root / "my venv"
    assert set_up(job, f"venv={venv}")[0].startswith(f"venv-missing There is no virtual environment in {venv} on ")
    (venv / "bin").mkdir(parents=True)
    (venv / "bin" / "activate").write_text(f"VIRTUAL_ENV='{venv}'\nPATH='{venv}/bin':$PATH\n")
    shutil.copy(job.tool("stand-in", STAND_IN), venv / "bin" / "jupyter-lab")
    failed, _ = set_up(job, f"venv={venv}")
    assert failed.startswith("venv-missing ") and "lost its Python" in failed
    (venv / "bin" / "python").symlink_to(sys.executable)
    job.start()
    assert job.endpoint()


CONDA = """
conda() {
  [ "$1" = activate ] && [ "$2" = "${KNOWN}" ] || { echo "EnvironmentNameNotFound: $2" >&2; return 1; }
  export CONDA_PREFIX=/envs/$2
}
"""


def test_a_conda_environment(job: Job) -> None:
    script = job.home / "miniforge3" / "etc" / "profile.d" / "conda.sh"
    script.parent.mkdir(parents=True)
    script.write_text(CONDA)
    job.env["KNOWN"] = "course"
    assert set_up(job, "conda=course", then="echo $CONDA_PREFIX") == ("", "/envs/course\n")
    failed, _ = set_up(job, "conda=other")
    assert failed.startswith("conda-missing ") and "other" in failed and "image" not in failed


def test_a_conda_environment_without_conda(quick: Job) -> None:
    prefix = quick.root / "prefix"
    (prefix / "conda-meta").mkdir(parents=True)
    (prefix / "bin").mkdir()
    shutil.move(quick.bin / "jupyter-lab", prefix / "bin" / "jupyter-lab")
    quick.ask(f"conda={prefix}")
    quick.start()
    assert psutil.Process(quick.endpoint()["pid"]).environ()["CONDA_PREFIX"] == str(prefix)


def test_activation_code_is_run_in_order(job: Job) -> None:
    asked = ("activate=export A=1; set -eu", 'activate=export B="$A 2"')
    left = "case $- in *[eu]*) echo strict ;; esac"
    assert set_up(job, *asked, then=f"env | grep ^B=; {left}") == ("", "B=1 2\n")


@pytest.mark.parametrize("code", ["false", "exit 0", "exit 3", "set -e; false; true", "no such 'command'", "if"])
def test_activation_code_that_fails(job: Job, code: str) -> None:
    failed, _ = set_up(job, f"activate={code}", then="echo never")
    assert failed.startswith("activate-failed ") and code in failed


def test_activation_code_that_ends_the_shell_fails_the_job(quick: Job) -> None:
    quick.ask("activate=exit 0")
    report = quick.run()
    assert (report["cause"], report["exit_code"]) == ("activate-failed", 1)
    assert "exit 0" in report["message"]


# As Lmod: a module that is not there is an error.
LIKE_LMOD = """
export LMOD_VERSION=8 LMOD_CMD=/bin/true
module() {
  case "$1 $2" in
    "load jupyterlab/4") export LOADEDMODULES=jupyterlab/4.0.5 ;;
    "use /sw/more"|"load alias") ;;
    *) echo "Lmod has detected the following error: $2" >&2; return 1 ;;
  esac
}
"""


# As on a node without Lmod, where a job has the login node's function all the same.
LIKE_LMOD_ELSEWHERE = """
export LMOD_VERSION=8 LMOD_CMD=/not/there/lmod
module() { eval "$($LMOD_CMD bash "$@")"; }
"""


# As the old implementation in C: it complains, and reports success.
LIKE_OLD_MODULES = """
module() {
  case "$1 $2" in
    "load jupyterlab") export LOADEDMODULES=gcc:jupyterlab/4 ;;
    *) echo "ModuleCmd_Load.c(213):ERROR:105: Unable to locate a modulefile for '$2'" >&2 ;;
  esac
}
"""


LOADED = "echo $LOADEDMODULES"


def test_modules_are_loaded(job: Job) -> None:
    job.env["MODULESHOME"] = str(module_system(job, LIKE_LMOD))
    asked = ("module_use=/sw/more", "module=jupyterlab/4", "module=alias")
    assert set_up(job, *asked, then=LOADED) == ("", "jupyterlab/4.0.5\n")
    assert set_up(job, "module_use=/sw/less")[0].startswith("module-failed ")


@pytest.mark.parametrize("system", [LIKE_LMOD, LIKE_LMOD_ELSEWHERE, LIKE_OLD_MODULES])
def test_a_module_that_is_not_there_ends_the_job(job: Job, system: str) -> None:
    job.env["MODULESHOME"] = str(module_system(job, system))
    failed, _ = set_up(job, "module=broken/1")
    assert failed.startswith("module-failed ") and "broken/1" in failed and "module spider broken" in failed


def test_old_modules_may_be_named_without_a_version(job: Job) -> None:
    job.env["MODULESHOME"] = str(module_system(job, LIKE_OLD_MODULES))
    assert set_up(job, "module=jupyterlab", "module=jupyterlab", then=LOADED) == ("", "gcc:jupyterlab/4\n")


@pytest.mark.skipif(
    any(Path(p).exists() for p in ("/etc/profile.d/lmod.sh", "/etc/profile.d/modules.sh", "/usr/share/lmod")),
    reason="this machine has environment modules",
)
def test_a_node_without_modules(quick: Job) -> None:
    quick.ask("module=jupyterlab/4")
    report = quick.run()
    assert report["cause"] == "module-command-missing"
    assert "jupyterlab/4" in report["message"]
