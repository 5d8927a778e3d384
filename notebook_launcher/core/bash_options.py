"""The shell options that a command for ``bash -c`` counts on."""

from __future__ import annotations

#: Begins a command for ``bash -c``: resets the options to bash's defaults, whatever BASH_ENV, SHELLOPTS or a start-up
#: file has set. On one line, because csh cannot quote a newline. The scripts in jobscripts/ have a longer version.
PLAIN_BASH = (
    "set +o posix; set +aefuvxCET -B +o pipefail; IFS=$' \\t\\n'; "
    "shopt -u failglob nullglob dotglob nocaseglob nocasematch; trap - DEBUG ERR; unset GLOBIGNORE; "
)
