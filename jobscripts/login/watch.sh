#!/bin/bash
# Tell over one ssh channel what happens in a session directory, as soon as it happens.
#
#   bash watch.sh SESSION_DIR
#
# Printed lines:   started JSON   endpoint JSON   exit JSON     one of the job's files is there, or has changed
#                  gone started (endpoint, exit, progress, staging)      it was removed: the job went back into the queue
#                  apps JSON                                    how the programs beside JupyterLab are (runtime/apps.json)
#                  progress JSON                                how far a notebook has come that is run
#                  staging JSON                                 how far the environment is copied to the node
#                  idle JSON   gone idle                        nobody uses the session; it is used again
#                  unsaved JSON                                 what pages of JupyterLab could not save
#                  notice JSON                                  what the teacher of a course says to the session
#                  renew JSON                                   a page of JupyterLab asks for the next job
#                  next_job JSON                                the job that goes on from this session is queued
#                  usage ROW|ROW                                the newest sample of usage.csv, a row for each GPU
#                  deleted                                      the session directory is gone; nothing more will come
#                  .                                            every 2 s: still here
#
# Ends when standard input ends or standard output breaks, so a lost connection leaves nothing on the login node. Its
# loop starts no process: to wait is to read from standard input, and the shell reads files itself.

# Bash's default shell options, whatever BASH_ENV and SHELLOPTS say; the same lines are in every script.
[[ -n ${users_options[1]+set} ]] ||
  users_options=("$SHELLOPTS" "$BASHOPTS" "${POSIXLY_CORRECT+$(compgen -e POSIXLY_CORRECT || :)}")
set +o posix; set +aefkmuvCET -B +o pipefail; trap - DEBUG ERR RETURN; [[ -n ${BASH_XTRACEFD-} ]] || set +x
shopt -u failglob nullglob dotglob nocaseglob nocasematch expand_aliases execfail lastpipe xpg_echo
IFS=$' \t\n'; unset GLOBIGNORE

set -u

readonly HEARTBEAT_SECONDS=2

# Twenty looks a second are for the moments between the job's start and JupyterLab's; and ten for the first moments of a
# watch, as a job may start as soon as it is queued, and of a notebook's run, which may be over soon. When these get long,
# the file server deserves some rest; and more of it where nothing has changed for long, as with a job that waits for hours.
readonly EAGER_SECONDS=30 FIRST_SECONDS=10
readonly QUIET_SECONDS=600 REST_SECONDS=5

# usage.csv is read on so often: soon after a new sample, and ever more rarely while there is none.
readonly USAGE_SECONDS=2 USAGE_REST_SECONDS=10
# A file without anything new for so long is opened again: it may have been cut short.
readonly USAGE_PATIENCE_SECONDS=60
# None of the job's files is nearly as long; the compute node that writes them may be anybody's.
readonly MOST_CHARACTERS=1000000
# No node has more GPUs, and so no sample more rows. These many characters hold them; more is never kept.
readonly USAGE_ROWS=64 USAGE_CHARACTERS=32768
# The newest sample is at the end, and the first time that may be after a week's: 4 MB are read at each look.
readonly USAGE_READS=128

