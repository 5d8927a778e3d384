"""What the cluster is made of and how each part is built; see `artefacts` for the whole list."""

from __future__ import annotations

import contextlib
import hashlib
import importlib
import inspect
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from . import boxes, cache, debian, processes
from .cache import Artefact
from .errors import ClusterError, NotPossibleHereError
from .layout import USERS, Bind, BoxPlan, Generation

HERE = Path(__file__).resolve().parent
CHECKOUT = HERE.parents[1]

BOX_PACKAGES = (
    *("slurmctld", "slurmd", "slurm-client", "slurmdbd", "mariadb-server", "munge", "libpam-slurm"),
    *("openssh-server", "openssh-client", "libpam-google-authenticator", "lmod", "python3", "python3-venv", "tcsh"),
    *("iproute2", "procps", "ca-certificates", "curl", "git", "less", "nano", "adduser", "tar"),
    # what Apptainer wants to have around
    *("squashfuse", "fuse-overlayfs", "uidmap", "squashfs-tools", "fuse2fs", "gocryptfs"),
    # the other ways to run images
    *("charliecloud-runtime", "podman", "crun"),
)
# Another scheduler, and a library that the boxes lack. Newer Debians do not have it any more.
GRID_ENGINE_PACKAGES = (
    "gridengine-master",
    "gridengine-exec",
    "gridengine-client",
    "gridengine-common",
    "libjemalloc2",
)
IMAGE_SUITE, IMAGE_PYTHON = "trixie", "3.13"
IMAGE_PACKAGES = ("python3", "python3-venv", "ca-certificates", "procps")
LAB_REQUIREMENTS = ("jupyterlab", "ipykernel")

# Used where there is no pyproject.toml yet, or no reader for it (Python 3.10).
LAUNCHER_REQUIREMENTS = (
    *("paramiko", "sshtunnel", "rich", "pydantic", "platformdirs", "click"),
    "tomli; python_version < '3.11'",
)

IMAGE_DEFINITION = """\
Bootstrap: localimage
From: /build/base

%files
    /build/wheels /opt/wheels

%post
    python3 -m venv /opt/jupyterlab
    /opt/jupyterlab/bin/pip install --quiet --no-cache-dir --no-index --find-links /opt/wheels {requirements}
    rm -rf /opt/wheels

%environment
    export PATH=/opt/jupyterlab/bin:$PATH LC_ALL=C.UTF-8

%runscript
    exec jupyter lab "$@"
"""
IMAGE_NAME = "localhost/jupyterlab:4"
IMAGE_PATH = "/opt/jupyterlab/bin:/usr/local/bin:/usr/bin:/bin"

# The image's files once more, as the store in which Podman finds them and as the directory that Charliecloud runs: they
# are the same files. Whose they were is forgotten: an ordinary user makes it, and others use it.
UNPACK_IMAGE = """\
set -euo pipefail
cd /build/out
apptainer build --sandbox /tmp/tree /build/image/jupyterlab.sif
mkdir /tmp/tree/ch
printf 'PATH=%s\\nLC_ALL=C.UTF-8\\n' {path} >/tmp/tree/ch/environment
tar --owner=0 --group=0 -C /tmp/tree -cf - . |
    /usr/bin/podman --root "$PWD/store" --runroot /tmp/run --storage-driver overlay import \\
    --change "ENV PATH={path}" --change "ENV LC_ALL=C.UTF-8" - {name}
/usr/bin/podman unshare chmod -R a+rX store
"""
QUICK_COMPRESSION = "-comp zstd -Xcompression-level 3"

# Makes the read-only checkout importable, with the bytecode that was made of it: without, every start of the launcher
# would compile it again, and measured start-up times would be wrong. What was changed since is compiled each time.
LAUNCHER_IN_BOX, CHECKOUT_IN_BOX, BYTECODE_IN_BOX = "/opt/launcher", "/opt/notebook-launcher", "/opt/bytecode"
CHECKOUT_LOADER = f'''\
"""Import the launcher from the read-only checkout, with the bytecode that was made of it."""
import sys
from importlib.machinery import FileFinder, SourceFileLoader

CHECKOUT = "{CHECKOUT_IN_BOX}"


class CheckoutLoader(SourceFileLoader):
    def get_code(self, fullname):
        before, sys.pycache_prefix = sys.pycache_prefix, "{BYTECODE_IN_BOX}"
        try:
            return super().get_code(fullname)
        finally:
            sys.pycache_prefix = before


def finder(path):
    if path != CHECKOUT and not path.startswith(CHECKOUT + "/"):
        raise ImportError
    return FileFinder(path, (CheckoutLoader, [".py"]))


sys.path_hooks.insert(0, finder)
sys.path.append(CHECKOUT)
'''


