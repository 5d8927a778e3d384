#!/bin/bash
# What the tests of the job scripts take for bash (NBL_TEST_BASH): each bash below it leaves in .bash-trace/, a folder that
# everybody may write, which lines ran. tests/script_coverage.py reads that.
#
#   traced_bash.sh [OPTION...] [SCRIPT ARGUMENT...]        as bash

here=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)
export LINE_TRACE_FOLDER=${here%/*}/.bash-trace

# A script that comes through standard input has no name: find which one it is.
if [[ ${1-} == -s ]]; then
  copy=$(mktemp "$LINE_TRACE_FOLDER/script-XXXXXX") || exit
  cat >"$copy"
  for script in "$here"/../jobscripts/*/*.sh; do
    if cmp -s -- "$script" "$copy"; then export LINE_TRACE_SCRIPT=${script##*/}; fi
  done
  exec <"$copy"
  rm -f -- "$copy"
fi
BASH_ENV=$here/trace_lines.sh exec /bin/bash "$@"
