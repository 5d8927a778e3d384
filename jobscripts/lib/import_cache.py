"""The modules that a program imports as it starts from an image in one file, kept in a file for the next start.

In a container, each import asks for half a dozen files of the image, which a program in user space unpacks anew in
each session: for a thousand modules, half of the start. Kept is what Python has compiled of each. It is run as usual,
and a module has the same loader, specification and file names as without. So are the regular expressions that these
modules compile as they run: 300, of which some take milliseconds.

Only what cannot have changed counts. The file's name says which image it is of (inode, size and times). It is used if
it belongs to this user, for the same Python, the same ``sys.path`` and the same finders, where all folders of the path
are on the image's own file system, which nobody can write to, and nothing is mounted inside of them.

``quick_start.py`` loads this file in JupyterLab's own Python, and ``execute.py`` in that which runs a notebook, before
nearly all other modules, so it imports none that Python has not loaded by itself. A process of its own writes what the
next start uses:

    python3 -I -S -B import_cache.py FILE           with conditions, sys.path and modules on standard input
"""

import _thread
import marshal
import os
import sys
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from importlib.util import MAGIC_NUMBER, cache_from_source

FORMAT = b"notebook-launcher imports 2\n"
MOST_BYTES = 256 * 1024 * 1024
KEPT = 6  # files, of three images: for JupyterLab, and for what runs notebooks
IMAGE = ("/", "/usr")  # these are the image's own; the first one may be made anew, to mount something in it
DAMAGED = (OSError, ValueError, EOFError, TypeError, LookupError)


def conditions():
    """Return all that must be the same as when modules were kept; ``None`` where they may change any time."""
    folders = folders_of(sys.path)
    if folders is None or sys.flags.optimize:
        return None
    finders = [getattr(finder, "__qualname__", type(finder).__qualname__) for finder in sys.meta_path]
    return [MAGIC_NUMBER, sys.version, list(sys.path), finders, folders]


def folders_of(path):
    """Return those of an import path that exist; ``None`` if what is in them may change, or is in archives."""
    folders = [folder for folder in path if os.path.isdir(folder)]
    if not folders or any(os.path.isfile(name) or not os.path.isabs(name) for name in path):
        return None
    devices = {os.stat(folder).st_dev for folder in folders}
    # a software tree on a server that is mounted read-only changes all the same
    if len(devices) > 1 or not devices <= {os.stat(place).st_dev for place in IMAGE if os.path.isdir(place)}:
        return None
    if not all(os.statvfs(folder).f_flag & os.ST_RDONLY for folder in folders):
        return None
    inside = tuple(f"{os.path.realpath(folder)}/" for folder in folders)
    with open("/proc/self/mountinfo", "rb") as lines:
        for line in lines:
            point = os.fsdecode(line.split(b" ", 5)[4])
            # Apptainer's --overlay lays another image over this one
            if point.startswith(inside) or (point == "/" and b"overlay-images" in line):
                return None
    return folders


class Kept:
    """Finds modules as Python does, but in one file.

    ``modules``: by name their files, whether they are packages, and the places of what is kept of them in ``content``.
    ``libraries``: what else is loaded from the image. ``patterns``: by pattern and flags what is compiled of them.
    """

    def __init__(self, path, libraries, patterns, modules, content):
        self.path, self.libraries, self.patterns, self.modules = path, libraries, patterns, modules
        self.content = content

    def read_ahead(self):
        """Have libraries read while modules run; who unpacks the image is another process."""
        for library in self.libraries:
            try:
                file = os.open(library, os.O_RDONLY)
                os.posix_fadvise(file, 0, 0, os.POSIX_FADV_WILLNEED)
                os.close(file)
            except OSError:
                pass

    def find_spec(self, name, path=None, _target=None):
        """Return a module's specification, or nothing if it is not kept, or may be found elsewhere now."""
        place = self.modules.get(name)
        if place is None:
            return None
        file, is_package, begin, end = place
        folder = file.rpartition("/")[0]
        if not self.is_first((folder.rpartition("/")[0] if is_package else folder), path):
            return None
        loader = SourceFileLoader(name, file)

        def get_code(_name):
            del loader.get_code  # from now on, as usual
            try:
                return marshal.loads(os.pread(self.content.fileno(), end - begin, begin))
            except DAMAGED:
                return loader.get_code(name)

        loader.get_code = get_code
        spec = ModuleSpec(name, loader, origin=file, is_package=is_package)
        spec.has_location, spec.cached = True, cache_from_source(file)
        if is_package:
            spec.submodule_search_locations = [folder]
        return spec

    def is_first(self, folder, path):
        """Whether Python would look into this folder before all that were not there when the modules were kept."""
        if path is not None:
            return next(iter(path), None) == folder
        for asked in sys.path:
            if asked == folder:
                return True
            if asked not in self.path:
                return False
        return False


