"""Caches the modules that a program imports from an image file when it starts, in one file for the next start.

In a container, each import looks up half a dozen files of the image, which a program in user space decompresses again
in each session: for a thousand modules, half of the start. The cache contains the compiled code of each module. The
code runs as usual, with the same loader, specification and file names as without the cache. The 300 regular expressions
that these modules compile are cached as well; some of them take milliseconds.

Only what cannot have changed is used. The name of the file identifies the image (inode, size and times). The file must
belong to this user, and have been written for the same Python, the same ``sys.path`` and the same finders; all folders
of the path must be on the image's own read-only file system, with nothing mounted inside of them.

``quick_start.py`` loads this module in JupyterLab's Python, and ``execute.py`` in the one that runs a notebook, before
nearly all other modules, so it imports none that Python has not loaded already. A separate process writes the file for
the next start:

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
KEPT = 6  # files, for three images: one for JupyterLab and one for execute.py each
IMAGE = ("/", "/usr")  # on the image's own file system; "/" may be recreated in order to mount something in it
DAMAGED = (OSError, ValueError, EOFError, TypeError, LookupError)


def conditions():
    """Return everything that must be as it was when modules were cached; ``None`` if modules may change at any time."""
    folders = folders_of(sys.path)
    if folders is None or sys.flags.optimize:
        return None
    finders = [getattr(finder, "__qualname__", type(finder).__qualname__) for finder in sys.meta_path]
    return [MAGIC_NUMBER, sys.version, list(sys.path), finders, folders]


def folders_of(path):
    """Return the existing folders of an import path; ``None`` if their contents may change, or are in archives."""
    folders = [folder for folder in path if os.path.isdir(folder)]
    if not folders or any(os.path.isfile(name) or not os.path.isabs(name) for name in path):
        return None
    devices = {os.stat(folder).st_dev for folder in folders}
    # a software tree on a file server may change even if it is mounted read-only
    if len(devices) > 1 or not devices <= {os.stat(place).st_dev for place in IMAGE if os.path.isdir(place)}:
        return None
    if not all(os.statvfs(folder).f_flag & os.ST_RDONLY for folder in folders):
        return None
    inside = tuple(f"{os.path.realpath(folder)}/" for folder in folders)
    with open("/proc/self/mountinfo", "rb") as lines:
        for line in lines:
            point = os.fsdecode(line.split(b" ", 5)[4])
            # Apptainer's --overlay mounts another image over this one
            if point.startswith(inside) or (point == "/" and b"overlay-images" in line):
                return None
    return folders


class Kept:
    """A finder of modules in the cache file.

    ``modules``: by name, the module's file, whether it is a package, and the position of its code in ``content``.
    ``libraries``: shared libraries loaded from the image. ``patterns``: compiled patterns, by pattern and flags.
    """

    def __init__(self, path, libraries, patterns, modules, content):
        self.path, self.libraries, self.patterns, self.modules = path, libraries, patterns, modules
        self.content = content

    def read_ahead(self):
        """Read libraries in the background while modules run; another process decompresses the image."""
        for library in self.libraries:
            try:
                file = os.open(library, os.O_RDONLY)
                os.posix_fadvise(file, 0, 0, os.POSIX_FADV_WILLNEED)
                os.close(file)
            except OSError:
                pass

    def find_spec(self, name, path=None, _target=None):
        """Return a module's specification; ``None`` if it is not cached, or may now be found elsewhere."""
        place = self.modules.get(name)
        if place is None:
            return None
        file, is_package, begin, end = place
        folder = file.rpartition("/")[0]
        if not self.is_first((folder.rpartition("/")[0] if is_package else folder), path):
            return None
        loader = SourceFileLoader(name, file)

        def get_code(_name):
            del loader.get_code  # from now on, the usual method applies
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
        """Whether Python would search this folder before all folders that are new since the modules were cached."""
        if path is not None:
            return next(iter(path), None) == folder
        for asked in sys.path:
            if asked == folder:
                return True
            if asked not in self.path:
                return False
        return False


def kept_in(file, needed):
    """Return the finder for a cache file that was written under these conditions; ``None`` if there is none."""
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
    """Return the finder for a cache file of ``size`` bytes; ``None`` if it was written under other conditions."""
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
    """Return the files of the libraries that this process has loaded, sorted by name."""
    with open("/proc/self/maps", encoding="utf-8", errors="surrogateescape") as lines:
        files = {line.split(None, 5)[-1].rstrip("\n") for line in lines if " r-xp " in line}
    return sorted(file for file in files if ".so" in file)


def pattern_compiler():
    """Return the module with which ``re`` compiles patterns; ``None`` if it is not as expected."""
    import re  # noqa: F401 - nearly the first module that is imported, so it comes from what is kept

    compiler = sys.modules.get("re._compiler") or sys.modules.get("sre_compile")
    return compiler if callable(getattr(compiler, "compile", None)) and hasattr(compiler, "_sre") else None


class Patterns:
    """Returns cached patterns when ``re`` is asked to compile them, and records the others."""

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
        """Let patterns be compiled as usual."""
        if self.compiler is not None:
            self.compiler.compile = self.original


def compiled_patterns(wanted):
    """Return these patterns compiled by ``re``, by type, flags and pattern, except those that cause a warning."""
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
    """The use of the cache by one start: uses the file, or has it written when the server answers."""

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
            except RuntimeError:  # no more threads are allowed
                pass
        self.patterns = Patterns(self.finder.patterns if self.finder else {}) if self.needed else None

    def end(self):
        """Search for modules as usual from now on; have the loaded ones cached if there was no cache."""
        finder, self.finder = self.finder, None
        if self.patterns:
            self.patterns.end()
        if finder:
            sys.meta_path[:] = [other for other in sys.meta_path if other is not finder]
            os.utime(self.file)
        elif self.needed and folders_of(sys.path):
            self.keep()

    def keep(self):
        """Start the process that writes the file."""
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
    """Write the compiled code of these modules to a file of this user; remove the files used longest ago."""
    device, places, codes, place = os.stat(needed[-1][0]).st_dev, {}, [], 0

    def is_in_image(file):
        try:  # files of an overlay have inode numbers of their own
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
    except OSError:  # an incomplete file must not use space in a full home
        remove(new)
        return
    with os.scandir(os.path.dirname(file)) as entries:
        others = sorted((entry.stat().st_mtime, entry.path) for entry in entries if entry.is_file())
    for _, other in others[:-KEPT]:
        remove(other)


def remove(file):
    """Remove a file if it exists: another session may be doing the same."""
    import contextlib  # not needed at the start

    with contextlib.suppress(OSError):
        os.unlink(file)


if __name__ == "__main__":
    os.nice(19)
    write(sys.argv[1], *marshal.load(sys.stdin.buffer))