@dataclass(frozen=True)
class Parts:
    """The artefacts that a cluster of one generation is put together from."""

    rootfs: Artefact
    launcher: Artefact
    bytecode: Artefact
    lab: Artefact
    lab_wheels: Artefact
    image: Artefact
    image_without_jupyter: Artefact
    image_unpacked: Artefact
    environment_modules: Artefact
    grid_engine: Artefact

    def all(self) -> list[Artefact]:
        """Return the artefacts as a list, the slowest to build first."""
        return [
            *(self.rootfs, self.image, self.image_without_jupyter, self.lab, self.launcher),
            *(self.image_unpacked, self.environment_modules, self.grid_engine, self.lab_wheels, self.bytecode),
        ]


def artefacts(generation: Generation) -> Parts:
    """Return everything a cluster of this generation needs, built or not."""
    tools = _artefact("tools", _make_tools)
    rootfs = _rootfs(generation, tools)
    base = image_base(IMAGE_SUITE, IMAGE_PACKAGES)
    image_wheels = _wheels("lab", LAB_REQUIREMENTS, IMAGE_PYTHON)
    lab_wheels = _wheels("lab", LAB_REQUIREMENTS, generation.python)
    launcher_wheels = _wheels("launcher", launcher_requirements(), generation.python)
    launcher = _venv("launcher", LAUNCHER_IN_BOX, launcher_requirements(), launcher_wheels, rootfs)
    image = _image(base, image_wheels, rootfs)
    return Parts(
        rootfs=rootfs,
        launcher=launcher,
        bytecode=_bytecode(launcher, generation.python, rootfs),
        lab=_venv("lab", "/sw/jupyterlab", LAB_REQUIREMENTS, lab_wheels, rootfs),
        lab_wheels=lab_wheels,
        image=image,
        image_without_jupyter=_image_without_jupyter(base, rootfs),
        image_unpacked=_image_unpacked(image, rootfs),
        environment_modules=_artefact(
            f"environment-modules-{generation.slurm}", _make_environment_modules, generation.suite
        ),
        grid_engine=_artefact("grid-engine", _make_grid_engine, GRID_ENGINE_PACKAGES),
    )


def _artefact(
    kind: str,
    make: Callable[..., None],
    *details: object,
    inputs: tuple[Artefact, ...] = (),
    tools: tuple[Artefact, ...] = (),
    also: Sequence[object] = (),
) -> Artefact:
    """Return an artefact whose recipe is the code of `make`, its `details` (arguments), and `also` other text.

    `make` is called with the directory to fill, the artefact's kind, the paths of inputs and tools, and `details`.
    """
    recipe = "\0".join([inspect.getsource(make), *map(repr, details), *map(str, also)])

    def fill(directory: Path) -> None:
        make(directory, kind, *(part.path for part in (*inputs, *tools)), *details)

    return Artefact(kind, recipe, fill, inputs, tools)


# ---- programs and root file systems from Debian --------------------------------------------------------------


def _make_tools(directory: Path, kind: str) -> None:
    """Fetch the programs that build, so that nothing has to be installed on the host."""
    packages = debian.download("bookworm", ["mmdebstrap", "patchelf"], directory, kind)
    debian.unpack(packages, directory, kind)


def _rootfs(generation: Generation, tools: Artefact) -> Artefact:
    people = tuple(f"{user.name}:{user.uid}:{user.shell}:{user.password or ''}" for user in USERS.values())
    script = (HERE / "rootfs.sh").read_text()
    packages = (*BOX_PACKAGES, generation.libslurm)
    kind = f"rootfs-{generation.slurm}"
    also = [script, debian.recipe()]
    if generation.suite == "trixie":
        return _artefact(kind, _make_rootfs_of_trixie, packages, people, tools=(tools,), also=also)
    if generation.is_rolling:
        also += generation.versions
        return _artefact(kind, _make_rootfs_of_sid, packages, people, tools=(tools,), also=also)
    also.append(inspect.getsource(_apptainer))
    return _artefact(kind, _make_rootfs_of_bookworm, packages, people, tools=(tools,), also=also)


