"""``create_environment.sh``: environments made whole or not at all."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from notebook_launcher.core.package_data import job_script
from tests.doubles import wait_until

pytestmark = pytest.mark.real_time

CONDA = """#!/bin/bash
# makes and removes as conda does: with -y, `env create` begins by removing what is there
case "$1 ${2-}" in
  'info ') printf '  envs directories : %s\\n                     /not/there\\n          platform : x\\n' "$ENVS" ;;
  'env list') [[ -z ${BROKEN-} ]] || exit 1; printf '# conda environments:\\n#\\nbase  *  /opt/c\\n'
              printf '         %s\\n' "$LISTED" ;;
  'env create')
    [[ " $* " != *' -y '* ]] || rm -rf "${4:?}" "$ENVS/${4:?}"
    place=$4; [[ $place == /* ]] || place=$ENVS/$4
    mkdir "$place" || exit; echo half >"$place/half"
    grep -q good "$6" ;;
esac
"""


@pytest.fixture
def conda(tmp_path: Path) -> Callable[..., str]:
    for name in ("bin", "work", "envs"):
        (tmp_path / name).mkdir()
    (tmp_path / "bin" / "conda").write_text(CONDA)
    (tmp_path / "bin" / "conda").chmod(0o755)
    (tmp_path / "work" / "session.env").touch()

    def make(target: str, content: str = "good", **more: str) -> str:
        (tmp_path / "work" / "environment.yml").write_text(content)
        env = {"PATH": f"{tmp_path}/bin:/usr/bin:/bin", "ENVS": f"{tmp_path}/envs", "LISTED": "/old/one", **more}
        argv = ["bash", job_script("create_environment.sh"), "conda", tmp_path / "work", target]
        done = subprocess.run(argv, env=env, capture_output=True, text=True, timeout=20)
        return done.stdout.splitlines()[-1]

    return make


def test_conda_never_touches_what_is_there(tmp_path: Path, conda: Callable[..., str]) -> None:
    for place in (tmp_path / "data", tmp_path / "envs" / "mine"):
        place.mkdir()
        (place / "years of work").touch()
    assert conda(str(tmp_path / "data")) == f"nbl-failed work There is something in {tmp_path}/data already."
    assert "already" in conda("mine")
    assert conda("one") == "nbl-failed work There is an environment one already."
    assert "cannot list" in conda("other", BROKEN="yes")
    assert (tmp_path / "data" / "years of work").exists()
    assert (tmp_path / "envs" / "mine" / "years of work").exists()


@pytest.mark.parametrize("place", ["miniforge3/bin/conda", ".local/bin/micromamba"])
def test_conda_in_the_home_that_no_login_shell_has_on_its_path(
    tmp_path: Path, conda: Callable[..., str], place: str
) -> None:
    """``conda init`` writes to the end of ~/.bashrc, where only interactive shells get."""
    program = tmp_path / "home" / place
    program.parent.mkdir(parents=True)
    (tmp_path / "bin" / "conda").rename(program)
    assert "There is no conda, mamba or micromamba on" in conda("new")
    script = tmp_path / "home" / "miniforge3" / "etc" / "profile.d" / "conda.sh"
    script.parent.mkdir(parents=True)
    script.touch()
    assert conda("new", HOME=str(tmp_path / "home")) == "nbl-made work new"


def test_a_folder_is_no_conda(tmp_path: Path, conda: Callable[..., str]) -> None:
    (tmp_path / "mamba").mkdir()
    program = (tmp_path / "bin" / "conda").rename(tmp_path / "mamba" / "micromamba")
    places = {"CONDA_EXE": str(tmp_path / "mamba"), "MAMBA_EXE": str(program), "HOME": str(tmp_path / "nowhere")}
    assert conda("new", **places) == "nbl-made work new"


def test_what_conda_left_half_made_is_removed(tmp_path: Path, conda: Callable[..., str]) -> None:
    assert "could not make" in conda("new", "bad")
    assert "could not make" in conda(f"{tmp_path}/new", "bad")
    assert list((tmp_path / "envs").iterdir()) == []
    assert not (tmp_path / "new").exists()
    assert conda("new") == "nbl-made work new"
    assert (tmp_path / "envs" / "new").exists()


# makes an environment with itself as its Python, whose pip knows of one package
PYTHON = """#!/bin/bash
case "$2" in
  venv) mkdir -p "$3/bin"; cp "$0" "$3/bin/python" ;;
  pip)  [[ $* != *--requirement* ]] || grep -qx good "${!#}" || { echo "ERROR: no $(cat "${!#}")"; exit 1; } ;;
esac
"""


def test_what_pip_cannot_install_is_told_and_nothing_is_left(tmp_path: Path) -> None:
    for name in ("bin", "work"):
        (tmp_path / name).mkdir()
    (tmp_path / "work" / "session.env").touch()
    (tmp_path / "bin" / "python3").write_text(PYTHON)
    (tmp_path / "bin" / "python3").chmod(0o755)

    def make(package: str) -> list[str]:
        (tmp_path / "work" / "requirements.txt").write_text(f"{package}\n")
        argv = ["bash", job_script("create_environment.sh"), "venv", tmp_path / "work", tmp_path / "new"]
        env = {"PATH": f"{tmp_path}/bin:/usr/bin:/bin"}
        return subprocess.run(argv, env=env, capture_output=True, text=True, timeout=20).stdout.splitlines()

    told = make("not-there-at-all")
    assert told[0] == "ERROR: no not-there-at-all"
    assert told[-1] == "nbl-failed work pip could not install what requirements.txt names."
    assert not (tmp_path / "new").exists()
    assert make("good")[-1] == f"nbl-made work {tmp_path}/new"


def test_what_a_killed_maker_left_is_removed_later(tmp_path: Path) -> None:
    work, begun = tmp_path / "work", tmp_path / "v"
    work.mkdir()
    (work / "session.env").touch()
    (work / "requirements.txt").touch()
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "python3").write_text(f"#!/bin/bash\necho $$ >{tmp_path}/pid\nexec sleep 60\n")
    (tmp_path / "bin" / "python3").chmod(0o755)
    env = {"PATH": f"{tmp_path}/bin:/usr/bin:/bin"}
    script = job_script("create_environment.sh")
    maker = subprocess.Popen(["bash", script, "venv", work, begun], env=env, stdout=subprocess.DEVNULL)
    try:
        wait_until(lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text().endswith("\n"))
        maker.kill()
        maker.wait()
        assert begun.exists()
        subprocess.run(["bash", script, "tidy", work], check=True)
        assert not begun.exists()
    finally:
        os.kill(int((tmp_path / "pid").read_text()), signal.SIGKILL)

    began = time.monotonic()
    maker = subprocess.Popen(["bash", script, "venv", work, begun], env=env, stdout=subprocess.DEVNULL)
    (work / "stop").touch()
    assert maker.wait(30) == 143
    assert time.monotonic() - began < 30
    assert not begun.exists()