def kept_in(file, needed):
    """Return the finder for what is kept in a file under these conditions, or nothing."""
    content = open(file, "rb", buffering=0)  # noqa: SIM115 - modules are read from it one by one
    kept = None
    try:
        about = os.fstat(content.fileno())
        if about.st_uid == os.geteuid() and not about.st_mode & 0o022 and about.st_size <= MOST_BYTES:
            os.posix_fadvise(content.fileno(), 0, 0, os.POSIX_FADV_WILLNEED)
            kept = read_kept(content, about.st_size, needed)
    finally:
        if kept is None:
            content.close()
    return kept


def read_kept(content, size, needed):
    """Return the finder for what this file of so many bytes keeps under these conditions, or nothing."""
    start = len(FORMAT) + 8
    head = content.read(start)
    end = start + int.from_bytes(head[len(FORMAT) :], "big")
    if head[: len(FORMAT)] != FORMAT or end > size:
        return None
    noted, codes, path, libraries, patterns, modules = marshal.loads(content.read(end - start))
    if noted != needed or codes != size - end:
        return None
    places = {name: (*what, end + begin, end + stop) for name, (*what, begin, stop) in modules.items()}
    return Kept(path, libraries, patterns, places, content)


def loaded_libraries():
    """Return the files of libraries that this process has loaded, in the order of their names."""
    with open("/proc/self/maps", encoding="utf-8", errors="surrogateescape") as lines:
        files = {line.split(None, 5)[-1].rstrip("\n") for line in lines if " r-xp " in line}
    return sorted(file for file in files if ".so" in file)


def pattern_compiler():
    """Return the module by which ``re`` compiles patterns, if it is as expected; else nothing."""
    import re  # noqa: F401 - nearly the first module that is imported, so it comes from what is kept

    compiler = sys.modules.get("re._compiler") or sys.modules.get("sre_compile")
    return compiler if callable(getattr(compiler, "compile", None)) and hasattr(compiler, "_sre") else None


class Patterns:
    """Answers what asks ``re`` to compile a pattern that is kept, and notes the others."""

    def __init__(self, kept):
        self.noted, self.compiler = [], pattern_compiler()
        if self.compiler is None:
            return
        self.original = original = self.compiler.compile
        build, note = self.compiler._sre.compile, self.noted.append

        def compile_as_kept(pattern, flags=0):
            if type(pattern) not in (str, bytes):
                return original(pattern, flags)
            key = (type(pattern) is bytes, int(flags), pattern)
            found = kept.get(key)
            if found is None:
                note(key)
                return original(pattern, flags)
            flags, code, groups, names, indices = found
            return build(pattern, flags, list(memoryview(code).cast("I")), groups, names, indices)

        self.compiler.compile = compile_as_kept

    def end(self):
        """Have patterns compiled as usual."""
        if self.compiler is not None:
            self.compiler.compile = self.original


