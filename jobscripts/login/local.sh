#!/bin/bash
# A minimal scheduler for a machine without one: runs the same job script in the background.
#
#   local.sh submit --root ROOT --id ID --time SECONDS [--begin EPOCH] [--name NAME] [--output FILE] -- SCRIPT [ARG...]
#   local.sh queue  --root ROOT [ID...]
#   local.sh cancel --root ROOT ID...
#
# `submit` prints ID once a supervisor has taken over the job. This process runs in its own session, outlives the
# terminal, starts the job at its begin time, ends it at its walltime (0: none), and leaves no process behind. `queue`
# prints ID|STATE|REASON|NODE|START|END|EXIT, with times in seconds since 1970; times in the future are planned ones.
# STATE is PENDING, RUNNING, COMPLETED, FAILED, CANCELLED, TIMEOUT, or NODE_FAIL if the supervisor has disappeared, for
# instance after a reboot.
#
# The job has NBL_JOB_ID=ID in its environment. The state is one line in ROOT/ID/local.state:
# STATE PID PID_START BEGIN START END EXIT NODE; PID is the supervisor's, and - stands for unknown values.

# Bash's default shell options, whatever BASH_ENV and SHELLOPTS say; the same lines are in every script.
[[ -n ${users_options[1]+set} ]] ||
  users_options=("$SHELLOPTS" "$BASHOPTS" "${POSIXLY_CORRECT+$(compgen -e POSIXLY_CORRECT || :)}")
set +o posix; set +aefkmuvCET -B +o pipefail; trap - DEBUG ERR RETURN; [[ -n ${BASH_XTRACEFD-} ]] || set +x
shopt -u failglob nullglob dotglob nocaseglob nocasematch expand_aliases execfail lastpipe xpg_echo
IFS=$' \t\n'; unset GLOBIGNORE

set -u

# Seconds from TERM to KILL.
readonly GRACE_SECONDS=${NBL_GRACE_SECONDS:-10}

# In a session directory, all scripts are in the same folder.
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
  # In a notebook of another session, these identify its processes. The new job does not belong to it.
  unset NBL_RUN NBL_LOCAL_RUN NBL_SESSION_DIR NBL_JOB_ID SLURM_JOB_ID PBS_JOBID LSB_JOBID JOB_ID
  # With job control, because without it the shell makes background processes ignore SIGINT permanently.
  find_inherited_options
  set -m
  in_new_session ${as_inherited[@]+"${as_inherited[@]}"} "$BASH" "$here/local.sh" supervise --root "$root" --id "$id" \
    --time "$limit" --begin "$begin" --name "$name" -- "${arguments[@]}" </dev/null >>"$output" 2>&1 &
  set +m
}

# macOS has no setsid command. The leader of a process group, as which the shell started us, must fork first.
in_new_session() {
  if type -P setsid >/dev/null; then
    exec setsid "$@"
  else
    exec perl -e 'use POSIX; exit if fork; POSIX::setsid(); exec @ARGV or die $!' "$@"
  fi
}

# A job can be queried and cancelled only once its supervisor has written its state.
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
  # Recorded first, so that a job that ends at once is not still shown as pending.
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

# End remaining processes of the job, with TERM first, because Jupyter must end its kernels. If they have had their time
# already, they get one more second.
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

# Set tagged to all processes of the job: those of our session, and those with the job's id in their environment.
list_job() {
  local file process stat
  list_tagged "NBL_LOCAL_RUN=$id:$pid"
  [[ -e /proc/self/stat ]] || { list_group; return; }
  for file in /proc/[0-9]*/stat; do
    { read -r stat <"$file"; } 2>/dev/null || continue
    process=${file#/proc/} process=${process%/stat}
    # After the command's name in parentheses, which may contain anything: state, parent, group, session.
    [[ ${stat##*) } =~ ^[^Z]\ [0-9]+\ [0-9]+\ "$pid"\  && $process != "$pid" ]] && tagged+=("$process")
  done
}

# Without /proc, only the job's process group can be found.
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

# recall ID: set state and the other fields of its line; detects a supervisor that has disappeared.
recall() {
  id=$1
  read_state || return
  if ! is_over && [[ $where == "$node" ]] && ! is_supervised; then
    read_state   # it may have just ended normally
    is_over || declare_lost
  fi
}

read_state() {
  read_line "$root/$id/local.state" || return
  read -r state pid pid_start begin start end exit_code where _ <<<"$REPLY"
}

is_over() { [[ $state != PENDING && $state != RUNNING ]]; }

# The process id alone is not enough: after a reboot it may belong to another process.
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

# process_start PID: print its start time, as one word that no later process with this id can have.
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
