"""What is left out as JupyterLab starts, and that it is there for whoever wants it."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from notebook_launcher.core.package_data import job_script

QUICK_START = job_script("quick_start.py")
CONFIGURED = "import sys; sys.modules.pop('notebook_launcher_quick_start').end()\n"


def run(folder: Path, code: str, named: str = "{}", **files: str) -> Any:
    """Run code as the Python of a JupyterLab is run, with modules of these texts; return what it prints as JSON.

    ``named`` is how the path of the folder that the job lays is written.
    """
    laid, installed = folder / "laid", folder / "installed"
    laid.mkdir()
    shutil.copy(QUICK_START, laid / "sitecustomize.py")
    for name, text in files.items():
        module = installed / name.replace("__in__", "/")
        module = module / "__init__.py" if module.is_dir() else module.with_suffix(".py")
        module.parent.mkdir(parents=True, exist_ok=True)
        module.write_text(text)
    path = f"{named.format(laid)}:{installed}"
    env = {"PATH": os.environ["PATH"], "HOME": str(folder), "PYTHONPATH": path, "LAID": str(laid)}
    done = subprocess.run(
        [sys.executable, "-c", code], env=env, capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    return json.loads(done.stdout)


@pytest.mark.parametrize("named", ["{}", "{.parent}//laid", "{}/", "{}/./../laid"])
def test_nothing_of_it_is_left_for_what_python_starts(tmp_path: Path, named: str) -> None:
    look = "import json, os, sys; look = [sys.path, os.environ['PYTHONPATH'], list(map(str, sys.meta_path))]\n"
    child = f"{look}print(json.dumps(look))"
    code = (
        f"{look}import subprocess\nlook[2] = json.loads(subprocess.check_output([sys.executable, '-c', {child!r}]))\n"
    )
    path, variable, (childs_path, childs_variable, finders) = run(tmp_path, f"{code}print(json.dumps(look))", named)
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


def test_the_configuration_takes_the_folder_from_the_path_where_python_has_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = job_script("jupyter_server_config.py").read_text()
    (function,) = re.findall(r"^def end_quick_start\(\).*?\n\n\n", text, re.M | re.S)
    monkeypatch.setenv("NBL_SESSION_DIR", f"{tmp_path}//session/")
    for others, left in ((":/users:", "/users:"), ("", None)):
        monkeypatch.setenv("PYTHONPATH", f"{tmp_path}//session//runtime/python{others}")
        with monkeypatch.context() as patch:
            patch.setattr(sys, "path", [str(tmp_path / "session/runtime/python"), "/users"])
            exec(f"{function}end_quick_start()", {"os": os, "sys": sys, "Path": Path})
            assert (os.environ.get("PYTHONPATH"), sys.path) == (left, ["/users"])


@pytest.fixture
def later(tmp_path: Path) -> tuple[dict[str, Any], Path]:
    """The names of the configuration's ``do_later``, with a server that is set up at once; and what it waits for."""
    text = job_script("jupyter_server_config.py").read_text()
    (function,) = re.findall(r"^LOOKS, EVERY = .*?\n\n\n(?=app = )", text, re.M | re.S)
    names = {"os": os, "sys": sys, "Path": Path, "time": SimpleNamespace(), "threading": SimpleNamespace()}
    names |= {"contextlib": contextlib, "app": SimpleNamespace(init_shutdown_no_activity=lambda: None)}
    exec(function, names)
    return names, tmp_path / "endpoint.json"


