#!/bin/bash
# own_processes.sh COMMAND...: run a command that sees the processes below it in /proc, and no others, where that can be had.
#
# The job scripts look through all processes of a node for what a job has left, and so do their tests: hundreds on a
# machine with practice clusters, each time. Without root or namespaces the command sees them all, and takes longer.
alone=(unshare --pid --fork --kill-child --mount-proc)
"${alone[@]}" true 2>/dev/null || exec "$@"
exec "${alone[@]}" /bin/bash -c '"$@"; exit' own-processes "$@" # bash waits for those that have lost their parents