def _make_rootfs_of_trixie(
    directory: Path, kind: str, tools: Path, packages: Sequence[str], people: Sequence[str]
) -> None:
    """Apptainer is in sid only, but everything it needs is in trixie."""
    debian.make_root(directory, ["trixie", "sid"], [*packages, "apptainer"], tools, kind)
    _customise(directory, kind, people)


def _make_rootfs_of_bookworm(
    directory: Path, kind: str, tools: Path, packages: Sequence[str], people: Sequence[str]
) -> None:
    debian.make_root(directory, ["bookworm"], packages, tools, kind)
    _apptainer(directory, kind, tools)
    _customise(directory, kind, people)


def _make_rootfs_of_sid(
    directory: Path, kind: str, tools: Path, packages: Sequence[str], people: Sequence[str]
) -> None:
    debian.make_root(directory, ["sid"], [*packages, "apptainer"], tools, kind)
    _customise(directory, kind, people)


def _customise(directory: Path, kind: str, people: Sequence[str]) -> None:
    script = (HERE / "rootfs.sh").read_text()
    debian.run_logged(["chroot", str(directory), "/bin/bash", "-s", *people], kind, script=script)


def _apptainer(root: Path, kind: str, tools: Path) -> None:
    """Put sid's Apptainer into an older Debian, with sid's C library beside it: it needs a newer one."""
    triplet = f"{platform.machine()}-linux-gnu"
    loader = "ld-linux-x86-64.so.2" if platform.machine() == "x86_64" else "ld-linux-aarch64.so.1"
    libraries = "/opt/apptainer-libraries"
    with tempfile.TemporaryDirectory(dir=root.parent, prefix=".building-") as name:
        work = Path(name)
        wanted = ["apptainer", "libc6", "libseccomp2", "libsqlite3-0"]
        apptainer, *others = debian.download("sid", wanted, work, kind)
        debian.unpack([apptainer], work / "apptainer", kind)
        debian.unpack(others, work / "libraries", kind)
        target = work / "apptainer" / libraries.lstrip("/")
        target.mkdir(parents=True)
        for path in (work / "libraries").rglob("*.so*"):
            if path.parent.name == triplet:
                shutil.copy2(path, target / path.name, follow_symlinks=False)
        for program in ("usr/bin/apptainer", f"usr/lib/{triplet}/apptainer/bin/starter"):
            # An RPATH, because a RUNPATH does not count for the libraries of libraries.
            change = ["--set-interpreter", f"{libraries}/{loader}", "--force-rpath", "--set-rpath", libraries]
            program_path = str(work / "apptainer" / program)
            debian.run_logged([str(tools / "usr/bin/patchelf"), *change, program_path], kind)
        # tar and not cp, because /lib and the like are links in the target and must stay links.
        copy = 'tar -C "$1" -cf - . | tar -C "$2" --keep-directory-symlink -xf -'
        debian.run_logged(["sh", "-c", copy, "sh", str(work / "apptainer"), str(root)], kind)


def _make_environment_modules(directory: Path, kind: str, suite: str) -> None:
    """Unpack what Debian does not allow beside Lmod; all it needs are things that Lmod needs as well."""
    with tempfile.TemporaryDirectory(dir=directory.parent, prefix=".building-") as name:
        debian.unpack(debian.download(suite, ["environment-modules"], Path(name), kind), directory, kind)
    for unused in ("usr/share/doc", "usr/share/man"):
        cache.remove(directory / unused)


def _make_grid_engine(directory: Path, kind: str, packages: Sequence[str]) -> None:
    """Unpack Grid Engine beside the boxes' own programs."""
    with tempfile.TemporaryDirectory(dir=directory.parent, prefix=".building-") as name:
        debian.unpack(debian.download("bookworm", packages, Path(name), kind), directory, kind)
    for unused in ("usr/share/doc", "usr/share/man", "usr/share/gridengine/Qmon", "etc"):
        cache.remove(directory / unused)


def image_base(suite: str, packages: Sequence[str]) -> Artefact:
    """Return the Debian on which images stand."""
    kind = "image-base" if suite == IMAGE_SUITE else f"image-base-{suite}"
    tools = _artefact("tools", _make_tools)
    return _artefact(kind, _make_image_base, suite, packages, tools=(tools,), also=[debian.recipe()])


