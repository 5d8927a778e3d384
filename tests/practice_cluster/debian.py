"""Debian without installing anything: where its mirror is, single packages, and whole root file systems."""

from __future__ import annotations

import inspect
import os
import re
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path

from . import cache
from .errors import ClusterError, MirrorError, NotPossibleHereError

SUITES = ("bookworm", "trixie", "forky", "sid", "stable", "testing", "unstable", "bullseye")
KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
MIRROR_VARIABLE = "PRACTICE_CLUSTER_MIRROR"

# What apt says of a mirror that does not answer or is just being updated, and of packages that do not fit together just
# now. A package that is gone is not among these, nor is what is wrong on this machine.
_OF_THE_MIRROR = re.compile(
    r"E: (Failed to fetch|Unable to fetch|Some index files failed|Unable to correct problems|Unable to satisfy dep)"
)
_OF_THIS_MACHINE = re.compile(r"No space left|enough free space|Read-only file system|Permission denied|Too many open")

# What is not needed in a box is not unpacked; that halves the work of building one.
_QUICK = [
    # A mirror may be a frozen one, whose signatures are older than they promise to become.
    "--aptopt=Acquire::Check-Valid-Until false",
    "--aptopt=APT::Install-Recommends false",
    "--dpkgopt=force-unsafe-io",
    "--dpkgopt=path-exclude=/usr/share/man/*",
    "--dpkgopt=path-exclude=/usr/share/locale/*",
    "--dpkgopt=path-exclude=/usr/share/doc/*",
]


def mirror() -> str:
    """Return the Debian mirror that this machine's own apt uses.

    Raises NotPossibleHereError if it uses none and none is named in the environment, or without Debian's keys.
    """
    if not KEYRING.exists():
        raise NotPossibleHereError("Debian's signatures cannot be checked: apt install debian-archive-keyring.")
    if named := os.environ.get(MIRROR_VARIABLE):
        return named
    for uri, suites in _sources():
        if suites & set(SUITES):
            return uri
    raise NotPossibleHereError(
        f"No Debian mirror found in /etc/apt: name one in the environment variable {MIRROR_VARIABLE}."
    )


def _sources() -> Iterable[tuple[str, set[str]]]:
    """Yield the address and the suites of each source of this machine's apt, in both of apt's formats."""
    apt = Path("/etc/apt")
    for path in sorted((apt / "sources.list.d").glob("*.sources")):
        for stanza in re.split(r"\n\s*\n", path.read_text()):
            fields = dict(re.findall(r"^(\w[\w-]*):[ \t]*(.+)$", stanza, re.MULTILINE))
            if "URIs" in fields and fields.get("Enabled", "yes") != "no":
                yield fields["URIs"].split()[0], set(fields.get("Suites", "").split())
    for path in [apt / "sources.list", *sorted((apt / "sources.list.d").glob("*.list"))]:
        if path.exists():
            for match in re.finditer(r"^deb\s+(?:\[[^]]*]\s+)?(\S+)\s+(\S+)", path.read_text(), re.MULTILINE):
                yield match[1], {match[2]}


def run_logged(argv: Sequence[str], kind: str, *, env: dict[str, str] | None = None, script: str = "") -> None:
    """Run a step of a build with its output in the build's log; `script` is its standard input.

    Raises ClusterError with the last line of the output if the step fails, MirrorError if apt says that it is the
    mirror's fault.
    """
    log = cache.log_file(kind)
    with log.open("a") as output:
        before = output.tell()
        print("$", shlex.join(argv), file=output, flush=True)
        result = subprocess.run(
            argv, input=script, text=True, stdout=output, stderr=subprocess.STDOUT, env=os.environ | (env or {})
        )
    if result.returncode != 0:
        said = log.read_bytes()[before:].decode(errors="replace").strip()
        is_mirror = _OF_THE_MIRROR.search(said) and not _OF_THIS_MACHINE.search(said)
        error = MirrorError if is_mirror else ClusterError
        raise error(f"Building {kind} failed: {said.splitlines()[-1]} (all of the output is in {log}).")


