#!/bin/bash
# Report this session's state in a course's class folder, for the teacher; and act on the teacher's notice there.
#
#   bash heartbeat.sh SESSION_DIR CLASS_FOLDER COURSE_FOLDER PID PROGRAM
#
# PID is the process of the job's script, PROGRAM that of JupyterLab. In CLASS_FOLDER/USER, which belongs to the user
# and is not writable by others, it maintains
#
#   heartbeat.json     the job's id and state, with times: no token, no port, no path, no file name
#   results.jsonl      what the notebooks in COURSE_FOLDER have recorded with timing.py
#
# and it reads CLASS_FOLDER/end, which counts only if it belongs to the owner of the folder. See docs/classroom.md.
# Failures here have no effect on the session.

# Bash's default shell options, whatever BASH_ENV and SHELLOPTS say; the same lines are in every script.
[[ -n ${users_options[1]+set} ]] ||
  users_options=("$SHELLOPTS" "$BASHOPTS" "${POSIXLY_CORRECT+$(compgen -e POSIXLY_CORRECT || :)}")
set +o posix; set +aefkmuvCET -B +o pipefail; trap - DEBUG ERR RETURN; [[ -n ${BASH_XTRACEFD-} ]] || set +x
shopt -u failglob nullglob dotglob nocaseglob nocasematch expand_aliases execfail lastpipe xpg_echo
IFS=$' \t\n'; unset GLOBIGNORE

readonly BEAT_SECONDS=${NBL_HEARTBEAT_SECONDS:-30}
# Results are collected at every so many heartbeats, and at the end; of all together, the last bytes are kept.
readonly RESULTS_EVERY=4 MOST_RESULTS=1000000
# Seconds between two checks of the state and of the notice; `classroom end` waits until all can have seen it.
readonly HEED_SECONDS=5
# Seconds that JupyterLab may take to end when the teacher has ended the class.
readonly END_SECONDS=30