main() {
  dir=${1%/}
  declare -gA content=([started]='' [staging]='' [endpoint]='' [apps]='' [progress]='' [exit]='' [idle]='' [notice]=''
    [unsaved]='' [renew]='' [next_job]='') found=()
  eager_until=0
  changed_at=0
  look_due=0
  heartbeat_at=0
  usage_fd='' usage_due=0 usage_pause=$USAGE_SECONDS usage_told=''
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
  # shellcheck disable=SC2034
  [[ ! -e $dir/apps.json ]] || listing=("$dir"/runtime/*)
  # Read in the reverse of the order in which the job writes them, and told in that order: whatever was there when a file
  # was written is read after it, and told before it.
  for name in next_job renew notice unsaved idle exit progress apps endpoint staging started; do read_file "$name"; done
  for name in started staging endpoint apps progress unsaved exit idle notice renew next_job; do tell "$name"; done
  ((SECONDS < usage_due)) || look_at_usage
  look_due=0
  ((SECONDS < changed_at + QUIET_SECONDS)) || look_due=$((SECONDS + REST_SECONDS))
}

read_file() {
  local file=$dir/$1.json line='' others LC_ALL=C
  # In the session directory itself, a file of this name says which programs are to be started.
  [[ $1 != apps ]] || file=$dir/runtime/apps.json
  # Up to the first zero byte: a bounded read passes over zero bytes without counting them. It is read that takes the
  # first line: ${line%%pattern} takes 10 s for a megabyte without a newline.
  # shellcheck disable=SC2034
  [[ ! -f $file || -L $file ]] || { IFS=$'\n' read -r -d '' -n "$MOST_CHARACTERS" line others <"$file"; } 2>/dev/null
  found[$1]=$line
}

# Say what a file has now, if that is new.
tell() {
  local name=$1 line=${found[$1]} LC_ALL=C
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

# Tell the newest sample, if it is new. What was read once is not read again: the file stays open.
look_at_usage() {
  local row sample=''
  open_usage
  [[ -z $usage_fd ]] || read_usage || return 0   # the rest at the next look
  for row in ${usage_rows[@]+"${usage_rows[@]}"}; do sample+=${sample:+|}$row; done
  if [[ -z $sample || $sample == "$usage_told" ]]; then
    ((usage_pause >= USAGE_REST_SECONDS)) || ((usage_pause++))
  else
    say "usage $sample"
    usage_told=$sample usage_pause=$USAGE_SECONDS usage_news_at=$SECONDS
  fi
  usage_due=$((SECONDS + usage_pause))
}

# Open usage.csv where it is not the file that is open already. An NFS client asks anew for a file's end when the file is
# opened, and so it is, each time.
open_usage() {
  local file=$dir/usage.csv
  if [[ -f $file && ! -L $file ]] && { : <"$file"; } 2>/dev/null; then
    [[ -n $usage_fd && $file -ef /dev/fd/$usage_fd ]] &&
      ((SECONDS < usage_news_at + USAGE_PATIENCE_SECONDS)) && return
  fi
  [[ -z $usage_fd ]] || exec {usage_fd}<&-
  usage_fd='' usage_text='' usage_rows=() usage_news_at=$SECONDS
  [[ ! -f $file || -L $file ]] || { exec {usage_fd}<"$file"; } 2>/dev/null || usage_fd=''
}

# Read on, keeping what the file ends with. Return 1 while there is more of it.
read_usage() {
  local turn chunk LC_ALL=C
  for ((turn = 0; turn < USAGE_READS; turn++)); do
    if IFS= read -r -d '' -n "$USAGE_CHARACTERS" -u "$usage_fd" chunk; then keep_usage "$chunk"; continue; fi
    [[ -z $chunk && $turn -eq 0 ]] || { keep_usage "$chunk"; take_rows; }
    return 0
  done
  return 1
}

keep_usage() {
  usage_text+=$1
  ((${#usage_text} <= USAGE_CHARACTERS)) || usage_text=${usage_text: -USAGE_CHARACTERS}
}

# Set usage_rows to the rows of the newest sample; they begin with the same two fields. What comes after the last newline
# is still being written, and a row that was cut short does not begin with a date.
take_rows() {
  local row rows=() IFS=$'\n'
  usage_rows=()
  [[ $usage_text == *$'\n'* ]] || return 0
  set -f
  # shellcheck disable=SC2206
  rows=(${usage_text%$'\n'*})
  set +f
  ((${#rows[@]} <= USAGE_ROWS)) || rows=("${rows[@]: -USAGE_ROWS}")
  for row in ${rows[@]+"${rows[@]}"}; do
    [[ $row =~ ^[0-9]{4}-[^,]*,[0-9.]+, ]] || continue
    [[ ${usage_rows[0]-} == "${BASH_REMATCH[0]}"* ]] || usage_rows=()
    usage_rows+=("$row")
  done
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
  if [[ -n ${content[started]} && -z ${content[endpoint]}${content[progress]}${content[exit]} ]]; then
    pace=0.25
    ((SECONDS >= eager_until)) || pace=0.05
  elif [[ -z ${content[started]} ]] && ((SECONDS < FIRST_SECONDS)); then
    pace=0.1
  elif [[ -n ${content[progress]} && -z ${content[exit]} ]] && ((SECONDS < eager_until)); then
    pace=0.1
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