def compiled_patterns(wanted):
    """Return what ``re`` makes of these patterns, by type, flags and pattern; not of those about which it warns."""
    import re
    import types
    import warnings
    from array import array

    compiler, kept, calls = pattern_compiler(), {}, []
    if compiler is None or array("I").itemsize != compiler._sre.CODESIZE:
        return kept

    def spy(pattern, flags, code, groups, names, indices):
        calls[:] = [(flags, array("I", code).tobytes(), groups, dict(names), tuple(indices))]
        return compiler_sre.compile(pattern, flags, code, groups, names, indices)

    compiler_sre = compiler._sre
    compiler._sre = types.SimpleNamespace(**{**vars(compiler_sre), "compile": spy})
    warnings.simplefilter("error")
    for is_bytes, flags, pattern in wanted:
        if not flags & re.DEBUG:
            try:
                compiler.compile(pattern, flags)
                kept[is_bytes, flags, pattern] = calls.pop()
            except Exception:  # noqa: S112 - what is wrong with it is said where it is used
                continue
    compiler._sre = compiler_sre
    return kept


class Imports:
    """What a start does with the file: uses it, or has it written when the server answers."""

    def __init__(self, file):
        self.file, self.needed, self.finder = file, None, None
        try:
            self.needed = conditions()
            self.finder = self.needed and kept_in(file, self.needed)
        except DAMAGED:
            pass
        if self.finder and PathFinder in sys.meta_path:
            sys.meta_path.insert(sys.meta_path.index(PathFinder), self.finder)
            try:  # noqa: SIM105 - contextlib is not loaded yet
                _thread.start_new_thread(self.finder.read_ahead, ())
            except RuntimeError:  # no more threads are allowed here
                pass
        self.patterns = Patterns(self.finder.patterns if self.finder else {}) if self.needed else None

    def end(self):
        """Look for modules as usual from now on; have those that there are kept, if none were."""
        finder, self.finder = self.finder, None
        if self.patterns:
            self.patterns.end()
        if finder:
            sys.meta_path[:] = [other for other in sys.meta_path if other is not finder]
            os.utime(self.file)
        elif self.needed and folders_of(sys.path):
            self.keep()

    def keep(self):
        """Have the file written."""
        import subprocess

        modules = []
        for name, module in list(sys.modules.items()):
            spec = getattr(module, "__spec__", None)
            if type(getattr(spec, "loader", None)) is SourceFileLoader and spec.name == name and spec.has_location:
                modules.append((name, spec.origin, spec.submodule_search_locations is not None))
        patterns = self.patterns.noted if self.patterns else []
        wanted = marshal.dumps((self.needed, list(sys.path), loaded_libraries(), patterns, modules))
        subprocess.run([sys.executable, "-I", "-S", "-B", __file__, self.file], input=wanted, check=False)


def write(file, needed, path, libraries, patterns, modules):
    """Keep what Python has compiled of these modules, in a file for this user alone; remove those used longest ago."""
    device, places, codes, place = os.stat(needed[-1][0]).st_dev, {}, [], 0

    def is_in_image(file):
        try:  # an overlay's files have numbers of their own
            return os.stat(os.path.dirname(file)).st_dev == device
        except OSError:
            return False

    own = loaded_libraries()  # loaded before the cache is read
    libraries = [library for library in libraries if library not in own and is_in_image(library)]
    for name, origin, is_package in modules:
        try:
            if not is_in_image(origin):
                continue
            code = marshal.dumps(SourceFileLoader(name, origin).get_code(name))
        except (ImportError, SyntaxError, *DAMAGED):
            continue
        places[name] = (origin, is_package, place, place + len(code))
        codes.append(code)
        place += len(code)
    about = marshal.dumps((needed, place, path, libraries, compiled_patterns(patterns), places))
    new = f"{file}.new.{os.uname().nodename}.{os.getpid()}"
    try:
        with open(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as out:
            out.writelines([FORMAT, len(about).to_bytes(8, "big"), about, *codes])
        os.replace(new, file)
    except OSError:  # no half of it may fill a full home any further
        remove(new)
        return
    with os.scandir(os.path.dirname(file)) as entries:
        others = sorted((entry.stat().st_mtime, entry.path) for entry in entries if entry.is_file())
    for _, other in others[:-KEPT]:
        remove(other)


def remove(file):
    """Remove a file, if it is there: another session may do the same."""
    import contextlib  # not needed at the start

    with contextlib.suppress(OSError):
        os.unlink(file)


if __name__ == "__main__":
    os.nice(19)
    write(sys.argv[1], *marshal.load(sys.stdin.buffer))
