"""Lines of bash from a profile that each login shell runs before a command, and the error if one of them fails.

Pure: makes a script for the login shell, and reads its output.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence

from notebook_launcher.core.errors import LoginSetupFailed
from notebook_launcher.core.frozen import Frozen
from notebook_launcher.core.text import joined, printable

_NEEDS_MODULE = re.compile(r"(module|ml)\b")
_SHOWN = 500  # characters of a line's output

# As in a job (find_module_command in jobscripts/lib/activate.sh): a site may define `module` for interactive shells
# only. The output of these files is ignored, like that of the start-up files.
_FIND_MODULE = (
    'for launch_notebook_init in "${LMOD_PKG:+$LMOD_PKG/init/bash}" "${MODULESHOME:+$MODULESHOME/init/bash}" '
    "/etc/profile.d/{lmod,z00_lmod,z01_lmod,modules}.sh "
    "/usr/share/lmod/lmod/init/bash /usr/share/{modules,Modules}/init/bash "
    "/opt/cray/pe/lmod/lmod/init/bash /opt/modules/default/init/bash; do "
    "[[ $(builtin type -t module) == function && -n ${MODULEPATH-} ]] && builtin break; "
    '[[ ! -r $launch_notebook_init ]] || builtin source "$launch_notebook_init" </dev/null 2>&1; '
    "builtin set +eux; done; builtin unset launch_notebook_init; "
)
# A line may change every variable without our prefix, and the positional parameters. It does not get the command's
# input, and its errors go where its output does, before the frame, so that neither passes for the command's output. If
# it redirects its output for good (`exec >file`), what comes after it is not affected.
_BEGINNING = 'builtin set +eux -B; launch_notebook=("$@"); builtin exec {launch_notebook_out}>&1; '
_LINE = (
    "{begins}builtin eval {line} </dev/null >&$launch_notebook_out 2>&1; launch_notebook_code=$?; builtin set +eux; "
    "[[ $launch_notebook_code == 0 ]] || {{ builtin echo {failed}; builtin exit 1; }}; "
)
_END = (
    'builtin set -- "${launch_notebook[@]}"; builtin exec {launch_notebook_out}>&-; '
    "builtin unset launch_notebook launch_notebook_code launch_notebook_out; "
)


class LoginSetup(Frozen):
    """The lines. ``origin``: the file and line where they are, for messages; ``cluster``: the profile's name."""

    lines: tuple[str, ...] = ()
    origin: str = ""
    cluster: str | None = None

    def script(self, mark: str = "") -> str:
        """Return code for the beginning of a script that runs the lines; all on one line, for csh.

        If one of them fails, the shell ends. ``mark``: printed before each line, for ``failure``; without it, a message
        on standard output names the line that failed.
        """
        if not self.lines:
            return ""
        steps = []
        for number, line in enumerate(self.lines, 1):
            begins = f"builtin echo {mark} {number}; " if mark else ""
            failed = f"{mark} {number} failed " if mark else f"launch-notebook: login_setup failed: {line}: exit code "
            steps.append(
                _LINE.format(
                    begins=begins, line=shlex.quote(line), failed=f'{shlex.quote(failed)}"$launch_notebook_code"'
                )
            )
        find = _FIND_MODULE if any(map(_NEEDS_MODULE.search, self.lines)) else ""
        return "".join([_BEGINNING, find, *steps, _END])

    def failure(self, mark: str, printed: str, label: str) -> LoginSetupFailed | None:
        """Return the error for the line that a login shell began last, ``None`` if it began none.

        ``printed``: the login shell's output, in which no frame began.
        """
        begun = list(re.finditer(rf"{mark} (\d{{1,4}})\n", printed, re.ASCII))
        if not begun or not 0 < int(begun[-1][1]) <= len(self.lines):
            return None
        line, rest = self.lines[int(begun[-1][1]) - 1], printed[begun[-1].end() :]
        output, failed, code = rest.partition(f"{mark} {begun[-1][1]} failed ")
        if failed:
            what = f"failed with exit code {printable(code.partition(chr(10))[0])[:3]}"
        else:
            what = "ends or replaces the login shell"
        said = " ".join(printable(one) for one in output.splitlines() if one.strip())
        try_it = f"try the line there, after: ssh {label}"
        return LoginSetupFailed(
            f"A line of login_setup {what} on {label}: {printable(line)}",
            why=joined(
                f"It is in {self.origin}." if self.origin else "",
                f"It printed: {said[-_SHOWN:]}" if said else "It printed nothing.",
            ),
            hint=f"correct it: launch-notebook clusters edit {self.cluster}   or {try_it}" if self.cluster else try_it,
        )

    def named_in(self, why: str) -> str:
        """Return ``why`` a command timed out or, if that is empty, the suspicion that one of these lines hangs."""
        where = f" of {self.origin}" if self.origin else ""
        return why or (f"login_setup{where} runs before it: does a line of it hang?" if self.lines else "")


NONE = LoginSetup()


def login_shell_command(argv: Sequence[str], setup: LoginSetup) -> list[str]:
    """Return a command that runs another one in a login shell, after the lines of its profile."""
    return ["bash", "-l", "-c", f'{setup.script()}builtin exec "$@"', "launch-notebook", *argv]
