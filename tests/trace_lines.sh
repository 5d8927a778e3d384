# shellcheck shell=bash
# Read by every bash below traced_bash.sh before its script (BASH_ENV): the lines that run go to a file of its own.
if { exec {NBL_TRACED_FD}>>"$NBL_BASH_TRACE/lines-$$"; } 2>/dev/null; then
  BASH_XTRACEFD=$NBL_TRACED_FD PS4='+${BASH_SOURCE[0]:-}@${NBL_TRACED_SCRIPT-}:$LINENO:'
  set -x
fi
