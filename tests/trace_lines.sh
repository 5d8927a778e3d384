# shellcheck shell=bash
# Read by every bash below traced_bash.sh before its script (BASH_ENV): the lines that run go to a file of its own. Where
# files may not grow (a full disk, in a test) the trace would be what does not fit.
mapfile -t LINE_TRACE_LIMITS </proc/self/limits
if [[ ${LINE_TRACE_LIMITS[*]} =~ 'Max file size '\ *unlimited ]] && { exec {LINE_TRACE_FD}>>"$LINE_TRACE_FOLDER/lines-$$"; } 2>/dev/null; then
  BASH_XTRACEFD=$LINE_TRACE_FD PS4='+${BASH_SOURCE[0]:-}@${LINE_TRACE_SCRIPT-}:$LINENO:'
  set -x
fi
unset LINE_TRACE_LIMITS
