"""Skips or postpones slow steps of JupyterLab's start that nobody needs: docs/job-script.md says which and why.

The job puts this file as `sitecustomize.py` into a folder at the front of PYTHONPATH, so that Python runs it before
anything else. It removes that folder at once, so that processes started later do not find it, and runs the
`sitecustomize` that would have been found without it. It must never prevent the start: what is not as expected stays
unchanged.
"""

import os
import sys

FOLDER = os.path.dirname(__file__)


def leave_import_path():
    """Remove the folder from the import path of this process, and of those that it starts.

    The variable has the path as the job wrote it, perhaps with a double slash; Python normalises it in ``sys.path``.
    """
    folders = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    kept = [folder for folder in folders if os.path.normpath(folder) != FOLDER]
    if any(kept):
        os.environ["PYTHONPATH"] = os.pathsep.join(kept)
    else:
        os.environ.pop("PYTHONPATH", None)
    sys.path[:] = [folder for folder in sys.path if folder != FOLDER]


def begin_imports():
    """Use the import cache of an earlier start (``import_cache.py``), if the job names a file for it."""
    file, module = os.environ.pop("NBL_IMPORTS", ""), {}
    if not file:
        return None
    module["__file__"] = os.environ["NBL_SESSION_DIR"] + "/import_cache.py"
    module["__name__"] = "import_cache"
    try:
        with open(module["__file__"], encoding="utf-8") as source:
            exec(compile(source.read(), module["__file__"], "exec"), module)  # noqa: S102
        return module["Imports"](file)
    except Exception:
        return None


if __name__ == "sitecustomize":
    leave_import_path()
    imports = begin_imports()

# imported afterwards, because the cache makes even these imports faster
import contextlib  # noqa: E402
import functools  # noqa: E402
import gc  # noqa: E402
import importlib  # noqa: E402
import importlib.machinery  # noqa: E402
import importlib.util  # noqa: E402
import types  # noqa: E402

NAME = "notebook_launcher_quick_start"  # the name by which jupyter_server_config.py finds this module
undone_later = []
done_later = []  # functions to call once the server answers
asked_for = set()  # modules that are being searched for


def around(change):
    """Return a function that lets a loader execute its module inside of ``change``, a context manager.

    If that fails, the module is executed again without the change: it may be another version than ``change`` was
    written for. An error in the module itself is then reported as usual.
    """

    def alter(loader):
        original = loader.exec_module

        def exec_module(module):
            loader.exec_module = original
            is_run = False
            with contextlib.suppress(Exception):
                with change(module):
                    original(module)
                is_run = True
            if not is_run:
                original(module)

        loader.exec_module = exec_module

    return alter


@contextlib.contextmanager
def without_yarn(commands):
    """Do not run node, which takes half a second, to find the package registry: only building JupyterLab needs it."""
    yield
    original = getattr(commands, "_yarn_config", None)
    if original is not None:
        commands._yarn_config = lambda *_args, **_options: {"yarn config": {}, "npm config": {}}
        undone_later.append(lambda: setattr(commands, "_yarn_config", original))


@contextlib.contextmanager
def without_pypi(extensions):
    """Postpone importing the PyPI extension manager, and httpx, until used: a session has the read-only manager."""
    module, manager = "jupyterlab.extensions.pypi", "PyPIExtensionManager"
    if getattr(sys.modules.get("jupyterlab._version"), "version_info", (0,))[0] != 4:
        yield
        return
    sys.modules[module] = types.ModuleType(module)
    setattr(sys.modules[module], manager, None)
    try:
        with own_managers_alone(extensions):
            yield
    finally:
        del sys.modules[module]
    make = extensions.get_pypi_manager
    if vars(extensions).get(manager, ...) is not None or hasattr(extensions, "__getattr__"):
        raise NotImplementedError(f"{extensions.__name__} is another than expected")
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
def own_managers_alone(extensions):
    """Look for extension managers only in JupyterLab itself; search all packages (0.02 s) once the server answers.

    The configuration selects one of JupyterLab's own.
    """
    from importlib import metadata

    ask_all = metadata.entry_points

    def ask_jupyterlab(**what):
        return metadata.distribution("jupyterlab").entry_points.select(**what)

    def add_all():
        for entry in ask_all(group="jupyterlab.extension_manager_v1"):
            extensions.MANAGERS[entry.name] = entry

    metadata.entry_points = ask_jupyterlab
    try:
        yield
    finally:
        metadata.entry_points = ask_all
    if vars(extensions).get("entry_points") is ask_jupyterlab:
        extensions.entry_points = ask_all
        done_later.append(add_all)


