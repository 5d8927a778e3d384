#!/bin/bash
# Tell over one ssh channel what happens in a session directory, as soon as it happens.
#
#   bash watch.sh SESSION_DIR
#
# Printed lines:   started JSON   endpoint JSON   exit JSON     one of the job's files is there, or has changed
#                  gone started (endpoint, exit)                it was removed: the job went back into the queue
#                  deleted                                      the session directory is gone; nothing more will come
#                  .                                            every 2 s: still here
#
# Ends when standard input ends or standard output breaks, so a lost connection leaves nothing on the login node. Its
# loop starts no process: to wait is to read from standard input, and the shell reads files itself.

set -u

readonly HEARTBEAT_SECONDS=2

# Twenty looks a second are for the moments between the job's start and JupyterLab's. When these get long, the file
# server deserves some rest; and more of it where nothing has changed for long, as with a job that waits for hours.
readonly EAGER_SECONDS=30
readonly QUIET_SECONDS=600 REST_SECONDS=5

main() {
  dir=${1%/}
  declare -gA content=([started]='' [endpoint]='' [exit]='')
  eager_until=0
  changed_at=0
  look_due=0
  heartbeat_at=0
  while ((SECONDS < look_due)) || look; do
    beat
    choose_pace
    hear || return 0
  done
  say deleted
}

# Print what is new. Return 1 when the directory is gone.
look() {
  local name
  # Listed, and not just opened: an NFS client looks for another machine's new files only then.
  # shellcheck disable=SC2034
  local listing=("$dir"/*)
  [[ -d $dir ]] || return 1
  for name in started endpoint exit; do look_at "$name"; done
  look_due=0
  ((SECONDS < changed_at + QUIET_SECONDS)) || look_due=$((SECONDS + REST_SECONDS))
}

look_at() {
  local name=$1 line=''
  { IFS= read -r line <"$dir/$name.json"; } 2>/dev/null
  [[ $line != "${content[$name]}" ]] || return 0
  content[$name]=$line
  changed_at=$SECONDS
  if [[ -z $line ]]; then
    say "gone $name"
  else
    say "$name $line"
    [[ $name != started ]] || eager_until=$((SECONDS + EAGER_SECONDS))
  fi
}

# Nobody listens any more when this fails.
say() { printf '%s\n' "$1" 2>/dev/null || exit 0; }

beat() {
  ((SECONDS >= heartbeat_at)) || return 0
  say .
  heartbeat_at=$((SECONDS + HEARTBEAT_SECONDS))
}

choose_pace() {
  pace=1
  if [[ -n ${content[started]} && -z ${content[endpoint]}${content[exit]} ]]; then
    pace=0.25
    ((SECONDS >= eager_until)) || pace=0.05
  fi
}

# Wait for one pace. Return 1 when the launcher has gone away; it says nothing as long as it is there.
hear() {
  local code
  read -r -t "$pace"
  code=$?
  ((code == 0 || code > 128))
}

main "$@"
exit