def test_what_is_done_later_waits_for_the_servers_answer_and_one_that_fails_keeps_none_from_it(
    later: tuple[dict[str, Any], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    names, answers = later
    done: list[str] = []

    def look_again(_seconds: float) -> None:
        done.append("looked")
        if len(done) == 3:
            answers.touch()

    monkeypatch.setattr(os, "setpriority", lambda *_: done.append("yields"))
    names["time"].sleep = look_again
    names["threading"].Thread = lambda target, **_: SimpleNamespace(start=target)
    names["do_later"]([lambda: 1 / 0, lambda: done.append("done")], answers)
    names["app"].init_shutdown_no_activity()
    assert done == ["looked", "looked", "looked", "yields", "done"]


def test_a_server_starts_where_no_more_threads_are_allowed(later: tuple[dict[str, Any], Path]) -> None:
    names, answers = later

    def refused(**_: object) -> None:
        raise RuntimeError("can't start new thread")

    names["threading"].Thread = refused
    names["do_later"]([answers.touch], answers)
    names["app"].init_shutdown_no_activity()
    assert not answers.exists()


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


@pytest.mark.parametrize(
    "text",
    [
        "from .pypi import PyPIExtensionManager, OTHER\ndef get_pypi_manager(): return PyPIExtensionManager(OTHER)",
        "from .pypi import PyPIExtensionManager\nfrom .pypi import OTHER\ndef get_pypi_manager(): return Mine(OTHER)\n"
        "class Mine(PyPIExtensionManager): pass",
        "from .pypi import PyPIExtensionManager as Mine\ndef get_pypi_manager(): return Mine(1)",
        "from .pypi import PyPIExtensionManager\n__getattr__ = {'get_pypi_manager': PyPIExtensionManager}.get",
        "from .pypi import PyPIExtensionManager\n"
        "def __getattr__(name): return 'own'\n"
        "def get_pypi_manager(): return PyPIExtensionManager(1 if own() else 0)\ndef own(): return __getattr__('x')",
    ],
)
def test_a_later_module_of_extensions_is_run_as_it_is(tmp_path: Path, text: str) -> None:
    code = """
import json, sys
import jupyterlab._version, jupyterlab.extensions as extensions
names = ["jupyterlab.extensions.pypi" in sys.modules, getattr(extensions, "PyPIExtensionManager", 0) is None]
print(json.dumps([*names, extensions.get_pypi_manager(*[1] * text.count(".get")).args]))
"""
    files = {
        "jupyterlab__in____init__": "",
        "jupyterlab__in___version": "version_info = (4, 99)",
        "jupyterlab__in__extensions__in____init__": text,
        "jupyterlab__in__extensions__in__pypi": f"{PYPI}OTHER = 1\n",
    }
    assert run(tmp_path, f"text = {text!r}\n{code}", **files) == [True, False, [1]]


LISTINGS = "import requests\ndef get(): return requests.get(1)"
SIGN = """
import sqlite3
sqlite3.register_adapter(1, "mine")
def get(): return sqlite3.adapters
"""


@pytest.mark.parametrize("use", ["module.get()", "quick.import_what_was_put_off()"])
@pytest.mark.parametrize(("owner", "text", "name"), [("jupyterlab_server.listings_handler", LISTINGS, "requests"),
                                                     ("nbformat.sign", SIGN, "sqlite3")])  # fmt: skip
def test_a_module_is_imported_when_it_is_used_or_the_server_answers(
    tmp_path: Path, owner: str, text: str, name: str, use: str
) -> None:
    code = f"""
import json, sys
quick = sys.modules["notebook_launcher_quick_start"]
sys.path.insert(0, {str(tmp_path / "first")!r})
import {owner} as module
early = "{name}" in sys.modules
{use}
import {name}
replaced = module.{name} is {name}
print(json.dumps([early, replaced, module.get(), {name}.loaded]))
"""
    standing_for = {
        "requests": "loaded = 1\ndef get(number): return ['got', number]\n",
        "sqlite3": "loaded, adapters = 1, []\ndef register_adapter(*what): adapters.append(what)\n",
    }
    (tmp_path / "first").mkdir()
    (tmp_path / "first" / f"{name}.py").write_text(standing_for[name])
    package = owner.split(".")[0]
    files = {f"{package}__in____init__": "", owner.replace(".", "__in__"): text}
    answer = ["got", 1] if name == "requests" else [[1, "mine"]]
    assert run(tmp_path, code, **files) == [False, "quick" in use, answer, 1]


def test_a_module_that_is_not_there_is_missed_as_without_us(tmp_path: Path) -> None:
    code = "import json, importlib.util\nimport jupyterlab_server.listings_handler as module\n"
    code += "print(json.dumps(module.requests is None))"
    text = "try: import requests\nexcept ImportError: requests = None"
    hidden = "import sys; sys.path[:] = [folder for folder in sys.path if 'site-packages' not in folder]\n"
    files = {"jupyterlab_server__in____init__": "", "jupyterlab_server__in__listings_handler": text}
    assert run(tmp_path, hidden + code, **files) is True


def test_other_packages_managers_of_extensions_are_asked_for_when_the_server_answers(tmp_path: Path) -> None:
    code = """
import json, sys
from importlib import metadata
asked, ask = [], metadata.entry_points
metadata.entry_points = lambda **what: [asked.append(what), ask(**what)][1]
quick = sys.modules["notebook_launcher_quick_start"]
import jupyterlab._version, jupyterlab.extensions as extensions
early = [sorted(extensions.MANAGERS), list(asked), extensions.entry_points is metadata.entry_points]
quick.import_what_was_put_off()
print(json.dumps([*early, sorted(extensions.MANAGERS)]))
"""
    text = "from importlib.metadata import entry_points\n" + EXTENSIONS
    text += "MANAGERS = {each.name: each for each in entry_points(group='jupyterlab.extension_manager_v1')}\n"
    installed = tmp_path / "installed"
    for package, manager in {"jupyterlab": "readonly", "other": "of-others"}.items():
        about = installed / f"{package}-4.0.dist-info"
        about.mkdir(parents=True)
        (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 4.0\n")
        (about / "entry_points.txt").write_text(f"[jupyterlab.extension_manager_v1]\n{manager} = a:b\n")
    files = {
        "jupyterlab__in____init__": "",
        "jupyterlab__in___version": "version_info = (4, 0)",
        "jupyterlab__in__extensions__in____init__": text,
        "jupyterlab__in__extensions__in__pypi": PYPI,
    }
    early, asked, same, late = run(tmp_path, code, **files)
    assert (early, asked, same) == (["readonly"], [], True)
    assert {"readonly", "of-others"} <= set(late)


@pytest.mark.parametrize("name", ["jupyterlab.commands", "jupyterlab.extensions", "notebook_shim.nbserver"])
def test_what_is_wrong_in_a_module_is_said_as_without_us(tmp_path: Path, name: str) -> None:
    code = f"""
import json, jupyterlab._version
try: import {name}
except ImportError as problem: print(json.dumps([problem.name, repr(problem.__context__)]))
"""
    files = {
        "jupyterlab__in____init__": "",
        "jupyterlab__in___version": "version_info = (4, 0)",
        "notebook_shim__in____init__": "",
        name.replace(".", "__in__"): "import not_there",
    }
    assert run(tmp_path, code, **files) == ["not_there", "None"]


@pytest.mark.parametrize("name", ["jupyterlab__in__commands", "notebook_shim__in__nbserver"])
def test_a_module_without_what_is_altered_is_run_as_it_is(tmp_path: Path, name: str) -> None:
    package, module = name.split("__in__")
    code = f"import json; from {package} import {module}; print(json.dumps({module}.other))"
    assert run(tmp_path, code, **{f"{package}__in____init__": "", name: "other = 1"}) == 1


# Finders that a .pth file installed before: one puts its own loader around another's, one is written for old Pythons.
WRAPS = """
import importlib.util, sys
class Wraps:
    is_asking = False
    def find_spec(self, name, path=None, target=None):
        if self.is_asking or name != "jupyterlab.commands": return None
        self.is_asking = True
        spec = importlib.util.find_spec(name)
        self.is_asking, self.loader, spec.loader = False, spec.loader, self
        return spec
    def create_module(self, spec): return None
    def exec_module(self, module):
        self.loader.exec_module(module)
        module.seen = ["wrapped", module._yarn_config()]
sys.meta_path.insert(1, Wraps())
"""
ASKS_ALL = """
import sys
class AsksAll:
    def find_spec(self, *what):
        for other in sys.meta_path:
            if other is not self and (spec := other.find_spec(*what)): return spec
sys.meta_path.insert(1, AsksAll())
"""
IS_OLD = """
import sys
class Old:
    def find_module(self, name, path=None): return None
sys.meta_path.insert(1, Old())
"""


@pytest.mark.parametrize(
    ("hook", "seen"), [("", ["quick"]), (WRAPS, ["wrapped", "asked"]), (ASKS_ALL, ["quick"]), (IS_OLD, ["asked"])]
)
def test_what_others_do_as_modules_are_imported_is_done(tmp_path: Path, hook: str, seen: list[str]) -> None:
    code = """
import json
from jupyterlab import commands
answer = commands._yarn_config()
print(json.dumps(getattr(commands, "seen", [answer if answer == "asked" else "quick"])))
"""
    text = "def _yarn_config(logger=None): return 'asked'"
    files = {"jupyterlab__in____init__": "", "jupyterlab__in__commands": text, "sitecustomize": hook}
    assert run(tmp_path, code, **files) == seen


def test_its_finder_is_gone_when_the_configuration_is_read(tmp_path: Path) -> None:
    code = f"""
import json, sys
found = [str(sys.meta_path)]
{CONFIGURED}
found.append(str(sys.meta_path))
print(json.dumps(["sitecustomize.Finder" in one for one in found]))
"""
    assert run(tmp_path, code) == [True, False]


def test_garbage_is_searched_for_as_usual_when_the_configuration_is_read(tmp_path: Path) -> None:
    code = f"""
import gc, json
meanwhile = gc.get_threshold()[0]
{CONFIGURED}
print(json.dumps([meanwhile, gc.isenabled(), gc.get_threshold()]))
"""
    assert run(tmp_path, code) == [1_000_000, True, list(gc_threshold_of(sys.executable))]


def gc_threshold_of(python: str) -> tuple[int, ...]:
    done = subprocess.run(
        [python, "-c", "import gc, json; print(json.dumps(gc.get_threshold()))"], capture_output=True, check=True
    )
    return tuple(json.loads(done.stdout))


def test_ipython_is_not_imported_to_list_names_and_show_them(tmp_path: Path) -> None:
    code = f"""
import json, sys
import notebook_shim
{CONFIGURED}
from notebook_shim import nbserver
class Server: pass
class App:
    other = 1
    @property
    def nbextensions_path(self):
        import IPython.paths
        return IPython.paths.__name__
listed = nbserver.public_members(App())
for name in ("other", "nbextensions_path"): nbserver.proxy(Server(), App(), name, overwrite=True)
early = "IPython" in sys.modules
print(json.dumps([listed, early, Server().other, Server().nbextensions_path, nbserver.public_members(App())]))
"""
    text = """
def public_members(thing):
    try: thing.nbextensions_path
    except ImportError: return ["without"]
    return ["with"]
def proxy(server, app, name, overwrite=False):
    setattr(type(server), name, getattr(app, name))
"""
    files = {"notebook_shim__in____init__": "", "notebook_shim__in__nbserver": text}
    found = run(tmp_path, code, **files, IPython__in____init__="", IPython__in__paths="")
    assert found == [["without"], False, 1, "IPython.paths", ["with"]]


@pytest.mark.parametrize(
    ("asked", "has_it", "name"), [("yes", True, "s"), ("yes", False, "s"), ("no", True, "s"), ("yes", True, "a:b")]
)
def test_the_job_lays_it_unless_it_is_switched_off(tmp_path: Path, asked: str, has_it: bool, name: str) -> None:
    """Nor where the session's path cannot stand in PYTHONPATH."""
    session = tmp_path / name
    laid = session / "runtime" / "python"
    laid.mkdir(parents=True)
    if has_it:
        shutil.copy(QUICK_START, session)
    code = 'source "$1/lib.sh"; source "$1/enter.sh"; want_fast_start=$2; lay_quick_start; quicken_start; '
    code += 'printf %s "$PYTHONPATH"'
    env = {"PATH": os.environ["PATH"], "NBL_SESSION_DIR": str(session), "PYTHONPATH": "/users"}
    argv = ["bash", "-c", code, "job", str(QUICK_START.parent), asked]
    done = subprocess.run(argv, env=env, capture_output=True, text=True, timeout=30, check=True)
    if asked == "yes" and has_it and ":" not in name:
        assert done.stdout == f"{laid}:/users"
        assert (laid / "sitecustomize.py").read_bytes() == QUICK_START.read_bytes()
    else:
        assert (done.stdout, list(laid.iterdir())) == ("/users", [])


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
heavy = ("IPython", "httpx", "jupyterlab.extensions.pypi", "requests", "sqlite3")
heavy = [name for name in heavy if name in sys.modules]
ran = os.path.exists({str(tmp_path / "node-ran")!r})
{CONFIGURED}
commands._yarn_config(labapp.LabApp().log)
import importlib.util
from jupyterlab.extensions.pypi import PyPIExtensionManager
whole = [any("ipython" in path for path in Server().nbextensions_path)]
whole += [importlib.util.find_spec("rfc3987_syntax") is not None]
whole += [PyPIExtensionManager is extensions.PyPIExtensionManager]
print(json.dumps([heavy, ran, whole, os.path.exists({str(tmp_path / "node-ran")!r})]))
"""
    assert run(tmp_path, code) == [[], False, [True, True, True], True]