class StandIn(types.ModuleType):
    """A stand-in for a module, which is imported when one of its attributes is used.

    ``noted``: names of functions whose calls are recorded until then, and made afterwards.
    """

    def __init__(self, name, noted=()):
        super().__init__(name)
        self._calls = []
        for function in noted:
            setattr(self, function, functools.partial(self._note, function))

    def _note(self, *call):
        self._calls.append(call)

    def _load(self):
        if sys.modules.get(self.__name__) is self:
            del sys.modules[self.__name__]
        module = importlib.import_module(self.__name__)
        while self._calls:
            function, *arguments = self._calls.pop(0)
            getattr(module, function)(*arguments)
        return module

    def __getattr__(self, name):
        return getattr(self._load(), name)


def putting_off(name, *noted, needs=()):
    """Return a change for ``around``: postpone a module's import of ``name`` until it is used, or the server answers.

    The module must contain ``import name``. While it is executed, it may call the functions in ``noted``. Nothing is
    postponed if ``name``, or a module in ``needs``, is not installed: the module may handle that.
    """

    @contextlib.contextmanager
    def change(module):
        if name in sys.modules or not all(map(importlib.util.find_spec, [name, *needs])):
            yield
            return
        stand_in = sys.modules[name] = StandIn(name, noted)
        try:
            yield
        finally:
            if sys.modules.get(name) is stand_in:
                del sys.modules[name]
        if vars(module).get(name) is stand_in:
            done_later.append(lambda: setattr(module, name, stand_in._load()))

    return change


@contextlib.contextmanager
def without_ipython(nbserver):
    """Do not import IPython for the value of one property, when the server's members are listed and proxied."""
    yield
    list_names, show = nbserver.public_members, nbserver.proxy

    def public_members(*args, **options):
        is_hidden = sys.modules.setdefault("IPython.paths", None) is None
        try:
            return list_names(*args, **options)
        finally:
            if is_hidden:
                del sys.modules["IPython.paths"]

    def proxy(server, notebook_app, name, *args, **options):
        if name != "nbextensions_path":
            show(server, notebook_app, name, *args, **options)
        else:
            setattr(type(server), name, property(lambda _server: getattr(notebook_app, name)))

    nbserver.public_members, nbserver.proxy = public_members, proxy


ALTERED = {
    "jupyterlab.commands": around(without_yarn),
    "jupyterlab.extensions": around(without_pypi),
    "jupyterlab_server.listings_handler": around(putting_off("requests")),
    "jupyter_server.services.sessions.sessionmanager": around(putting_off("sqlite3", needs=["_sqlite3"])),
    "nbformat.sign": around(putting_off("sqlite3", "register_adapter", "register_converter", needs=["_sqlite3"])),
    "notebook_shim.nbserver": around(without_ipython),
}


class Finder:
    """A finder that finds modules as Python does, and changes how some of them are executed."""

    @classmethod
    def find_spec(cls, name, path=None, target=None):
        """Return the spec of the few modules to change; otherwise ``None``, so that the next finder is used."""
        if name not in ALTERED or name in asked_for:  # other finders may call all finders themselves
            return None
        asked_for.add(name)
        try:
            spec = cls.find_as_without_us(name, path, target)
        finally:
            asked_for.discard(name)
        # Another loader may belong to a program that wants to change this module as well.
        if type(getattr(spec, "loader", None)) is importlib.machinery.SourceFileLoader:
            ALTERED[name](spec.loader)
        return spec

    @classmethod
    def find_as_without_us(cls, *what):
        """Return what the other finders find, in order; ``None`` if one of them has only the old interface."""
        for finder in [finder for finder in sys.meta_path if finder is not cls]:
            if not hasattr(finder, "find_spec"):
                return None
            spec = finder.find_spec(*what)
            if spec is not None:
                return spec
        return None


def begin():
    """Start the changes; the configuration ends them, when JupyterLab's own modules have been imported."""
    # Importing the modules creates hundreds of thousands of objects, and all of them stay: collecting garbage again and
    # again would find none.
    undone_later.append(functools.partial(gc.set_threshold, *gc.get_threshold()))
    gc.set_threshold(1_000_000)
    # With this library, jsonschema builds 38 grammars for two formats that JupyterLab does not use.
    sys.modules["rfc3987_syntax"] = None
    sys.meta_path.insert(0, Finder)
    sys.modules[NAME] = sys.modules.pop(__name__)
    importlib.import_module(__name__)


def end():
    """Undo the changes for everything that is imported and run from now on."""
    if sys.modules.get("rfc3987_syntax", ...) is None:
        del sys.modules["rfc3987_syntax"]
    for undo in undone_later:
        undo()
    if "notebook_shim" in sys.modules:
        # JupyterLab imports it as its next step, without our changes, and then reports its errors.
        with contextlib.suppress(Exception):
            importlib.import_module("notebook_shim.nbserver")
    sys.meta_path[:] = [finder for finder in sys.meta_path if finder is not Finder]


def import_what_was_put_off():
    """Make the postponed imports now, because the server answers."""
    for step in done_later:
        with contextlib.suppress(Exception):
            step()


if __name__ == "sitecustomize":
    begin()
