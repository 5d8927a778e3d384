#!/bin/bash
# A tiny scheduler for a machine that has none: the same job script, started in the background.
#
#   local.sh submit --root ROOT --id ID --time SECONDS [--begin EPOCH] [--name NAME] [--output FILE] -- SCRIPT [ARG...]
#   local.sh queue  --root ROOT [ID...]
#   local.sh cancel --root ROOT ID...
#
# `submit` prints ID once the job is in good hands: those of a supervisor, a process of its own session that outlives
# the terminal, starts the job at its time, ends it at its walltime (0: none) and leaves no process behind.
# `queue` prints ID|STATE|REASON|NODE|START|END|EXIT, with times in seconds since 1970; START and END are the planned
# ones as long as they lie ahead. STATE is PENDING, RUNNING, COMPLETED, FAILED, CANCELLED, TIMEOUT, or NODE_FAIL where
# the supervisor has vanished without a word, as after a reboot.
#
# The job has NBL_JOB_ID=ID in its environment. All that is remembered is one line in ROOT/ID/local.state:
# STATE PID PID_START BEGIN START END EXIT NODE, of the supervisor, with - for what is not known.

# Shell options as bash has them by itself, whatever BASH_ENV and SHELLOPTS bring: the same lines in every script.
[[ -n ${users_options[1]+set} ]] ||
  users_options=("$SHELLOPTS" "$BASHOPTS" "${POSIXLY_CORRECT+$(compgen -e POSIXLY_CORRECT || :)}")
set +o posix; set +aefkmuvCET -B +o pipefail; trap - DEBUG ERR RETURN; [[ -n ${BASH_XTRACEFD-} ]] || set +x
shopt -u failglob nullglob dotglob nocaseglob nocasematch expand_aliases execfail lastpipe xpg_echo
IFS=$' \t\n'; unset GLOBIGNORE

set -u

# How long a job has from TERM to KILL.
readonly GRACE_SECONDS=${NBL_GRACE_SECONDS:-10}

# In a session directory all lies side by side.
library() {
  if [[ -r $here/lib.sh ]]; then printf '%s\n' "$here/lib.sh"; else printf '%s\n' "$here/../lib/lib.sh"; fi
}

main() {
  here=$(CDPATH="" cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)
  # shellcheck source=jobscripts/lib/lib.sh
  source "$(library)"
  node=$(uname -n)
  local action=${1-}
  shift
  read_options "$@"
  case $action in
    submit)    submit ;;
    queue)     queue ;;
    cancel)    cancel ;;
    supervise) supervise ;;
    *)         refuse "unknown action '$action': submit, queue or cancel" ;;
  esac
}

refuse() {
  printf 'local.sh: %s\n' "$1" >&2
  exit 2
}

