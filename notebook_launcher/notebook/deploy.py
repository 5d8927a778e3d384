"""Notebooks into the user's folder on the cluster, a course's or the launcher's, and never over the user's own work."""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from notebook_launcher.core.errors import HostCommandFailed, LauncherError
from notebook_launcher.core.events import launch as events
from notebook_launcher.hosts.base import Host
from notebook_launcher.profiles.courses import kept_course
from notebook_launcher.profiles.models import CourseProfile
from notebook_launcher.session.context import Stage, View
from notebook_launcher.session.record import Site, json_object

WITHIN = 300.0  # seconds for the notebooks to get there over a slow line


def bring_notebooks(stage: Stage, course: CourseProfile) -> None:
    """Bring a course's notebooks to the cluster, and tell. Where that fails it is told, and nothing else happens."""
    if not course.notebooks:
        return
    folder = folder_of(course, stage.site)
    try:
        bundle = Bundle("the course's notebooks", folder, kept_course(course.name).files().notebooks,
                        f"courses/{course.name}.json", f"{stage.clock():%Y-%m-%d}")  # fmt: skip
        brought = bring(stage.host, stage.site, bundle, stage.view)
    except LauncherError as error:
        why = f" {error.why}" if error.why else ""
        shown = shown_folder(folder, stage.site)
        stage.view.show(events.Noted(f"The course's notebooks were not brought to {shown}: {error.what}{why}"))
    else:
        stage.view.show(brought)


def folder_of(course: CourseProfile, site: Site) -> str:
    """Return the student's folder for a course on the cluster."""
    return in_home(course.folder or f"~/{course.name}", site)


def in_home(folder: str, site: Site) -> str:
    """Return the path of a folder on a host; it begins at the home there."""
    folder = site.expand(folder).rstrip("/") or "/"
    return folder if folder.startswith("/") else f"{site.home}/{folder}"


def shown_folder(folder: str, site: Site) -> str:
    """Return a folder as the user knows it: ``~/gpulab``."""
    return f"~{folder.removeprefix(site.home)}" if folder.startswith(f"{site.home}/") else folder


@dataclass(frozen=True)
class Bundle:
    """Files that are brought to a folder together.

    ``what`` they are, in words. ``files``: by their paths in ``folder``. ``record``: where below the launcher's folder
    on that host it is noted what was brought. ``day``: in the name of a new version beside a changed one.
    """

    what: str
    folder: str
    files: Mapping[str, bytes]
    record: str
    day: str


def bring(host: Host, site: Site, bundle: Bundle, view: View) -> events.NotebooksBrought:
    """Bring files to a folder, none over what the user has changed, and return what is to be told of it.

    Raises ``HostCommandFailed`` where they cannot be written, and what the host raises.
    """
    wanted = {name: hashlib.sha256(content).hexdigest() for name, content in bundle.files.items()}
    records, record = f"{site.home}/.notebook-launcher/{bundle.record}".rsplit("/", 1)
    names = [*wanted, *(beside(name, bundle.day) for name in wanted)]
    there, brought = _look(host, bundle.folder, f"{records}/{record}", names)
    moves, kept = decide(wanted, there, brought, bundle.day)
    done: set[Move] = set()
    if moves:
        view.show(events.Asking(f"bringing {bundle.what}"))
        done = _write(host, bundle.folder, moves, bundle.files)
    # of what is left alone only that is noted which lies beside it now, or did before
    settled = {move.notebook for move in done} | {name for name in wanted if there.get(name) == wanted[name]}
    noted = {**brought, **{name: wanted[name] for name in settled}}
    if noted != brought:
        about = {"folder": bundle.folder, "brought": noted}
        host.write_files(records, {record: (json.dumps(about, indent=1, sort_keys=True) + "\n").encode()})
    copied = tuple(move.target for move in moves if move in done)
    return events.NotebooksBrought(shown_folder(bundle.folder, site), copied, tuple(kept))


@dataclass(frozen=True)
class Move:
    """A notebook that is to be written. ``target``: its name in the folder.

    ``over``: the SHA-256 of what it replaces, which is what we have brought before; "": nothing may be there.
    """

    notebook: str
    target: str
    over: str = ""


