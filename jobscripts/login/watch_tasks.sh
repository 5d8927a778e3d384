#!/bin/bash
# Report over one ssh channel what the tasks of a job array do and print, as soon as it happens.
#
#   bash watch_tasks.sh SESSION_DIR follow|once [NAME:LINES...]
#
# Printed lines, of task 3:   started 3 JSON   exit 3 JSON       one of its files exists, or has changed
#                             gone 3                             it was requeued
#                             log 3 TEXT                         a line of its output; log 3e: of its error file, if it
#                                                                has one of its own
#                             .                                  every 2 s: still running
#
# Checking a task means listing its directory, perhaps on a file server: so an array of 2,000 tasks is checked in turns,
# $MOST_LOOKED_AT of them a second, and its last task is checked after 20 s. With `once`, all are checked at once. Of
# the file NAME, the first LINES lines were read before, and are not printed. With `once`, it ends when everything has
# been reported; with `follow`, when standard input ends or standard output breaks. Its loop starts no process.

# Bash's default shell options, whatever BASH_ENV and SHELLOPTS say; the same lines are in every script.
[[ -n ${users_options[1]+set} ]] ||
  users_options=("$SHELLOPTS" "$BASHOPTS" "${POSIXLY_CORRECT+$(compgen -e POSIXLY_CORRECT || :)}")
set +o posix; set +aefkmuvCET -B +o pipefail; trap - DEBUG ERR RETURN; [[ -n ${BASH_XTRACEFD-} ]] || set +x
shopt -u failglob nullglob dotglob nocaseglob nocasematch expand_aliases execfail lastpipe xpg_echo
IFS=$' \t\n'; unset GLOBIGNORE

set -u

readonly HEARTBEAT_SECONDS=2 MOST_CHARACTERS=16384
# Tasks checked per second: of those that run, and of those that have ended.
readonly MOST_LOOKED_AT=${NBL_MOST_LOOKED_AT:-100}
# Logs that are read at the same time: each is an open file. Those of further tasks follow when one has ended.
readonly MOST_OPEN=${NBL_MOST_OPEN_LOGS:-100}
# Limits on what is read of one log per turn, so that all get a turn; and on the length of a line.
readonly CHUNKS=16 CHUNK_CHARACTERS=32768 LONGEST_LINE=65536

main() {
  # One byte is one character: so reads are limited in bytes, and any byte can be read.
  export LC_ALL=C
  shopt -s nullglob
  local word
  dir=${1%/} mode=$2 heartbeat_at=0 second=$SECONDS running_from=0 ended_from=0
  shift 2
  # by task: what was reported, and whether that is all; by log name: its descriptor, its file, an unfinished line
  declare -gA started=() seen=() over=() fds=() files=() rest=() skip=() had=()
  for word; do
    [[ $word =~ ^([0-9]{1,9}e?):([0-9]{1,12})$ ]] && skip[${BASH_REMATCH[1]}]=${BASH_REMATCH[2]}
  done
  while :; do
    more=''
    look
    [[ $mode != once || -n $more ]] || return 0
    beat
    [[ -n $more ]] || hear || return 0
  done
}

