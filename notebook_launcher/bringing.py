"""A course's notebooks into the student's folder on the cluster, and never over the student's own work."""

from __future__ import annotations

import io
import json
import tarfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from notebook_launcher import events
from notebook_launcher.errors import HostCommandFailed, LauncherError
from notebook_launcher.profiles.courses import kept_course
from notebook_launcher.profiles.models import CourseProfile
from notebook_launcher.session import Site, json_object
from notebook_launcher.stage import Stage

WITHIN = 300.0  # seconds for the notebooks to get there over a slow line


def bring_notebooks(stage: Stage, course: CourseProfile) -> None:
    """Bring a course's notebooks to the cluster, and tell. Where that fails it is told, and nothing else happens."""
    if not course.notebooks:
        return
    folder = folder_of(course, stage.site)
    shown = f"~{folder.removeprefix(stage.site.home)}" if folder.startswith(f"{stage.site.home}/") else folder
    try:
        told = _bring(stage, course.name, folder)
    except LauncherError as error:
        why = f" {error.why}" if error.why else ""
        stage.view.show(events.Noted(f"The course's notebooks were not brought to {shown}: {error.what}{why}"))
    else:
        stage.view.show(events.NotebooksBrought(shown, *told))


def folder_of(course: CourseProfile, site: Site) -> str:
    """Return the student's folder for a course on the cluster."""
    folder = site.expand(course.folder or f"~/{course.name}").rstrip("/")
    return folder if folder.startswith("/") else f"{site.home}/{folder}"


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


def _bring(stage: Stage, course: str, folder: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return what was written, and what was left as the student has it."""
    files = kept_course(course).files()
    wanted, day = files.notebook_digests(), f"{stage.clock():%Y-%m-%d}"
    records, record = f"{stage.site.home}/.notebook-launcher/courses", f"{course}.json"
    names = [*wanted, *(beside(name, day) for name in wanted)]
    there, brought = _look(stage, folder, f"{records}/{record}", names)
    moves, kept = decide(wanted, there, brought, day)
    done: set[Move] = set()
    if moves:
        stage.view.show(events.Asking("bringing the course's notebooks"))
        done = _write(stage, folder, moves, files.notebooks)
    # of what is left alone only that is noted which lies beside it now, or did before
    settled = {move.notebook for move in done} | {name for name in wanted if there.get(name) == wanted[name]}
    noted = {**brought, **{name: wanted[name] for name in settled}}
    if noted != brought:
        about = {"folder": folder, "brought": noted}
        stage.host.write_files(records, {record: (json.dumps(about, indent=1, sort_keys=True) + "\n").encode()})
    return tuple(move.target for move in moves if move in done), tuple(kept)


def _look(stage: Stage, folder: str, record: str, names: Sequence[str]) -> tuple[dict[str, str], dict[str, str]]:
    """Return what lies in the folder, and what was brought there before."""
    answer = stage.host.run(["bash", "-c", _SAFELY + _LOOK, "look", folder, record, *names])
    *lines, noted = answer.stdout.split("\n", len(names))
    if answer.exit_code or len(lines) != len(names):
        raise _failed(answer.stderr)
    about = json_object(noted)
    brought = about.get("brought") if about.get("folder") == folder else None
    known = brought.items() if isinstance(brought, dict) else ()
    there = {name: line.partition(" ")[0].removeprefix("none") for name, line in zip(names, lines, strict=True)}
    return there, {str(name): str(digest) for name, digest in known}


def _write(stage: Stage, folder: str, moves: Sequence[Move], notebooks: Mapping[str, bytes]) -> set[Move]:
    """Write notebooks, and return those that are there now: what was changed meanwhile is left alone."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for number, move in enumerate(moves):
            entry = tarfile.TarInfo(str(number))
            content = notebooks[move.notebook]
            entry.size, entry.mode = len(content), 0o600
            archive.addfile(entry, io.BytesIO(content))
    words = [word for move in moves for word in (move.target, move.over or "none")]
    command = ["bash", "-c", _SAFELY + _WRITE, "write", folder, *words]
    answer = stage.host.run(command, stdin=packed.getvalue(), timeout=WITHIN)
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