def decide(
    wanted: Mapping[str, str], there: Mapping[str, str], brought: Mapping[str, str], day: str
) -> tuple[list[Move], list[str]]:
    """Return what is to be written, and which notebooks the student has changed, so that they stay.

    ``wanted``: the course's, by name, as SHA-256. ``there``: what lies in the folder, likewise; "": nothing, "odd": no
    file of its own. ``brought``: what we brought last. A new version of a changed one goes beside it, once.
    """
    moves, kept = [], []
    for name, digest in wanted.items():
        is_there = there.get(name, "odd")
        if is_there == digest:
            continue
        if not is_there:
            moves.append(Move(name, name))
        elif is_there == brought.get(name):
            moves.append(Move(name, name, is_there))
        else:
            kept.append(name)
            new = beside(name, day)
            if is_there != "odd" and brought.get(name) != digest and not there.get(new, "odd"):
                moves.append(Move(name, new))
    return moves, kept


def beside(name: str, day: str) -> str:
    """Return what a new version is called beside one that the student has changed."""
    folder, slash, last = name.rpartition("/")
    stem, dot, ending = last.rpartition(".")
    return f"{folder}{slash}{stem or last}.new-{day}" + (f"{dot}{ending}" if stem else "")


def _look(host: Host, folder: str, record: str, names: Sequence[str]) -> tuple[dict[str, str], dict[str, str]]:
    """Return what lies in the folder, and what was brought there before."""
    answer = host.run(["bash", "-c", _SAFELY + _LOOK, "look", folder, record, *names])
    *lines, noted = answer.stdout.split("\n", len(names))
    if answer.exit_code or len(lines) != len(names):
        raise _failed(answer.stderr)
    about = json_object(noted)
    brought = about.get("brought") if about.get("folder") == folder else None
    known = brought.items() if isinstance(brought, dict) else ()
    there = {name: line.partition(" ")[0].removeprefix("none") for name, line in zip(names, lines, strict=True)}
    return there, {str(name): str(digest) for name, digest in known}


def _write(host: Host, folder: str, moves: Sequence[Move], files: Mapping[str, bytes]) -> set[Move]:
    """Write files, and return those that are there now: what was changed meanwhile is left alone."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for number, move in enumerate(moves):
            entry = tarfile.TarInfo(str(number))
            content = files[move.notebook]
            entry.size, entry.mode = len(content), 0o600
            archive.addfile(entry, io.BytesIO(content))
    words = [word for move in moves for word in (move.target, move.over or "none")]
    command = ["bash", "-c", _SAFELY + _WRITE, "write", folder, *words]
    answer = host.run(command, stdin=packed.getvalue(), timeout=WITHIN)
    if answer.exit_code:
        raise _failed(answer.stderr)
    numbers = [int(line) for line in answer.stdout.split() if line.isdecimal()]
    return {moves[number] for number in numbers if number < len(moves)}


def _failed(said: str) -> HostCommandFailed:
    return HostCommandFailed("Something went wrong there.", why=said.strip()[-500:])


# state NAME: the SHA-256 of a file, "none" where nothing is, "odd" for all else: a link could lead anywhere.
_SAFELY = r"""
LC_ALL=C; umask 077
state() {
  local place=. rest=$1
  while [[ $rest == */* ]]; do
    place+=/${rest%%/*} rest=${rest#*/}
    if [[ -L $place || ( -e $place && ! -d $place ) ]]; then echo odd; return; fi
  done
  place+=/$rest
  if [[ -L $place ]]; then echo odd
  elif [[ ! -e $place ]]; then echo none
  elif [[ ! -f $place || ! -r $place ]]; then echo odd
  else { sha256sum || shasum -a 256; } <"$place" 2>/dev/null || echo odd
  fi
}
enter() {
  cd -- "$1" || exit 1
  [[ -O . ]] || { echo "The folder $1 is not yours." >&2; exit 1; }
}
"""
_LOOK = r"""
folder=$1 record=$2; shift 2
if [[ -e $folder || -L $folder ]]; then
  enter "$folder"
  for name do state "$name"; done
else
  for name do echo none; done
fi
[[ ! -f $record ]] || head -c 4194304 "$record"
"""
_WRITE = r"""
folder=$1; shift
mkdir -p -- "$folder" && enter "$folder" && new=$(mktemp -d ./.new.XXXXXX) || exit 1
trap 'rm -rf -- "$new"' EXIT
tar -x -m -f - -C "$new" || exit 1
number=-1
while (($#)); do
  name=$1 was=$2 is=$(state "$1"); shift 2; number=$((number + 1))
  [[ ${is%% *} == "$was" ]] || continue
  if [[ $name == */* ]]; then mkdir -p -- "./${name%/*}" || exit 1; fi
  if [[ $was == none ]]; then
    mv -n -- "$new/$number" "./$name" && [[ ! -e $new/$number ]] && echo "$number"
  else
    mv -f -- "$new/$number" "./$name" && echo "$number"
  fi
done
exit 0
"""
