"""What JupyterLab does as it starts and nobody needs then, left out or put off: docs/job-script.md says what and why.

The job lays this file as `sitecustomize.py` into a folder in front of PYTHONPATH: Python runs it before anything else.
It takes that folder away at once, so that nothing this process starts will find it, and has the `sitecustomize` run
that would have been found without it. Nothing here may end the start: what is not as expected stays as it is.
"""

import contextlib
import importlib
import importlib.machinery
import os
import sys
import threading
import types
from pathlib import Path

FOLDER = str(Path(__file__).parent)
NAME = "notebook_launcher_quick_start"  # by which jupyter_server_config.py finds this module
POSTPONED = "__notebook_launcher_postponed__"
undone_later = []


def leave_import_path():
    """Take the folder from the path of this process, and of those that it starts."""
    kept = [folder for folder in os.environ.get("PYTHONPATH", "").split(os.pathsep) if folder != FOLDER]
    if any(kept):
        os.environ["PYTHONPATH"] = os.pathsep.join(kept)
    else:
        os.environ.pop("PYTHONPATH", None)
    sys.path[:] = [folder for folder in sys.path if folder != FOLDER]


class Postponed:
    """How to run a module that is there, and was not run yet.

    `importlib.util.LazyLoader` does this as well, but before Python 3.12 shows a second thread half a module.
    """

    def __init__(self, loader, module):
        self.lock, self.is_running = threading.RLock(), False
        self.loader, self.path = loader, vars(module).pop("__path__", None)

    def run(self, module):
        """Run it, and wait if another thread does. Return whether it has been run: not so while this thread does."""
        with self.lock:
            if self.is_running or type(module) is not PostponedModule:
                return not self.is_running
            self.is_running = True
            try:
                if self.path is not None:
                    module.__path__ = self.path
                self.loader.exec_module(module)
                del vars(module)[POSTPONED]
                module.__class__ = types.ModuleType
            except BaseException:
                vars(module).pop("__path__", None)
                raise
            finally:
                self.is_running = False
            return True


class PostponedModule(types.ModuleType):
    """A module that is run when something of it is asked for. To import one below it asks for ``__path__``."""

    def __getattr__(self, name):
        """Run the module, and say what it has by this name."""
        postponed = vars(self).get(POSTPONED)
        if postponed is None or postponed.run(self):
            return getattr(self, name) if type(self) is not PostponedModule else vars(self)[name]
        raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")

    def __dir__(self):
        """Run the module, and list it."""
        vars(self)[POSTPONED].run(self)
        return list(vars(self))


def postpone(loader):
    """Have this loader's module run when it is first used."""
    original = loader.exec_module

    def exec_module(module):
        loader.exec_module = original
        postponed = Postponed(loader, module)
        module.__class__ = PostponedModule
        vars(module)[POSTPONED] = postponed

    loader.exec_module = exec_module


def around(change):
    """Return what has a loader's module run inside of ``change``, a context manager."""

    def alter(loader):
        original = loader.exec_module

        def exec_module(module):
            loader.exec_module = original
            with change(module):
                original(module)

        loader.exec_module = exec_module

    return alter


@contextlib.contextmanager
def without_yarn(commands):
    """Do not run node, for half a second, to learn whence packages come: that is for building JupyterLab anew."""
    yield
    original = getattr(commands, "_yarn_config", None)
    if original is not None:
        commands._yarn_config = lambda logger=None: {"yarn config": {}, "npm config": {}}
        undone_later.append(lambda: setattr(commands, "_yarn_config", original))


@contextlib.contextmanager
def without_pypi(extensions):
    """Import what installs extensions from PyPI, and httpx, when they are used: a session has the read-only manager."""
    module, manager = "jupyterlab.extensions.pypi", "PyPIExtensionManager"
    if getattr(sys.modules.get("jupyterlab._version"), "version_info", (0,))[0] != 4:
        yield
        return
    sys.modules[module] = types.ModuleType(module)
    setattr(sys.modules[module], manager, None)
    try:
        yield
    finally:
        del sys.modules[module]
    make = extensions.get_pypi_manager
    delattr(extensions, manager)

    def get(name):
        if name not in ("pypi", manager):
            raise AttributeError(f"module {extensions.__name__!r} has no attribute {name!r}")
        setattr(extensions, manager, getattr(importlib.import_module(module), manager))
        return vars(extensions)[name]

    def get_pypi_manager(*args, **options):
        get(manager)
        return make(*args, **options)

    extensions.__getattr__, extensions.get_pypi_manager = get, get_pypi_manager


@contextlib.contextmanager
def without_ipython(nbserver):
    """Do not import IPython for the value of one property, where names are listed and shown by the server as well."""
    yield
    list_names, show = nbserver.public_members, nbserver.proxy

    def public_members(thing):
        is_hidden = sys.modules.setdefault("IPython.paths", None) is None
        try:
            return list_names(thing)
        finally:
            if is_hidden:
                del sys.modules["IPython.paths"]

    def proxy(server, notebook_app, name):
        if name != "nbextensions_path":
            show(server, notebook_app, name)
        else:
            setattr(type(server), name, property(lambda _server: getattr(notebook_app, name)))

    nbserver.public_members, nbserver.proxy = public_members, proxy


ALTERED = {
    "jupyterlab.commands": around(without_yarn),
    "jupyterlab.extensions": around(without_pypi),
    "notebook_shim.nbserver": around(without_ipython),
    "requests": postpone,
}


class Finder:
    """Finds modules as Python does, and alters how some are run."""

    @staticmethod
    def find_spec(name, path=None, target=None):
        """Return the module's spec; of all but a few nothing, so that the next finder is asked."""
        if name not in ALTERED:
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path, target)
        if isinstance(getattr(spec, "loader", None), importlib.machinery.SourceFileLoader):
            ALTERED[name](spec.loader)
        return spec


def begin():
    """Begin to leave out; the configuration ends it, when JupyterLab's own modules are there."""
    leave_import_path()
    # With this library, jsonschema builds 38 grammars, for two formats that nothing in JupyterLab uses.
    sys.modules["rfc3987_syntax"] = None
    sys.meta_path.insert(0, Finder)
    sys.modules[NAME] = sys.modules.pop(__name__)
    importlib.import_module(__name__)


def end():
    """Have everything there again for what is imported and run from now on."""
    if sys.modules.get("rfc3987_syntax", ...) is None:
        del sys.modules["rfc3987_syntax"]
    for undo in undone_later:
        undo()


if __name__ == "sitecustomize":
    begin()