read_options() {
  root='' id='' limit='' begin=0 name='' output='' arguments=()
  while (($#)); do
    case $1 in
      --root)   root=${2-} ;;
      --id)     id=${2-} ;;
      --time)   limit=${2-} ;;
      --begin)  begin=${2-} ;;
      --name)   name=${2-} ;;
      --output) output=${2-} ;;
      --)       shift; arguments+=("$@"); break ;;
      -*)       refuse "unknown option $1" ;;
      *)        arguments+=("$1"); shift; continue ;;
    esac
    (($# > 1)) || refuse "$1 needs a value"
    shift 2
  done
  [[ -n $root ]] || refuse "--root is missing"
}

# --------------------------------------------------------------------------------------------------------- submit

submit() {
  [[ $id =~ ^[0-9A-Za-z][0-9A-Za-z._-]*$ ]] || refuse "--id '$id' must consist of letters, digits and . _ -"
  [[ $limit =~ ^[0-9]+$ && $begin =~ ^[0-9]+$ ]] || refuse "--time and --begin must be whole numbers of seconds"
  ((${#arguments[@]})) || refuse "no script given"
  (umask 077 && mkdir -p -- "$root/$id") || exit 1
  [[ ! -e $root/$id/local.state ]] || refuse "there has been a job $id already"
  output=${output:-$root/$id/job.log}
  start_supervisor || exit 1
  await_supervisor
  printf '%s\n' "$id"
}

start_supervisor() {
  # In a notebook of another session these tell whose process it is. The new job is nobody's.
  unset NBL_RUN NBL_LOCAL_RUN NBL_SESSION_DIR NBL_JOB_ID SLURM_JOB_ID PBS_JOBID LSB_JOBID JOB_ID
  # With job control, because the shell lets other background processes ignore the interrupt signal for good.
  find_inherited_options
  set -m
  in_new_session ${as_inherited[@]+"${as_inherited[@]}"} "$BASH" "$here/local.sh" supervise --root "$root" --id "$id" \
    --time "$limit" --begin "$begin" --name "$name" -- "${arguments[@]}" </dev/null >>"$output" 2>&1 &
  set +m
}

# macOS has no setsid command. A process group's leader, as which the shell started us, has to fork before.
in_new_session() {
  if type -P setsid >/dev/null; then
    exec setsid "$@"
  else
    exec perl -e 'use POSIX; exit if fork; POSIX::setsid(); exec @ARGV or die $!' "$@"
  fi
}

# Only a job whose supervisor has spoken can be queried and cancelled.
await_supervisor() {
  local tries
  for ((tries = 0; tries < 200; tries++)); do
    [[ -e $root/$id/local.state ]] && return
    pause 0.05
  done
  printf 'local.sh: the job did not start within 10 seconds, see %s\n' "$output" >&2
  exit 1
}

# ----------------------------------------------------------------------------------------------------- supervisor

supervise() {
  users_umask=$(umask)
  umask 077
  requested='' start=- end=- exit_code=- kill_at=''
  trap 'requested=CANCELLED' TERM
  trap : HUP INT   # handlers, and not '': the job would inherit ignored signals
  pid=$$ pid_start=$(process_start $$)
  await_begin
  if [[ -z $requested ]]; then
    start_job
    await_job
    clear_away
  fi
  get_time
  end=$now
  remember "${requested:-$(end_state)}"
}

await_begin() {
  get_time
  ((now < begin)) || return 0
  remember PENDING
  while get_time; ((now < begin)) && [[ -z $requested ]]; do pause 0.5; done
}

start_job() {
  get_time
  start=$now
  ((limit)) && end=$((now + limit))
  export NBL_JOB_ID=$id NBL_JOB_NAME=$name NBL_LOCAL_RUN=$id:$pid
  # Remembered first: a job that is over at once is over, and not still to come.
  remember RUNNING
  set -m
  (
    umask "$users_umask"
    find_inherited_options
    [[ -x ${arguments[0]} ]] || as_inherited+=("$BASH")
    exec ${as_inherited[@]+"${as_inherited[@]}"} "${arguments[@]}"
  ) &
  job=$!
  set +m
}

await_job() {
  while kill -0 "$job" 2>/dev/null; do
    get_time
    if [[ -z $requested && $end != - ]] && ((now >= end)); then requested=TIMEOUT; fi
    if [[ -n $requested ]]; then
      end_job
      break
    fi
    pause 0.2
  done
  wait "$job" 2>/dev/null
  exit_code=$?
}

end_job() {
  kill -TERM -- "-$job" 2>/dev/null
  get_time
  kill_at=$((now + GRACE_SECONDS))
  while kill -0 "$job" 2>/dev/null && ((now < kill_at)); do
    pause 0.1
    get_time
  done
  kill -KILL -- "-$job" 2>/dev/null
}

# End what the job has left behind, if anything: politely, as Jupyter has kernels of its own to end. What had its time
# already gets one more second.
clear_away() {
  list_job
  ((${#tagged[@]})) || return 0
  kill -TERM "${tagged[@]}" 2>/dev/null
  get_time
  kill_at=${kill_at:-$((now + GRACE_SECONDS))}
  ((kill_at > now + 1)) || kill_at=$((now + 2))
  while ((${#tagged[@]} && now < kill_at)); do
    pause 0.1
    list_job
    get_time
  done
  ((${#tagged[@]})) && kill -KILL "${tagged[@]}" 2>/dev/null
}

# Set tagged to all processes of the job: those of our session, and those that have the job's name in their environment.
list_job() {
  local file process stat
  list_tagged "NBL_LOCAL_RUN=$id:$pid"
  [[ -e /proc/self/stat ]] || { list_group; return; }
  for file in /proc/[0-9]*/stat; do
    { read -r stat <"$file"; } 2>/dev/null || continue
    process=${file#/proc/} process=${process%/stat}
    # The command's name comes before, in parentheses, and may hold anything; then state, parent, group, session.
    [[ ${stat##*) } =~ ^[^Z]\ [0-9]+\ [0-9]+\ "$pid"\  && $process != "$pid" ]] && tagged+=("$process")
  done
}

# Where there is no /proc only the job's process group can be found.
list_group() {
  local process group
  while read -r process group; do
    [[ $group == "${job-}" ]] && tagged+=("$process")
  done < <(ps -A -o pid= -o pgid=)
}

end_state() { if ((exit_code)); then printf FAILED; else printf COMPLETED; fi; }

# ---------------------------------------------------------------------------------------------------- local.state

remember() {
  write_file "$root/$id/local.state" "$1 $pid $pid_start $begin $start $end $exit_code $node"
}

# recall ID: set state and the other fields of its line; a supervisor that has vanished is found out here.
recall() {
  id=$1
  read_state || return
  if ! is_over && [[ $where == "$node" ]] && ! is_supervised; then
    read_state   # it may have ended well just now
    is_over || declare_lost
  fi
}

read_state() {
  read_line "$root/$id/local.state" || return
  read -r state pid pid_start begin start end exit_code where _ <<<"$REPLY"
}

is_over() { [[ $state != PENDING && $state != RUNNING ]]; }

# The number alone says little: after a reboot it belongs to some other process.
is_supervised() { kill -0 "$pid" 2>/dev/null && [[ $(process_start "$pid") == "$pid_start" ]]; }

declare_lost() {
  list_tagged "NBL_LOCAL_RUN=$id:$pid"
  if ((${#tagged[@]})); then
    kill -TERM "${tagged[@]}" 2>/dev/null
    pause 1
    list_tagged "NBL_LOCAL_RUN=$id:$pid"
    ((${#tagged[@]})) && kill -KILL "${tagged[@]}" 2>/dev/null
  fi
  get_time
  state=NODE_FAIL end=$now
  remember NODE_FAIL
}

# process_start PID: print when it was started, in one word that no later process of this number will have.
process_start() {
  local stat boot='' fields
  if [[ -r /proc/$1/stat ]]; then
    read -r stat <"/proc/$1/stat"
    read -r boot </proc/sys/kernel/random/boot_id
    read -r -a fields <<<"${stat##*) }"
    printf '%s.%s\n' "${boot%%-*}" "${fields[19]}"   # field 22 of proc(5)
  else
    ps -o lstart= -p "$1" | tr -s ' ' _
  fi 2>/dev/null
}

# Set now to the seconds since 1970.
get_time() { printf -v now '%(%s)T' -1; }

# --------------------------------------------------------------------------------------------------- queue, cancel

queue() {
  local one reason missing=0
  ((${#arguments[@]})) || list_ids
  for one in ${arguments[@]+"${arguments[@]}"}; do
    recall "$one" || { unknown "$one"; missing=1; continue; }
    reason=None
    [[ $state == PENDING ]] && reason=BeginTime start=$begin
    printf '%s|%s|%s|%s|%s|%s|%s\n' "$one" "$state" "$reason" "$where" "${start#-}" "${end#-}" "${exit_code#-}"
  done
  return "$missing"
}

list_ids() {
  local file
  for file in "$root"/*/local.state; do
    [[ -e $file ]] && file=${file%/local.state} && arguments+=("${file##*/}")
  done
}

unknown() { printf 'local.sh: there is no job %s\n' "$1" >&2; }

cancel() {
  local one missing=0
  for one in ${arguments[@]+"${arguments[@]}"}; do
    if ! recall "$one"; then
      unknown "$one"
      missing=1
    elif is_over; then
      :
    elif [[ $where == "$node" ]]; then
      kill -TERM "$pid"
    else
      printf 'local.sh: job %s runs on %s and can only be cancelled there\n' "$one" "$where" >&2
      missing=1
    fi
  done
  return "$missing"
}

main "$@"
exit