def _make_image_base(directory: Path, kind: str, tools: Path, suite: str, packages: Sequence[str]) -> None:
    debian.make_root(directory, [suite], packages, tools, kind)
    # An ordinary user builds the image: device nodes cannot be copied, everything else must be readable.
    for device in (directory / "dev").iterdir():
        cache.remove(device)
    debian.run_logged(["chmod", "-R", "a+rX", str(directory)], kind)


# ---- Python packages -----------------------------------------------------------------------------------------


def launcher_requirements() -> tuple[str, ...]:
    """Return what the launcher needs at run time, from the checkout's pyproject.toml."""
    try:
        tomllib = importlib.import_module("tomllib")
        project = tomllib.loads((CHECKOUT / "pyproject.toml").read_text())
        return tuple(project["project"]["dependencies"])
    except (ModuleNotFoundError, FileNotFoundError, KeyError):
        return LAUNCHER_REQUIREMENTS


def _wheels(name: str, requirements: Sequence[str], python: str) -> Artefact:
    return _artefact(f"wheels-{name}-{python}", _make_wheels, tuple(requirements), python)


def _make_wheels(directory: Path, kind: str, requirements: Sequence[str], python: str) -> None:
    """Download with the host's pip, which knows how to reach a package index; boxes have no way out."""
    machine = platform.machine()
    argv = [*_pip(), "download", "--quiet", "--dest", str(directory), "--only-binary=:all:"]
    argv += ["--python-version", python, "--implementation", "cp"]
    for policy in ("manylinux_2_28", "manylinux_2_17", "manylinux2014"):
        argv += ["--platform", f"{policy}_{machine}"]
    debian.run_logged([*argv, *requirements], kind)


def _pip() -> list[str]:
    for python in (sys.executable, "python3", "/usr/bin/python3"):
        argv = [python, "-m", "pip"]
        with contextlib.suppress(OSError):
            if subprocess.run([*argv, "--version"], capture_output=True).returncode == 0:
                return argv
    raise NotPossibleHereError("The practice cluster needs pip on this machine: apt install python3-pip.")


def _venv(name: str, target: str, requirements: Sequence[str], wheels: Artefact, rootfs: Artefact) -> Artefact:
    python = wheels.kind.rpartition("-")[2]
    files = {"practice_checkout.py": CHECKOUT_LOADER} if name == "launcher" else {}
    return _artefact(
        *(f"venv-{name}-{python}", _make_venv, target, tuple(requirements), files),
        inputs=(wheels,),
        tools=(rootfs,),
    )


def _make_venv(
    directory: Path,
    kind: str,
    wheels: Path,
    rootfs: Path,
    target: str,
    requirements: Sequence[str],
    modules: dict[str, str],
) -> None:
    """Install into a virtual environment at the path where it will be used, with the boxes' own Python.

    `modules` are files for its site-packages, each imported whenever Python starts.
    """
    binds = [Bind(directory, target, writable=True), Bind(wheels, "/build/wheels")]
    with _builder(rootfs, binds, kind) as run:
        run("root", ["python3", "-m", "venv", target])
        pip = [f"{target}/bin/pip", "install", "--quiet", "--root-user-action=ignore", "--no-cache-dir"]
        run("root", [*pip, "--no-index", "--find-links", "/build/wheels", *requirements])
    packages = next(directory.glob("lib/python3*/site-packages"))
    for name, text in modules.items():
        (packages / name).write_text(text)
        (packages / name).with_suffix(".pth").write_text(f"import {Path(name).stem}\n")


def _bytecode(launcher: Artefact, python: str, rootfs: Artefact) -> Artefact:
    sources = sorted((CHECKOUT / "notebook_launcher").rglob("*.py"))
    digest = hashlib.sha256(b"\0".join(path.read_bytes() for path in sources)).hexdigest()
    return _artefact(f"bytecode-{python}", _make_bytecode, digest, inputs=(launcher,), tools=(rootfs,))


def _make_bytecode(directory: Path, kind: str, launcher: Path, rootfs: Path, digest: str) -> None:
    """Compile the checkout's launcher; Python holds each file against the hash of its source, not against its date.

    `digest`, that of all sources, names the artefact: another clone of the same has the same bytecode.
    """
    binds = [Bind(launcher, LAUNCHER_IN_BOX), Bind(CHECKOUT, CHECKOUT_IN_BOX)]
    binds.append(Bind(directory, BYTECODE_IN_BOX, writable=True))
    argv = [f"{LAUNCHER_IN_BOX}/bin/python", "-X", f"pycache_prefix={BYTECODE_IN_BOX}", "-m", "compileall", "-q"]
    with _builder(rootfs, binds, kind) as run:
        run("root", [*argv, "--invalidation-mode", "checked-hash", f"{CHECKOUT_IN_BOX}/notebook_launcher"])


