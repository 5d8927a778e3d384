"""Writes a session's files on a host: the shell scripts, their input, and what their failures mean.

Pure: makes commands and their input as text, and reads their results.
"""

from __future__ import annotations

import secrets
import shlex
from collections.abc import Mapping, Sequence

from notebook_launcher.core.command_result import CommandResult
from notebook_launcher.core.errors import FolderUnsafe, HostCommandFailed
from notebook_launcher.core.text import printable


def write_command(directory: str) -> list[str]:
    """Return the command that writes the files in its input (``archive``) to a directory, as ``Host.write_files``."""
    return ["sh", "-c", _WRITE_FILES, "write-files", directory]


def make_mark() -> str:
    """Return a random mark, which no start-up file prints, for ``write_then_command``."""
    return f"launch-notebook-{secrets.token_hex(8)}"


def write_then_command(directory: str, argv: Sequence[str], mark: str) -> list[str]:
    """Return a command that writes the files as ``write_command`` does, and then runs another command.

    The files are written in a clean environment, so that what a login sets affects neither the checks nor ``tar``.
    """
    return ["bash", "-c", _WRITE_THEN, "write-files-then", _WRITE_FILES, mark, directory, *argv]


def refuse_command(directory: str) -> list[str]:
    """Return a command that only checks whether a directory is safe from other users."""
    return ["sh", "-c", _REFUSE_UNSAFE, "refuse-unsafe", f"{directory}/new"]


def split_answer(answer: CommandResult, mark: str) -> tuple[CommandResult, CommandResult | None]:
    """Return the results of writing and of the other command of ``write_then_command`` (``None`` if it did not run)."""
    before, written, output = answer.stdout.partition(f"{mark}: written\n")
    _, _, wrote = before.partition(f"{mark}: writing\n")
    own = CommandResult(0 if written else answer.exit_code, wrote, answer.stderr)
    return own, CommandResult(answer.exit_code, output, answer.stderr) if written else None


def refuse_unsafe(directory: str, label: str, answer: CommandResult) -> None:
    """Raise ``FolderUnsafe`` if a command reported that another user may rename a folder on the way."""
    if answer.exit_code != _UNSAFE:
        return
    folder, who, whose = map(printable, (*answer.stdout.splitlines(), "", "", "")[:3])
    chmod = f"chmod go-w {shlex.quote(folder)}, or " if whose and "write" in who else ""
    raise FolderUnsafe(
        f"The launcher's files would not be safe in {printable(directory)} on {label}.",
        why=f"Others could replace them by way of {folder}: {who}.",
        hint=f"{chmod}name another folder with session_root in the profile",
    )


def refuse_unwritten(directory: str, label: str, answer: CommandResult) -> None:
    """Raise ``FolderUnsafe`` or ``HostCommandFailed`` if the files were not written."""
    refuse_unsafe(directory, label, answer)
    if answer.exit_code != 0:
        raise _unwritable(f"{directory} on {label}", answer.stderr.strip())


_ANOTHER_FOLDER = "name another folder with session_root in the profile; the compute nodes must see it, too"


def _unwritable(where: str, error: str) -> HostCommandFailed:
    """Return the error for files that could not be written, with a hint for its cause."""
    what = f"The session's files could not be written in {where}."
    if "Read-only file system" in error:  # strerror(EROFS)
        what = f"The session's files could not be written: {where} is on a read-only file system."
        hint = f"ask the cluster's support how long this will last, or {_ANOTHER_FOLDER}"
    elif "Permission denied" in error:
        hint = _ANOTHER_FOLDER
    else:
        hint = "check that there is room in your home folder: quota -s; df -h ~"
    return HostCommandFailed(what, why=error, hint=hint)


