"""What is left out as JupyterLab starts, and that it is there for whoever wants it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from notebook_launcher.core.package_data import job_script

QUICK_START = job_script("quick_start.py")
CONFIGURED = "import sys; sys.modules.pop('notebook_launcher_quick_start').end()\n"


def run(folder: Path, code: str, **files: str) -> Any:
    """Run code as the Python of a JupyterLab is run, with modules of these texts; return what it prints as JSON."""
    laid, installed = folder / "laid", folder / "installed"
    laid.mkdir()
    shutil.copy(QUICK_START, laid / "sitecustomize.py")
    for name, text in files.items():
        path = installed / name.replace("__in__", "/")
        path = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    env = {"PATH": os.environ["PATH"], "HOME": str(folder), "PYTHONPATH": f"{laid}:{installed}", "LAID": str(laid)}
    done = subprocess.run(
        [sys.executable, "-c", code], env=env, capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    return json.loads(done.stdout)


def test_nothing_of_it_is_left_for_what_python_starts(tmp_path: Path) -> None:
    look = "import json, os, sys; look = [sys.path, os.environ['PYTHONPATH'], list(map(str, sys.meta_path))]\n"
    child = f"{look}print(json.dumps(look))"
    code = (
        f"{look}import subprocess\nlook[2] = json.loads(subprocess.check_output([sys.executable, '-c', {child!r}]))\n"
    )
    path, variable, (childs_path, childs_variable, finders) = run(tmp_path, f"{code}print(json.dumps(look))")
    assert variable == childs_variable == str(tmp_path / "installed")
    assert path == childs_path
    assert str(tmp_path / "laid") not in path
    assert not [finder for finder in finders if "sitecustomize" in finder or "quick" in finder]


def test_the_sitecustomize_that_would_have_run_runs(tmp_path: Path) -> None:
    seen = run(
        tmp_path,
        "import sys, json; print(json.dumps([sys.marked, sys.modules['sitecustomize'].__file__]))",
        sitecustomize="import sys; sys.marked = __name__",
    )
    assert seen == ["sitecustomize", str(tmp_path / "installed" / "sitecustomize.py")]


def test_what_is_wrong_in_that_sitecustomize_is_said_as_without_us(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="Error in sitecustomize; set PYTHONVERBOSE for traceback"):
        run(tmp_path, "print('{}')", sitecustomize="1 / 0")


def test_a_library_of_formats_is_missing_until_the_configuration_is_read(tmp_path: Path) -> None:
    code = f"""
import importlib.util, json
try:
    import rfc3987_syntax
except ImportError:
    missing = True
{CONFIGURED}
import rfc3987_syntax
print(json.dumps([missing, rfc3987_syntax.x]))
"""
    assert run(tmp_path, code, rfc3987_syntax="x = 1") == [True, 1]


def test_requests_is_run_when_it_is_used(tmp_path: Path) -> None:
    code = """
import json, sys, threading
import requests
runs = [hasattr(sys, "runs")]
seen = []
threads = [threading.Thread(target=lambda: seen.append(requests.late)) for _ in range(8)]
for thread in threads: thread.start()
for thread in threads: thread.join()
runs.append(sys.runs)
from requests.below import y
print(json.dumps([runs, seen, y, type(requests).__name__, requests.__spec__.loader is requests.__loader__]))
"""
    text = """
import sys, time
sys.runs = getattr(sys, "runs", 0) + 1
from . import below
time.sleep(0.05)
late = below.y + 1
"""
    found = run(tmp_path, code, requests__in____init__=text, requests__in__below="y = 1")
    assert found == [[False, 1], [2] * 8, 1, "module", True]


@pytest.mark.parametrize(
    "use", ["from requests import late", "import requests.below", "import requests; dir(requests)"]
)
def test_each_way_to_use_requests_runs_it(tmp_path: Path, use: str) -> None:
    code = f"import sys, json\n{use}\nprint(json.dumps(sys.runs))"
    text = "import sys; sys.runs = getattr(sys, 'runs', 0) + 1; late = 1"
    assert run(tmp_path, code, requests__in____init__=text, requests__in__below="") == 1


def test_what_is_wrong_in_requests_is_said_where_it_is_used(tmp_path: Path) -> None:
    code = """
import requests, json
said = []
for _ in range(2):
    try: requests.get
    except ImportError as problem: said.append(problem.name)
try: import requests.no
except ImportError as problem: said.append(problem.name)
print(json.dumps(said))
"""
    assert run(tmp_path, code, requests__in____init__="import not_there") == ["not_there"] * 3


PYPI = "class PyPIExtensionManager:\n    def __init__(self, *args): self.args = args\n"
EXTENSIONS = "from .pypi import PyPIExtensionManager\ndef get_pypi_manager(*args): return PyPIExtensionManager(*args)\n"


@pytest.mark.parametrize("version", [3, 4, 5])
def test_the_manager_from_pypi_is_there_for_whoever_asks(tmp_path: Path, version: int) -> None:
    code = """