# ---- container images ----------------------------------------------------------------------------------------


def _image(base: Artefact, wheels: Artefact, rootfs: Artefact) -> Artefact:
    definition = IMAGE_DEFINITION.format(requirements=" ".join(LAB_REQUIREMENTS))
    also = [inspect.getsource(_apptainer_build), QUICK_COMPRESSION]
    return _artefact("image-jupyterlab", _make_image, definition, inputs=(base, wheels), tools=(rootfs,), also=also)


def _make_image(directory: Path, kind: str, base: Path, wheels: Path, rootfs: Path, definition: str) -> None:
    (directory / "jupyterlab.def").write_text(definition)
    _apptainer_build(directory, kind, rootfs, [Bind(base, "/build/base"), Bind(wheels, "/build/wheels")])


def _image_without_jupyter(base: Artefact, rootfs: Artefact) -> Artefact:
    also = [inspect.getsource(_apptainer_build), QUICK_COMPRESSION]
    return _artefact("image-no-jupyter", _make_image_without_jupyter, inputs=(base,), tools=(rootfs,), also=also)


def _make_image_without_jupyter(directory: Path, kind: str, base: Path, rootfs: Path) -> None:
    (directory / "no-jupyter.def").write_text("Bootstrap: localimage\nFrom: /build/base\n")
    _apptainer_build(directory, kind, rootfs, [Bind(base, "/build/base")])


def _image_unpacked(image: Artefact, rootfs: Artefact) -> Artefact:
    script = UNPACK_IMAGE.format(path=IMAGE_PATH, name=IMAGE_NAME)
    return _artefact("image-unpacked", _make_image_unpacked, script, inputs=(image,), tools=(rootfs,))


def _make_image_unpacked(directory: Path, kind: str, image: Path, rootfs: Path, script: str) -> None:
    user = USERS["alice"]
    os.chown(directory, user.uid, user.uid)
    with _builder(rootfs, [Bind(directory, "/build/out", writable=True), Bind(image, "/build/image")], kind) as run:
        run("root", ["install", "-d", "-o", user.name, str(user.home)])
        run(user.name, ["bash", "-c", script])
    debian.run_logged(["chown", "-R", "0:0", str(directory)], kind)
    # The layer's files, by a name that does not change.
    (directory / "tree").symlink_to(next(directory.glob("store/overlay/*/diff/opt")).parent.relative_to(directory))


def _apptainer_build(directory: Path, kind: str, rootfs: Path, binds: Sequence[Bind]) -> None:
    """Turn the NAME.def in `directory` into NAME.sif beside it.

    As an ordinary user: as root, Apptainer asks for every capability there is, and virtual machines lack some.
    """
    definition = next(directory.glob("*.def"))
    user = USERS["alice"]
    os.chown(directory, user.uid, user.uid)
    result = f"{definition.stem}.sif"
    with _builder(rootfs, [Bind(directory, "/build/out", writable=True), *binds], kind) as run:
        run("root", ["install", "-d", "-o", user.name, str(user.home)])
        build = ["apptainer", "build", "--mksquashfs-args", QUICK_COMPRESSION]
        run(user.name, [*build, f"/build/out/{result}", f"/build/out/{definition.name}"])
    if not (directory / result).exists():
        raise ClusterError(f"Apptainer made no {result}; its output is in {cache.log_file(kind)}.")
    for path in (directory, *directory.iterdir()):
        os.chown(path, 0, 0)
    (directory / result).chmod(0o755)


@contextlib.contextmanager
def _builder(rootfs: Path, binds: Sequence[Bind], kind: str) -> Iterator[Callable[[str, Sequence[str]], None]]:
    """Bring up a box without network for a build; yields what runs a command in it (user, argv)."""
    with tempfile.TemporaryDirectory(dir=cache.cache_directory(), prefix=".building-") as name:
        state = Path(name)
        pid = boxes.start(BoxPlan("builder", rootfs, state, list(binds)), mark=state)
        try:
            yield partial(_run_in_builder, pid, kind)
        finally:
            processes.end_all(state, [pid])


def _run_in_builder(pid: int, kind: str, user: str, argv: Sequence[str]) -> None:
    debian.run_logged(boxes.argv(pid, user, argv, login=False), kind)
