#!/bin/bash
# Tell over one ssh channel what happens in a session directory, as soon as it happens.
#
#   bash watch.sh SESSION_DIR
#
# Printed lines:   started JSON   endpoint JSON   exit JSON     one of the job's files is there, or has changed
#                  gone started (endpoint, exit)                it was removed: the job went back into the queue
#                  deleted                                      the session directory is gone; nothing more will come
#                  .                                            every 2 s: still here
# Lines it reads:  pace SECONDS                                 look that often from now on; `pace auto`: as at first
#
# Ends when standard input ends or standard output breaks, so a lost connection leaves nothing on the login node. Its
# loop starts no process: to wait is to read from standard input, and the shell reads files itself.

set -u

readonly HEARTBEAT_SECONDS=2

# Twenty looks a second are for the moments between the job's start and JupyterLab's. When these get long, the file
# server deserves some rest.
readonly EAGER_SECONDS=30

main() {
  dir=${1%/}
  declare -gA content=([started]='' [endpoint]='' [exit]='')
  wished_pace=auto
  eager_until=0
  heartbeat_at=0
  while look; do
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
}

look_at() {
  local name=$1 line=''
  { IFS= read -r line <"$dir/$name.json"; } 2>/dev/null
  [[ $line != "${content[$name]}" ]] || return 0
  content[$name]=$line
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
  if [[ $wished_pace != auto ]]; then
    pace=$wished_pace
  elif [[ -n ${content[started]} && -z ${content[endpoint]}${content[exit]} ]]; then
    pace=0.25
    ((SECONDS >= eager_until)) || pace=0.05
  fi
}

# Wait for one pace, or for a word from the launcher. Return 1 when it has gone away.
hear() {
  local line='' code
  read -r -t "$pace" line
  code=$?
  ((code == 0 || code > 128)) || return 1
  [[ $line =~ ^pace\ (auto|[0-9]+(\.[0-9]+)?)$ ]] && wished_pace=${BASH_REMATCH[1]}
  # A pace of zero would be a busy loop.
  [[ $wished_pace =~ ^[0.]+$ ]] && wished_pace=0.05
  return 0
}

main "$@"
exit