# tar, because one stream carries all files and their modes; POSIX sh, because a login shell may be any shell.
#
# First it checks every folder on the way to $1, as typed and with links resolved: who could rename what is in it?
# Nobody without write permission, and nobody in a folder with the sticky bit. Folders above the home are skipped, as by
# sshd, because whoever can rename the home has all of it; and so is AFS, whose modes mean nothing. It uses ls, whose
# output is the same on every system. A group with the user's own name has no other members; low ids and nobody (root,
# on some file servers) are the system's. It prints the folder, why, and whether the folder is the user's own.
_FIND_UNSAFE = r"""
set +Ceuf; LC_ALL=C; export LC_ALL;
me=$(id -u); own=0; [ "$(id -gn)" = "$(id -un)" ] && own=$(id -g); home=$(cd -P -- ~ && pwd -P);
min=$(sed -n "s/^UID_MIN[[:space:]]*//p" /etc/login.defs 2>/dev/null); [ "${min:-0}" -gt 0 ] 2>/dev/null || min=500;
listed() {
  who=$(getfacl -cpn "$1" 2>/dev/null | sed "s/^group::/group:$2:/" | grep -E "^(user|group):[0-9]+:.w" |
    grep -v -e "^user:$me:" -e "^group:$own:" | head -n 1);
  command -v getfacl >/dev/null || who=unknown;
  [ -z "$who" ] || who="its access list lets others write in it";
};
look() {
  p=$1;
  while [ -n "$p" ]; do
    p=${p%/*};
    case $p in /afs | /afs/*) continue ;; esac;
    case $home/ in "$p"/?*) [ "$p" = "$home" ] || continue ;; esac;
    case ${HOME-}/ in "$p"/?*) [ "$p" = "$HOME" ] || continue ;; esac;
    [ -d "$p/." ] || continue;
    who=; set -- $(ls -ldn "$p/." 2>/dev/null) ;
    if [ -z "${4-}" ]; then who="it cannot be inspected"; set -- - - -1;
    elif [ "$3" -ne "$me" ] && [ "$3" -ge "$min" ] && [ "$3" -ne 65534 ] && [ "$3" -ne 4294967294 ];
    then who="it belongs to user $3";
    else
      case $1 in
        d????????[tT]*) ;;
        d???????w*) who="everybody may write in it" ;;
        d????w????+) listed "$p/." "$4" ;;
        d????w*) [ "$4" -eq "$own" ] || who="group $4 may write in it" ;;
      esac;
    fi;
    if [ -n "$who" ]; then printf "%s\\n" "${p:-/}" "$who"; [ "$3" -ne "$me" ] || echo own; return; fi;
  done;
};
check() {
  d=$1; until [ -d "$d" ]; do d=${d%/*}; d=${d:-/}; done;
  found=$(look "$1"); [ -n "$found" ] || found=$(look "$(cd -P -- "$d" && pwd -P)/x");
  [ -z "$found" ] || { printf "%s\\n" "$found"; exit 66; };
};
"""

# Unpacked to a temporary folder and moved: a full disk leaves no partial file. -m: with the current time, because some
# sites delete old files. Checked again once the folders exist: another user may have created one of them first.
_WRITE_FILES = f"""umask 077; {_FIND_UNSAFE}
check "$1"; mkdir -p -- "$1" && chmod 700 -- "$1" || exit 1; check "$1";
cd -- "$1" && new=$(mktemp -d .new.XXXXXX) || exit 1;
tar -x -z -p -m -f - -C "$new" && mv -f -- "$new"/* .; code=$?; rm -rf -- "$new"; exit $code"""
# On one line, because csh, which may be the login shell, cannot quote a newline.
_WRITE_FILES, _REFUSE_UNSAFE = (
    " ".join(line.strip() for line in script.splitlines()) for script in (_WRITE_FILES, f'{_FIND_UNSAFE} check "$1"')
)
_UNSAFE = 66  # exit code of these scripts if another user may rename a folder on the way

# In bash, because sh may be dash, which would drop the exported functions that a job inherits (`module`). `builtin`: an
# exported function may have the same name. Anything before the first line was printed by the file that BASH_ENV names.
# env by its path, and the system's folders first in PATH: a login may have another `tar` first (conda has one).
_CLEANLY = '/usr/bin/env -i ${HOME+"HOME=$HOME"} PATH="/usr/bin:/bin:/usr/sbin:/sbin:$PATH"'
_WRITE_THEN = (
    f'builtin echo "$2: writing" && builtin command -- {_CLEANLY} sh -c "$1" write-files "$3" && '
    'builtin echo "$2: written" && builtin shift 3 && builtin exec "$@" </dev/null'
)

# A third of the size takes a third of the time on a slow line, and saves a round trip or two on one with a long delay.
_COMPRESSION = 6


def archive(files: Mapping[str, bytes]) -> bytes:
    """Return the input of the commands that write files: a compressed tar archive."""
    import io
    import tarfile

    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz", compresslevel=_COMPRESSION, format=tarfile.USTAR_FORMAT) as archive:
        for name, content in files.items():
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(content), 0o600
            archive.addfile(entry, io.BytesIO(content))
    return packed.getvalue()