look() {
  local task number running=() ended=() most=$MOST_LOOKED_AT
  for task in "$dir"/tasks/*; do
    number=${task##*/}
    [[ $number =~ ^[0-9]{1,9}$ ]] || continue
    if [[ -n ${over[$number]-} ]]; then ended+=("$number"); else running+=("$number"); fi
  done
  if [[ $mode == once ]]; then
    most=${#running[@]}
  elif ((SECONDS != second)); then  # `more` of a log is read within the second, of the same tasks
    second=$SECONDS running_from=$((running_from + most)) ended_from=$((ended_from + most))
    ((running_from < ${#running[@]})) || running_from=0
    ((ended_from < ${#ended[@]})) || ended_from=0
  fi
  for number in ${running[@]+"${running[@]:running_from:most}"} ${ended[@]+"${ended[@]:ended_from:most}"}; do
    task=$dir/tasks/$number
    [[ ! -d $task || -L $task ]] || look_at "$task" "$number"
  done
}

# look_at DIRECTORY NUMBER: check a task. Files that exist when exit.json exists are read after it, and reported before
# it.
look_at() {
  local line exit_line=''
  if [[ -n ${over[$2]-} ]]; then
    [[ ! -e $1/exit.json ]] || return 0
    unset "over[$2]" "started[$2]"
    say "gone $2"
  fi
  # Listed, and not just opened, because only then does an NFS client look for another machine's new files.
  # shellcheck disable=SC2034
  local listing=("$1"/*)
  read_json "$1/exit.json" && exit_line=$REPLY
  if read_json "$1/started.json" && [[ $REPLY != "${started[$2]-}" ]]; then
    begin_run "$1" "$2"
  fi
  local name had_all=yes
  for name in "$2" "$2e"; do
    [[ -z ${files[$name]-} ]] || read_log "$name" || had_all=''
  done
  [[ -n $exit_line && -n $had_all ]] || return 0
  for name in "$2" "$2e"; do close_log "$name"; done
  over[$2]=yes
  say "exit $2 $exit_line"
}

read_json() {
  REPLY=''
  [[ -f $1 && ! -L $1 ]] && { IFS= read -r -n "$MOST_CHARACTERS" REPLY <"$1"; } 2>/dev/null
  [[ $REPLY == '{'*'}' ]]
}

# begin_run DIRECTORY NUMBER: the task has started, or started again; its log may then continue, or be a new one.
begin_run() {
  local line lines=() name
  for name in "$2" "$2e"; do
    close_log "$name"
    [[ -z ${seen[$2]-} || $REPLY != *'"new_log":true'* ]] || skip[$name]=0
  done
  started[$2]=$REPLY seen[$2]=yes name=$2
  say "started $2 $REPLY"
  { mapfile -t -n 2 lines <"$1/log"; } 2>/dev/null
  for line in ${lines[@]+"${lines[@]}"}; do
    [[ $line != /dev/null && $line == /* ]] && files[$name]=$line
    name+=e
  done
}

# read_log NAME: print new lines. Return 1 if there are more, or if it is not open yet.
read_log() {
  local file=${files[$1]} fd chunk turn lines
  # Opened each time, because only then does an NFS client ask for a file's size; the open descriptor is read on.
  { : <"$file"; } 2>/dev/null || return 0
  if [[ -z ${fds[$1]-} ]]; then
    ((${#fds[@]} < MOST_OPEN)) || return 1
    { exec {fd}<"$file"; } 2>/dev/null || return 0
    fds[$1]=$fd rest[$1]='' had[$1]=0
  fi
  fd=${fds[$1]}
  for ((turn = 0; turn < CHUNKS; turn++)); do
    # A null byte ends a chunk as well, and is left out.
    IFS= read -r -d '' -n "$CHUNK_CHARACTERS" -u "$fd" chunk
    local code=$?
    [[ -n $chunk || $code -eq 0 ]] || return 0
    chunk=${rest[$1]}$chunk
    if [[ $chunk == *$'\n'* ]]; then
      mapfile -t lines <<<"${chunk%$'\n'*}"
      print_lines "$1" "${lines[@]}"
    elif ((${#chunk} > LONGEST_LINE)); then
      print_lines "$1" "$chunk"
      chunk=''
    fi
    rest[$1]=${chunk##*$'\n'}
    ((code == 0)) || return 0
  done
  more=yes
  return 1
}

# print_lines NAME LINE...: except those that were read before.
print_lines() {
  local name=$1 known=$((${skip[$1]-0} - had[$1]))
  shift
  had[$name]=$((had[$name] + $#))
  ((known <= 0)) || shift "$((known < $# ? known : $#))"
  (($#)) || return 0
  printf "log $name %s\n" "$@" 2>/dev/null || exit 0
}

# close_log NAME: print the unfinished line, and close it. It is not read again, unless the task is requeued.
close_log() {
  local fd=${fds[$1]-}
  if [[ -n $fd ]]; then
    [[ -z ${rest[$1]} ]] || print_lines "$1" "${rest[$1]}"
    exec {fd}<&-
    skip[$1]=${had[$1]}
  fi
  unset "fds[$1]" "files[$1]" "rest[$1]" "had[$1]"
}

# If this fails, nobody is reading any more.
say() { printf '%s\n' "$1" 2>/dev/null || exit 0; }

beat() {
  ((SECONDS >= heartbeat_at)) || return 0
  say .
  heartbeat_at=$((SECONDS + HEARTBEAT_SECONDS))
}

# Wait for a second. Return 1 when the launcher is gone: it sends nothing, but keeps standard input open.
hear() {
  local code
  read -r -t 1
  code=$?
  ((code == 0 || code > 128))
}

main "$@"
exit