main() {
  [[ $# == 5 && $4 =~ ^[1-9][0-9]*$ && $5 =~ ^[1-9][0-9]*$ ]] || usage
  dir=${1%/} class=${2%/} course=$3 root=$4 program=$5
  # shellcheck source=jobscripts/lib/lib.sh
  source "$(dirname -- "${BASH_SOURCE[0]}")/lib.sh"
  umask 027
  find_job_id
  ending='' beats=0 state='' since='' results=none notice='' ends_at=''
  trap 'ending=yes' TERM INT HUP
  trap '' XFSZ USR1 USR2 # LSF sends USR2 to all processes of a job that ends; the job's script reports how
  open_own_folder || exit 1
  until [[ -n $ending ]] || ! kill -0 "$root" 2>/dev/null; do
    beat
    ((beats++ % RESULTS_EVERY)) || copy_results
    await_next
  done
  copy_results
  beat
}

usage() {
  printf 'usage: heartbeat.sh SESSION_DIR CLASS_FOLDER COURSE_FOLDER PID PROGRAM\n' >&2
  exit 2
}

# ------------------------------------------------------------------------------------------------- the user's folder

# Enter the user's own folder in the class folder: from here on, no path leads through a folder that others may change.
open_own_folder() {
  local name group place
  name=$(id -un)
  [[ -n $name && $name != */* && $name != .* && -d $class ]] ||
    { log "the class folder $class is not there on $(uname -n): the teacher does not see this session"; return 1; }
  mkdir -m 0750 -- "$class/$name" 2>/dev/null
  # Check the directory that was entered, not what the name refers to now: it may have been a link.
  { exec {place}<"$class" && cd -P -- "$class/$name" && [[ -O . && .. -ef /dev/fd/$place && ! -L $class/$name ]]; } \
    2>/dev/null ||
    { log "$class/$name is not a folder of this user: the teacher does not see this session"; return 1; }
  exec {place}<&-
  # If the class folder is setgid, the group is right already.
  group=$(stat -c %g -- "$class" 2>/dev/null)
  [[ -z $group ]] || chgrp -- "$group" . 2>/dev/null
  chmod g-w,o-rwx . 2>/dev/null
}

# put FILE: replace a file in the user's folder by standard input.
put() {
  local new=.$1.new.$$
  if cat >"$new" && mv -f -- "$new" "$1"; then return 0; fi
  rm -f -- "$new" 2>/dev/null
  return 1
} 2>/dev/null

# ------------------------------------------------------------------------------------------------- reports

beat() {
  local now cause='' code=''
  utc_now
  now=$REPLY
  find_state
  [[ $state == "${was-}" ]] || since=$now
  was=$state
  [[ $state != ended ]] || read_end
  printf '{"version":1,"job":"%s","state":"%s","since":"%s","written":"%s","interval":%d%s%s}\n' \
    "${job_id//[!0-9]/}" "$state" "$since" "$now" "$BEAT_SECONDS" "${cause:+,\"cause\":\"$cause\"}" \
    "${code:+,\"exit_code\":$code}" | put heartbeat.json
}

find_state() {
  if [[ -e $dir/exit.json ]]; then state=ended
  elif [[ -e $dir/idle.json ]]; then state=idle
  elif [[ -e $dir/endpoint.json ]]; then state=running
  else state=starting
  fi
}

# Of exit.json use only words and numbers: its sentence may contain paths of the user.
read_end() {
  read_line "$dir/exit.json" || return 0
  [[ ! $REPLY =~ \"cause\":\"([a-z-]{1,40})\" ]] || cause=${BASH_REMATCH[1]}
  [[ ! $REPLY =~ \"exit_code\":([0-9]{1,3})[,}] ]] || code=${BASH_REMATCH[1]}
}

# Copy the results recorded in the course's folder, if they have changed. These files belong to the user, as do the
# copies.
copy_results() {
  local files=() file stamps
  [[ -d $course ]] || return 0
  while IFS= read -r -d '' file; do files+=("$file"); done < <(
    find "$course" -maxdepth 3 -type f -name results.jsonl -print0 2>/dev/null | LC_ALL=C sort -z)
  ((${#files[@]})) || return 0
  stamps=$(stat -c '%i %s %Y' -- "${files[@]}" 2>/dev/null)
  [[ $stamps != "$results" ]] || return 0
  # A line that is cut off at its beginning is counted as damaged.
  tail -q -c "$MOST_RESULTS" -- "${files[@]}" 2>/dev/null | tail -c "$MOST_RESULTS" | put results.jsonl && results=$stamps
}

# ------------------------------------------------------------------------------------------------- the teacher's notice

# Wait for the next heartbeat, a change of state, or the time at which the teacher ends the class.
await_next() {
  local waited now
  for ((waited = 0; waited < BEAT_SECONDS; waited++)); do
    [[ -z $ending ]] || return 0
    if ((waited % HEED_SECONDS == 0)); then
      find_state
      [[ $state == "$was" ]] || return 0
      heed_teacher
    fi
    printf -v now '%(%s)T' -1
    [[ -z $ends_at ]] || ((now < ends_at)) || end_session
    pause 1
  done
}

# Read the file `end`: lines of key=value. It counts if it belongs to the owner of the class folder, in which only that
# owner can replace it (the sticky bit), and if it names this job.
heed_teacher() {
  local file=$class/end line ends='' jobs='' text='' version=''
  [[ -f $file && ! -L $file && -k $class ]] || { forget_notice; return 0; }
  # A student's file is ignored, and does not keep a notice in effect that the teacher has withdrawn.
  [[ $(stat -c %u -- "$file" 2>/dev/null) == "$(stat -c %u -- "$class" 2>/dev/null)" ]] || { forget_notice; return 0; }
  while IFS= read -r line; do
    case $line in
      version=*) version=${line#*=} ;;
      ends=*)    ends=${line#*=} ;;
      jobs=*)    jobs=" ${line#*=} " ;;
      message=*) text=${line#*=} ;;
    esac
  done < <(head -c 65536 -- "$file" 2>/dev/null)
  [[ $version == 1 && $ends =~ ^[1-9][0-9]{0,11}$ && $jobs == *" ${job_id//[!0-9]/} "* ]] || { forget_notice; return 0; }
  ends_at=$ends
  text=${text//[[:cntrl:]]/ } # it is written to the log, which is read in a terminal
  [[ $notice != "$ends $text" ]] || return 0
  notice="$ends $text"
  json_string "${text:0:500}"
  write_file "$dir/notice.json" "{\"version\":1,\"message\":$REPLY,\"ends\":\"$(date -u -d "@$ends" +%Y-%m-%dT%H:%M:%SZ)\"}"
  log "the teacher ends the class: ${text:0:500}"
}

# The teacher has withdrawn the notice, or it names other jobs.
forget_notice() {
  [[ -n $notice ]] || return 0
  notice='' ends_at=''
  rm -f -- "$dir/notice.json"
}

# JupyterLab ends its kernels itself; if it does not, the job does.
end_session() {
  local waited
  write_file "$dir/runtime/cause" 'class-ended The teacher has ended the class.'
  kill -TERM -- "-$program" 2>/dev/null || kill -TERM "$program" 2>/dev/null
  for ((waited = 0; waited < END_SECONDS; waited++)); do
    [[ ! -e $dir/exit.json && -z $ending ]] || return 0
    pause 1
  done
  kill -TERM "$root" 2>/dev/null
  ending=yes
}

main "$@"
