"""The shell options that a command for ``bash -c`` counts on."""

from __future__ import annotations

#: Before a command for ``bash -c``: options as bash has them by itself, whatever BASH_ENV, SHELLOPTS or a start-up file
#: set. On one line: a csh cannot quote a line's end. The scripts in jobscripts/ begin with more of this.
PLAIN_BASH = (
    "set +o posix; set +aefuvxCET -B +o pipefail; IFS=$' \\t\\n'; "
    "shopt -u failglob nullglob dotglob nocaseglob nocasematch; trap - DEBUG ERR; unset GLOBIGNORE; "
)
