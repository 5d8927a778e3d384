"""Whether a container image exists, as seen on the login node. Pure: a script, and a parser of what it printed."""

from __future__ import annotations

import shlex

from notebook_launcher.core.finding import Finding, fault, ok, unknown
from notebook_launcher.core.frozen import Frozen
from notebook_launcher.core.quantities import disk_size
from notebook_launcher.core.suggestions import as_hint, similar
from notebook_launcher.core.text import whole_number

# the container commands whose images are files; others keep images in a store of their own, under registry names
BY_FILE = (None, "apptainer", "singularity", "charliecloud", "enroot")

# POSIX sh, read from standard input. It prints for each part of the path: whether it can be entered, mode, owner, group
# and path.
INSPECT_IMAGE = r"""
path=$1
case $path in /*) ;; *) path=$PWD/$path ;; esac
step() {
  answer=$1 place=$2
  set -f
  set -- $(ls -ldL -- "$place" 2>/dev/null)
  printf 'step %s %s %s %s %s\n' "$answer" "${1:--}" "${3:--}" "${4:--}" "$place"
}
# Whether the compute nodes surely have this folder as well: it is on a network file system, or on that of the home.
is_shared() {
  case $1/ in "$HOME"/*) return 0 ;; esac
  case $(stat -f -L -c %T -- "$1" 2>/dev/null) in
    nfs* | lustre | gpfs | ceph | fhgfs | beegfs | panfs | afs | gfs* | ocfs2 | smb* | cifs) return 0 ;;
  esac
  device=$(stat -L -c %d -- "$1" 2>/dev/null)
  [ -n "$device" ] && [ "$device" = "$(stat -L -c %d -- "$HOME")" ] && [ "$device" != "$(stat -c %d /)" ]
}
here='' rest=$path
while [ -n "$rest" ]; do
  rest=${rest#/}
  part=${rest%%/*}
  rest=${rest#"$part"}
  [ -n "$part" ] || continue
  here=$here/$part
  [ -e "$here" ] || {
    echo 'kind missing'
    if is_shared "${here%/*}/"; then echo 'shared yes'; fi
    ls -- "${here%/*}/" 2>/dev/null | head -n 500 | sed 's/^/beside /'
    exit
  }
  if [ -n "${rest#/}" ]; then
    [ -x "$here" ] || { step no "$here"; exit; }
    step yes "$here"
  fi
done
step yes "$here"
if [ ! -r "$here" ]; then
  echo 'kind unreadable'
elif [ -d "$here" ]; then
  echo 'kind folder'
else
  set -- $(ls -ldL -- "$here")
  echo "bytes $5"
  case $(head -c 41 -- "$here" | tr -d '\000') in
    *SIF_MAGIC) echo 'kind sif' ;;
    hsqs*) echo 'kind squashfs' ;;
    *) echo 'kind other' ;;
  esac
fi
"""


class Step(Frozen):
    """One part of the path to an image. ``mode``: as ls prints it; ``enters``: whether this user can enter it."""

    path: str
    mode: str = ""
    owner: str = ""
    group: str = ""
    enters: bool = True


class Image(Frozen):
    """An image as seen on the login node. ``kind``: sif, squashfs, folder, other, missing, unreadable or unknown.

    ``beside``: if the image is missing, the names in the last folder that exists; ``shared``: whether the compute nodes
    are sure to see that folder as well.
    """

    path: str
    kind: str
    bytes: int | None = None
    steps: tuple[Step, ...] = ()
    beside: tuple[str, ...] = ()
    shared: bool = False


def read_image(path: str, text: str) -> Image:
    """Parse what ``INSPECT_IMAGE`` printed."""
    kind, count, shared = "unknown", None, False
    steps, beside = [], []
    for line in text.splitlines():
        fields = line.split(" ", 5)
        if fields[0] == "step" and len(fields) == 6:
            _, enters, mode, owner, group, place = fields
            steps.append(Step(place, mode, owner, group, enters == "yes"))
        elif fields[0] == "beside":
            beside.append(line.partition(" ")[2])
        elif line == "shared yes":
            shared = True
        elif fields[0] == "kind" and len(fields) > 1:
            kind = fields[1]
        elif fields[0] == "bytes" and len(fields) > 1:
            count = whole_number(fields[1])
    return Image(path, kind, count, tuple(steps), tuple(beside), shared)


def assess_image(image: Image) -> Finding:
    """Assess whether this user can read the image, and whether it is one."""
    closed = next((step for step in image.steps if not step.enters), None)
    if closed is not None:
        return fault(
            f"You may not enter {closed.path}, where the image {image.path} should be ({closed.mode}, "
            f"owner {closed.owner}, group {closed.group}).",
            f"ask {closed.owner} to let you in (chmod a+x, or your name in the group {closed.group}), or name another "
            "image after --",
        )
    if image.kind == "missing":
        last = image.steps[-1].path if image.steps else "/"
        missing = image.path.removeprefix(last).lstrip("/").partition("/")[0]
        hint = f"see: ls {last}; name another one after --, or get it: launch-notebook image pull"
        return fault(
            f"There is no image {image.path}; its path exists only as far as {last}.",
            as_hint(f"{last.rstrip('/')}/{name}" for name in similar(missing, image.beside)) or hint,
        )
    if image.kind == "unreadable":
        step = image.steps[-1] if image.steps else Step(image.path)
        return fault(
            f"You may not read the image {image.path} ({step.mode}, owner {step.owner}, group {step.group}).",
            f"ask {step.owner or 'its owner'} for it: chmod a+r {image.path}",
        )
    found = f"{image.path}" + (f", {disk_size(image.bytes // 1024)}" if image.bytes else "")
    if image.kind in ("sif", "squashfs", "folder"):
        return ok(found)
    if image.kind == "other":
        path = shlex.quote(image.path)
        return fault(
            f"{image.path} is not a container image: its first bytes are not those of one.",
            f"see what it is, and whether its copy is complete: file {path}; ls -lL {path}",
        )
    return unknown(f"The kind of file {image.path} could not be determined.")
