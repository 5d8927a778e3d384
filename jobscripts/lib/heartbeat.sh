#!/bin/bash
# Leave in the class folder of a course how this session is, for the teacher; and do what the teacher asks of it there.
#
#   bash heartbeat.sh SESSION_DIR CLASS_FOLDER COURSE_FOLDER PID PROGRAM
#
# PID is the process of the job's script, PROGRAM that of JupyterLab. In CLASS_FOLDER/USER, which belongs to the user and
# into which nobody else may write, it keeps
#
#   heartbeat.json     the job's number and state, with times: no token, no port, no path, no name of a file
#   results.jsonl      what the notebooks in COURSE_FOLDER have recorded with timing.py
#
# and it reads CLASS_FOLDER/end, which counts only if it belongs to the owner of the folder. docs/classroom.md describes
# all of it. Whatever fails here concerns nobody else: the session goes on.

# Shell options as bash has them by itself, whatever BASH_ENV and SHELLOPTS bring: the same lines in every script.
[[ -n ${users_options[1]+set} ]] ||
  users_options=("$SHELLOPTS" "$BASHOPTS" "${POSIXLY_CORRECT+$(compgen -e POSIXLY_CORRECT || :)}")
set +o posix; set +aefkmuvCET -B +o pipefail; trap - DEBUG ERR RETURN; [[ -n ${BASH_XTRACEFD-} ]] || set +x
shopt -u failglob nullglob dotglob nocaseglob nocasematch expand_aliases execfail lastpipe xpg_echo
IFS=$' \t\n'; unset GLOBIGNORE

readonly BEAT_SECONDS=${NBL_HEARTBEAT_SECONDS:-30}
# Results are looked for at each so many beats, and at the end; of all together, the last bytes are kept.
readonly RESULTS_EVERY=4 MOST_RESULTS=1000000
# So often the state and the teacher's notice are looked for: whoever ends a class waits until all can have seen it.
readonly HEED_SECONDS=5
# How long JupyterLab may take to end when the teacher has ended the class.
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
  trap '' XFSZ USR1 USR2 # by USR2, LSF tells all processes of a job that it ends: how, the script will say
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

# ------------------------------------------------------------------------------------------------- the own folder

# Go into a folder of one's own in the class folder: from here on no name leads through anybody else's hands.
open_own_folder() {
  local name group place
  name=$(id -un)
  [[ -n $name && $name != */* && $name != .* && -d $class ]] ||
    { log "the class folder $class is not there on $(uname -n): the teacher does not see this session"; return 1; }
  mkdir -m 0750 -- "$class/$name" 2>/dev/null
  # Asked where this is, and not what the name leads to by now: it may have been a link a moment ago.
  { exec {place}<"$class" && cd -P -- "$class/$name" && [[ -O . && .. -ef /dev/fd/$place && ! -L $class/$name ]]; } \
    2>/dev/null ||
    { log "$class/$name is not a folder of this user: the teacher does not see this session"; return 1; }
  exec {place}<&-
  # Where the class folder hands its group on (setgid) this is so already.
  group=$(stat -c %g -- "$class" 2>/dev/null)
  [[ -z $group ]] || chgrp -- "$group" . 2>/dev/null
  chmod g-w,o-rwx . 2>/dev/null
}

# put FILE: replace a file in the own folder by what comes in.
put() {
  local new=.$1.new.$$
  if cat >"$new" && mv -f -- "$new" "$1"; then return 0; fi
  rm -f -- "$new" 2>/dev/null
  return 1
} 2>/dev/null

# ------------------------------------------------------------------------------------------------- what is left there

beat() {
  local now cause='' code=''
  now=$(utc_now)
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

# Of exit.json only words and numbers: its sentence may name folders of the user's.
read_end() {
  read_line "$dir/exit.json" || return 0
  [[ ! $REPLY =~ \"cause\":\"([a-z-]{1,40})\" ]] || cause=${BASH_REMATCH[1]}
  [[ ! $REPLY =~ \"exit_code\":([0-9]{1,3})[,}] ]] || code=${BASH_REMATCH[1]}
}

# What has been recorded in the course's folder, if anything has changed. The files are the user's own, and so is this.
copy_results() {
  local files=() file stamps
  [[ -d $course ]] || return 0
  while IFS= read -r -d '' file; do files+=("$file"); done < <(
    find "$course" -maxdepth 3 -type f -name results.jsonl -print0 2>/dev/null | LC_ALL=C sort -z)
  ((${#files[@]})) || return 0
  stamps=$(stat -c '%i %s %Y' -- "${files[@]}" 2>/dev/null)
  [[ $stamps != "$results" ]] || return 0
  # A line that is cut off at the front is no result, and is counted as damaged.
  tail -q -c "$MOST_RESULTS" -- "${files[@]}" 2>/dev/null | tail -c "$MOST_RESULTS" | put results.jsonl && results=$stamps
}

# ------------------------------------------------------------------------------------------------- what is asked there

# Wait for the next beat, or for a change of state, or for the moment at which the teacher ends the class.
await_next() {
  local waited
  for ((waited = 0; waited < BEAT_SECONDS; waited++)); do
    [[ -z $ending ]] || return 0
    if ((waited % HEED_SECONDS == 0)); then
      find_state
      [[ $state == "$was" ]] || return 0
      heed_teacher
    fi
    [[ -z $ends_at ]] || (($(printf '%(%s)T' -1) < ends_at)) || end_session
    pause 1
  done
}

# Read the file `end`: lines of key=value. It counts if it belongs to the owner of the class folder, in which nobody but
# that owner can replace it (the sticky bit), and if it names this job.
heed_teacher() {
  local file=$class/end line ends='' jobs='' text='' version=''
  [[ -f $file && ! -L $file && -k $class ]] || { forget_notice; return 0; }
  # One of a student's is none, and does not keep alive what the teacher has taken back.
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
  text=${text//[[:cntrl:]]/ } # it comes into the log, which is read in a terminal
  [[ $notice != "$ends $text" ]] || return 0
  notice="$ends $text"
  json_string "${text:0:500}"
  write_file "$dir/notice.json" "{\"version\":1,\"message\":$REPLY,\"ends\":\"$(date -u -d "@$ends" +%Y-%m-%dT%H:%M:%SZ)\"}"
  log "the teacher ends the class: ${text:0:500}"
}

# The teacher has changed their mind, or means others.
forget_notice() {
  [[ -n $notice ]] || return 0
  notice='' ends_at=''
  rm -f -- "$dir/notice.json"
}

# JupyterLab ends its kernels itself; where it does not, the job does.
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