def download(suite: str, packages: Sequence[str], directory: Path, kind: str) -> list[Path]:
    """Fetch packages of a suite into `directory` with apt, whose lists and settings of this machine stay as they are.

    Returns the package files, in the order of `packages`.
    """
    lists = directory / "apt"
    options = _read_lists(suite, lists, kind)
    # apt-get download writes to the working directory and has no option for it.
    fetch = 'cd "$1" && shift && exec apt-get "$@"'
    run_logged(["sh", "-c", fetch, "sh", str(directory), *options, "download", *packages], kind)
    shutil.rmtree(lists)
    return [next(directory.glob(f"{package}_*.deb")) for package in packages]


def _read_lists(suite: str, directory: Path, kind: str) -> list[str]:
    """Fetch the lists of a suite into `directory`; returns the options by which apt reads these and no others."""
    (directory / "lists" / "partial").mkdir(parents=True)
    (directory / "sources.list").write_text(f"deb [signed-by={KEYRING}] {mirror()} {suite} main\n")
    settings = {
        "Dir::Etc::SourceList": directory / "sources.list",
        "Dir::Etc::SourceParts": "/dev/null",
        "Dir::State::Lists": directory / "lists",
        "Dir::State::Status": "/dev/null",  # a newer version that is installed here would be taken for the one to fetch
        "Dir::Cache::pkgcache": "",
        "Dir::Cache::srcpkgcache": "",
        "Acquire::Check-Valid-Until": "false",
        "APT::Sandbox::User": "root",
        "APT::Update::Error-Mode": "any",  # otherwise a mirror that does not answer is only warned of
    }
    options = [word for name, value in settings.items() for word in ("-o", f"{name}={value}")]
    run_logged(["apt-get", *options, "update"], kind)
    return options


def versions(suite: str, pattern: str, kind: str) -> dict[str, str]:
    """Ask the mirror for the packages of a suite whose whole name matches `pattern`, and return their versions."""
    with tempfile.TemporaryDirectory() as name:
        _read_lists(suite, Path(name), kind)
        # apt's own questions would first index all the packages, for seconds
        lists = [str(path) for path in (Path(name) / "lists").glob("*_Packages*")]
        shown = subprocess.run(["/usr/lib/apt/apt-helper", "cat-file", *lists], capture_output=True, text=True)
    found = re.findall(rf"^Package: ({pattern})\n(?:.+\n)*?Version: (\S+)$", shown.stdout, re.MULTILINE)
    return {match[0]: match[-1] for match in found}


def unpack(packages: Iterable[Path], directory: Path, kind: str) -> None:
    """Unpack package files into `directory` without installing them."""
    for package in packages:
        run_logged(["dpkg", "-x", str(package), str(directory)], kind)


def make_root(directory: Path, sources: Sequence[str], packages: Sequence[str], tools: Path, kind: str) -> None:
    """Fill `directory` with a Debian system: the first of the suites `sources`, completed from the others."""
    lines = [f"deb {mirror()} {suite} main" for suite in sources]
    default = f"--aptopt=APT::Default-Release {sources[0]}"
    argv = ["mmdebstrap", "--mode=root", "--variant=apt", *_QUICK, *_proxy(), default]
    argv += [f"--include={','.join(packages)}", sources[0], str(directory), *lines]
    run_logged(argv, kind, env={"PATH": f"{tools / 'usr/bin'}:{os.environ.get('PATH', os.defpath)}"})


def recipe() -> str:
    """Return what decides how `make_root` fills a directory, apart from its arguments."""
    return inspect.getsource(make_root) + "\n".join(_QUICK)


def _proxy() -> list[str]:
    """Return this machine's proxy for apt as options, because mmdebstrap does not read apt's settings."""
    found = subprocess.run(["apt-config", "dump", "Acquire"], capture_output=True, text=True).stdout
    pairs = re.findall(r'^(Acquire::https?::Proxy) "(.+)";$', found, re.MULTILINE)
    return [f"--aptopt={name} {value}" for name, value in pairs]
