"""Copies a course's or the bundled notebooks to the user's folder; files that the user has changed stay."""

from __future__ import annotations

import hashlib
import io
import json
import re
import tarfile
from collections.abc import Mapping, Sequence

from notebook_launcher.core import events
from notebook_launcher.core.bash_options import PLAIN_BASH
from notebook_launcher.core.errors import HostCommandFailed, LauncherError
from notebook_launcher.core.frozen import Frozen
from notebook_launcher.core.text import whole_number
from notebook_launcher.core.view import View
from notebook_launcher.hosts.base import Host
from notebook_launcher.notebook.manifest import NOTHING, ODD, copied_digests, may_write, name_beside
from notebook_launcher.profiles.courses import saved_course
from notebook_launcher.profiles.models import CourseProfile
from notebook_launcher.session.context import Context
from notebook_launcher.session.record import Site, json_object

TIMEOUT = 300.0  # seconds to copy the notebooks over a slow line


def deploy_notebooks(context: Context, course: CourseProfile) -> None:
    """Copy a course's notebooks to the cluster, and show which. A failure is shown as a note, and never raised."""
    if not course.notebooks:
        return
    folder = folder_of(course, context.site)
    try:
        bundle = Bundle(
            "the course's notebooks",
            folder,
            saved_course(course.name).files().notebooks,
            f"courses/{course.name}.json",
            f"{context.clock():%Y-%m-%d}",
        )
        copied = deploy(context.host, context.site, bundle, context.view)
    except LauncherError as error:
        why = f" {error.why}" if error.why else ""
        shown = shown_folder(folder, context.site)
        context.view.show(events.Note(f"The course's notebooks were not copied to {shown}: {error.what}{why}"))
    else:
        context.view.show(copied)


def folder_of(course: CourseProfile, site: Site) -> str:
    """Return the student's folder for a course on the cluster."""
    return in_home(course.folder or f"~/{course.name}", site)


def in_home(folder: str, site: Site) -> str:
    """Return the path of a folder on a host, where a relative one is in the home."""
    folder = site.expand(folder).rstrip("/") or "/"
    return folder if folder.startswith("/") else f"{site.home}/{folder}"


def shown_folder(folder: str, site: Site) -> str:
    """Return a folder as shown to the user: ``~/gpulab``."""
    return f"~{folder.removeprefix(site.home)}" if folder.startswith(f"{site.home}/") else folder


class Bundle(Frozen):
    """Files that are copied to a folder together.

    ``what``: describes them. ``files``: by their paths in ``folder``. ``record``: the manifest's path below the
    launcher's folder on that host. ``day``: part of the name of a new version beside a changed file.
    """

    what: str
    folder: str
    files: Mapping[str, bytes]
    record: str
    day: str

    def digests(self) -> dict[str, str]:
        """Return the files' SHA-256 by name."""
        return {name: hashlib.sha256(content).hexdigest() for name, content in self.files.items()}


def deploy(host: Host, site: Site, bundle: Bundle, view: View) -> events.NotebooksCopied:
    """Copy files to a folder, without overwriting what the user has changed, and return what was copied.

    Raises ``HostCommandFailed`` if they cannot be written, and what the host raises.
    """
    wanted = bundle.digests()
    names = [*wanted, *(_new_name(name, bundle.day) for name in wanted)]
    there, deployed = _inspect(host, bundle.folder, _record_of(bundle, site), names)
    moves, kept = decide(wanted, there, deployed, bundle.day)
    done: set[FileWrite] = set()
    if moves:
        view.show(events.Querying(f"copying {bundle.what}"))
        done = _write(host, bundle.folder, moves, bundle.files)
    # files that were not written are recorded only if they exist, or were recorded before
    settled = {move.notebook for move in done} | {name for name in wanted if there.get(name) == wanted[name]}
    noted = {name: wanted[name] for name in settled} | {move.target: wanted[move.notebook] for move in done}
    _note(host, site, bundle, deployed, noted)
    copied = tuple(move.target for move in moves if move in done)
    return events.NotebooksCopied(shown_folder(bundle.folder, site), copied, tuple(kept))


def deploy_version(host: Host, site: Site, bundle: Bundle, view: View) -> tuple[events.NotebooksCopied, str]:
    """Copy one file to a folder as ``deploy`` does, and also return the name that this version has there.

    If another file keeps the name, this version is beside it, and the user may have changed it since; if it is not
    there, it is copied under the next free name of the day.
    """
    copied = deploy(host, site, bundle, view)
    [(name, digest)] = bundle.digests().items()
    if name not in copied.kept or copied.copied:
        return copied, copied.copied[0] if copied.copied else name
    noted = copied_digests(json_object(host.read_file(_record_of(bundle, site)) or b"").get("brought"))
    earlier = [one for one, its in noted.items() if its == digest and _is_version(one, name)]
    free = [_new_name(name, f"{bundle.day}{more}") for more in ("", *(f"-{number}" for number in range(2, 100)))]
    there, deployed = _inspect(host, bundle.folder, _record_of(bundle, site), [*earlier, *free])
    found = [one for one in earlier if one in deployed and there[one] not in (NOTHING, ODD)]
    found += [one for one in free if there[one] == digest]
    if found:
        return copied, max(found)
    move = FileWrite(name, next((one for one in free if there[one] == NOTHING), free[-1]))
    if move not in _write(host, bundle.folder, [move], bundle.files):
        raise HostCommandFailed(f"{move.target} could not be written on {host.label}.", why="Its name is taken.")
    _note(host, site, bundle, deployed, {name: digest, move.target: digest})
    return events.NotebooksCopied(copied.folder, (move.target,), copied.kept), move.target