import json, sys
import jupyterlab._version, jupyterlab.extensions as extensions
early = "jupyterlab.extensions.pypi" in sys.modules
made = extensions.get_pypi_manager(1, 2)
from jupyterlab.extensions import PyPIExtensionManager
import jupyterlab.extensions.pypi as pypi
same = pypi.PyPIExtensionManager is PyPIExtensionManager is type(made) is extensions.PyPIExtensionManager
print(json.dumps([early, made.args, same, hasattr(extensions, "nothing")]))
"""
    files = {
        "jupyterlab__in____init__": "",
        "jupyterlab__in___version": f"version_info = ({version}, 0)",
        "jupyterlab__in__extensions__in____init__": EXTENSIONS,
        "jupyterlab__in__extensions__in__pypi": PYPI,
    }
    assert run(tmp_path, code, **files) == [version != 4, [1, 2], True, False]


def test_ipython_is_not_imported_to_list_names_and_show_them(tmp_path: Path) -> None:
    code = """
import json, sys
from notebook_shim import nbserver
class Server: pass
class App:
    other = 1
    @property
    def nbextensions_path(self):
        import IPython.paths
        return IPython.paths.__name__
listed = nbserver.public_members(App())
for name in ("other", "nbextensions_path"): nbserver.proxy(Server(), App(), name)
early = "IPython" in sys.modules
print(json.dumps([listed, early, Server().other, Server().nbextensions_path, nbserver.public_members(App())]))
"""
    text = """
def public_members(thing):
    try: thing.nbextensions_path
    except ImportError: return ["without"]
    return ["with"]
def proxy(server, app, name):
    setattr(type(server), name, getattr(app, name))
"""
    files = {"notebook_shim__in____init__": "", "notebook_shim__in__nbserver": text}
    found = run(tmp_path, code, **files, IPython__in____init__="", IPython__in__paths="")
    assert found == [["without"], False, 1, "IPython.paths", ["with"]]


@pytest.mark.parametrize(("asked", "has_it"), [("yes", True), ("yes", False), ("no", True)])
def test_the_job_lays_it_unless_it_is_switched_off(tmp_path: Path, asked: str, has_it: bool) -> None:
    if has_it:
        shutil.copy(QUICK_START, tmp_path)
    code = 'source "$1/lib.sh"; source "$1/enter.sh"; want_fast_start=$2; quicken_start; printf %s "$PYTHONPATH"'
    env = {"PATH": os.environ["PATH"], "NBL_SESSION_DIR": str(tmp_path), "PYTHONPATH": "/users"}
    argv = ["bash", "-c", code, "job", str(QUICK_START.parent), asked]
    done = subprocess.run(argv, env=env, capture_output=True, text=True, timeout=30, check=True)
    laid = tmp_path / "runtime" / "python"
    if asked == "yes" and has_it:
        assert done.stdout == f"{laid}:/users"
        assert (laid / "sitecustomize.py").read_bytes() == QUICK_START.read_bytes()
    else:
        assert (done.stdout, laid.exists()) == ("/users", False)


@pytest.mark.real_time
def test_a_real_jupyterlab_starts_without_what_nobody_needs(tmp_path: Path) -> None:
    """The names that are altered are those of JupyterLab's own modules, and all is there again."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "node").write_text(f"#!/bin/sh\n: >'{tmp_path}/node-ran'\n")
    (tmp_path / "bin" / "node").chmod(0o755)
    code = f"""
import os; os.environ["PATH"] = {str(tmp_path / "bin")!r} + ":" + os.environ["PATH"]
import json, sys
from jupyterlab import commands, extensions, labapp
from notebook_shim import nbserver
class Server: pass
for name in nbserver.diff_members(Server(), nbserver.NotebookAppTraits()):
    nbserver.proxy(Server(), nbserver.NotebookAppTraits(), name)
heavy = [name for name in ("IPython", "httpx", "urllib3", "jupyterlab.extensions.pypi") if name in sys.modules]
ran = os.path.exists({str(tmp_path / "node-ran")!r})
{CONFIGURED}
commands._yarn_config(labapp.LabApp().log)
import importlib.util, requests
from jupyterlab.extensions.pypi import PyPIExtensionManager
whole = [requests.Session.__name__, any("ipython" in path for path in Server().nbextensions_path)]
whole += [importlib.util.find_spec("rfc3987_syntax") is not None]
whole += [PyPIExtensionManager is extensions.PyPIExtensionManager]
print(json.dumps([heavy, ran, whole, os.path.exists({str(tmp_path / "node-ran")!r})]))
"""
    assert run(tmp_path, code) == [[], False, ["Session", True, True, True], True]