def _is_version(name: str, of: str) -> bool:
    """Whether a recorded name is that of a version beside the file ``of``; the record may contain any names."""
    before, _, after = _new_name(of, "\n").partition("\n")
    day = name.removeprefix(before).removesuffix(after)
    return name == f"{before}{day}{after}" and re.fullmatch(r"[0-9-]{10,20}", day, re.A) is not None


def _record_of(bundle: Bundle, site: Site) -> str:
    return f"{site.home}/.notebook-launcher/{bundle.record}"


def _note(host: Host, site: Site, bundle: Bundle, before: Mapping[str, str], noted: Mapping[str, str]) -> None:
    """Record the SHA-256 of files by their names, if anything is new."""
    if (after := {**before, **noted}) != before:
        about = {"folder": bundle.folder, "brought": after}
        records, record = _record_of(bundle, site).rsplit("/", 1)
        host.write_files(records, {record: (json.dumps(about, indent=1, sort_keys=True) + "\n").encode()})


class FileWrite(Frozen):
    """A notebook to write. ``target``: its name in the folder.

    ``over``: the SHA-256 of the earlier copy that it replaces; "": no file may exist there.
    """

    notebook: str
    target: str
    over: str = ""


def decide(
    wanted: Mapping[str, str], there: Mapping[str, str], deployed: Mapping[str, str], day: str
) -> tuple[list[FileWrite], list[str]]:
    """Return what to write, and which notebooks stay because the student has changed them.

    ``wanted``: the course's, by name, as SHA-256. ``there``: the folder's, likewise; "": missing, "odd": not a regular
    file. ``deployed``: what was copied last. A new version of a changed one is put beside it, once.
    """
    moves, kept = [], []
    for name, digest in wanted.items():
        is_there = there.get(name, ODD)
        if is_there == digest:
            continue
        if may_write(is_there, digest, [deployed.get(name)]):
            moves.append(FileWrite(name, name, is_there))
        else:
            kept.append(name)
            new = _new_name(name, day)
            if is_there != ODD and deployed.get(name) != digest and there.get(new, ODD) == NOTHING:
                moves.append(FileWrite(name, new))
    return moves, kept


def _new_name(name: str, day: str) -> str:
    return name_beside(name, f"new-{day}")


def _inspect(host: Host, folder: str, record: str, names: Sequence[str]) -> tuple[dict[str, str], dict[str, str]]:
    """Return the state of the files in the folder, and the record of those that were copied there before."""
    answer = host.run(["bash", "-c", PLAIN_BASH + _SAFELY + _INSPECT, "inspect", folder, record, *names])
    *lines, noted = answer.stdout.split("\n", len(names))
    if answer.exit_code or len(lines) != len(names):
        raise _failed(answer.stderr)
    about = json_object(noted)
    deployed = copied_digests(about.get("brought") if about.get("folder") == folder else None)
    there = {name: line.partition(" ")[0].removeprefix("none") for name, line in zip(names, lines, strict=True)}
    return there, deployed


def _write(host: Host, folder: str, moves: Sequence[FileWrite], files: Mapping[str, bytes]) -> set[FileWrite]:
    """Write files, and return those that were written; files that changed meanwhile are left alone."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for number, move in enumerate(moves):
            entry = tarfile.TarInfo(str(number))
            content = files[move.notebook]
            entry.size, entry.mode = len(content), 0o600
            archive.addfile(entry, io.BytesIO(content))
    arguments = [word for move in moves for word in (move.target, move.over or "none")]
    command = ["bash", "-c", PLAIN_BASH + _SAFELY + _WRITE, "write", folder, *arguments]
    answer = host.run(command, stdin=packed.getvalue(), timeout=TIMEOUT)
    if answer.exit_code:
        raise _failed(answer.stderr)
    numbers = map(whole_number, answer.stdout.split())
    return {moves[number] for number in numbers if number is not None and number < len(moves)}


def _failed(output: str) -> HostCommandFailed:
    return HostCommandFailed("Something went wrong there.", why=output.strip()[-500:])


# state NAME: the SHA-256 of a file, "none" if it is missing, "odd" for anything else: a link could lead anywhere.
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
_INSPECT = r"""
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
