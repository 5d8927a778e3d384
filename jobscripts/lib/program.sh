# shellcheck shell=bash
#
# Starts, awaits and ends the program of a job: JupyterLab, execute.py or a user's script. jupyterlab.sh sources this
# file; it is never run.
#
# shellcheck disable=SC2034,SC2154  # it shares its variables with jupyterlab.sh and lib.sh

# It gets its own process group, so that a signal reaches the container command and all its children, but not this
# script; and the user's umask, for files created in notebooks.
start_program() {
  set -m
  (
    set +m
    umask "$users_umask"
    enter
  ) </dev/null &
  program=$!
  set +m
  # The connections made below may break at any time.
  trap '' PIPE
}

is_running() { [[ -n $program ]] && kill -0 "$program" 2>/dev/null; }

# Checks (some seconds) after which the services start although the program is not ready yet.
readonly LOOKS_UNWATCHED=${NBL_LOOKS_UNWATCHED:-300}

# Wait until JupyterLab answers, or the notebook has been read. Return 1 if the program ends instead.
await_program() {
  local said=15 looks=0 begin=listen
  [[ $want_program != notebook ]] || begin=begin
  SECONDS=0
  until has_begun; do
    [[ -z $signal ]] || leave_on_signal
    is_running || return 1
    # Nothing starts before the image's digest is known, or the environment is copied to this node.
    [[ ! -e $NBL_SESSION_DIR/runtime/taking-digest && ! -e $NBL_SESSION_DIR/runtime/staging ]] || { SECONDS=0 said=15; }
    [[ -n ${holding-} || ! -e $NBL_SESSION_DIR/runtime/staged ]] || hold_staged
    if ((SECONDS > want_start_timeout)); then
      leave jupyter-silent 1 "${program_name^} did not $begin on $node within $want_start_timeout seconds: see the job's log;\
 start_timeout= allows more."
    fi
    if ((SECONDS >= said)); then
      log "waiting for $program_name to $begin ($SECONDS s)"
      ((said += 15))
    fi
    # Until the program is ready, it has the node for itself; but the usage of a slow start is of interest as well.
    ((++looks != LOOKS_UNWATCHED)) || start_watching
    if ((SECONDS < 10)); then pause 0.01; else pause 0.05; fi
  done
}

has_begun() {
  if [[ $want_program == notebook ]]; then [[ -e $NBL_SESSION_DIR/progress.json ]]; else find_server; fi
}

# Read where JupyterLab listens from its runtime file, and try to connect.
find_server() {
  local file text
  local +x token   # not exported, even if the user has a variable of this name
  read_line "$NBL_SESSION_DIR/token"
  token=$REPLY
  for file in "$NBL_SESSION_DIR"/runtime/jpserver-*.json; do
    text=''
    IFS= read -r -d '' text 2>/dev/null <"$file"
    if [[ $text == *\} || $text == *\}$'\n' ]] && is_ready "$text"; then return; fi
  done
  return 1
}

# is_ready RUNTIME_FILE_TEXT: whether a JupyterLab answers; sets the server_* variables to what it reports of itself.
is_ready() {
  local text=$1
  server_pid=0 server_port=0 server_base_url='"/"' server_secure=false
  [[ $text =~ \"pid\":\ *([0-9]+) ]] && server_pid=${BASH_REMATCH[1]}
  [[ $text =~ \"port\":\ *([0-9]+) ]] && server_port=${BASH_REMATCH[1]}
  [[ $text =~ \"base_url\":\ *(\"[^\"]*\") ]] && server_base_url=${BASH_REMATCH[1]}
  [[ $text =~ \"secure\":\ *(true|false) ]] && server_secure=${BASH_REMATCH[1]}
  [[ $text =~ \"hostname\":\ *\"([^\"]*)\" && ${BASH_REMATCH[1]} == "$listen_address" ]] ||
    leave_open_door "listens on other addresses than $listen_address"
  [[ $text == *"\"token\": \"$token\""* ]] || leave_open_door "does not use the session's token"
  ask_as_a_stranger
}

# Succeed if the server answers, and rejects a request without a token. Otherwise other users of the node could get in.
ask_as_a_stranger() {
  local connection status='' path=${server_base_url//\"/}
  { exec {connection}<>"/dev/tcp/$listen_address/$server_port"; } 2>/dev/null || return 1
  printf 'GET %sapi/status?as-a-stranger HTTP/1.0\r\nHost: 127.0.0.1\r\n\r\n' "$path" 2>/dev/null 1>&"$connection"
  read -r -t 3 _ status _ <&"$connection"
  exec {connection}>&-
  [[ $status == 200 ]] && leave_open_door "answers without the token"
  [[ -n $status ]]
}

leave_open_door() {
  leave jupyter-failed 1 "JupyterLab on $node $1, so it was ended at once: look for an unusual setting in ~/.jupyter."
}

# Send TERM, wait some seconds, then send KILL.
end_program() {
  local waited=0
  if is_running; then
    kill -TERM -- "-$program" 2>/dev/null || kill -TERM "$program"
    while ((waited++ < 10 * GRACE_SECONDS)) && is_running; do
      ((waited % 20)) || log "waiting for $program_name to end ($((waited / 10)) s)"
      pause 0.1
    done
    is_running && log "${program_name^} does not end by itself, killing it"
  fi
  [[ -z $program ]] || kill -KILL -- "-$program" 2>/dev/null
}

# End containers, and all other processes that the program has left behind.
end_what_is_left() {
  end_containers
  [[ -n $program || -n $workers_begun || -e $NBL_SESSION_DIR/runtime/podman ]] || is_surveying || return 0
  end_stragglers
}

# A scheduler may kill this script and its children before everything has ended. Podman's pause process is not one of
# these, and would stay for ever: so another detached process waits until the script is gone, and ends what is left. If
# the script reaches its end, end_stragglers ends both.
stand_by_podman() {
  [[ -e $NBL_SESSION_DIR/runtime/podman ]] || return 0
  set -m
  (
    set +m
    trap - TERM
    outlast_job &
  ) </dev/null >/dev/null 2>&1 &
  set +m
}

outlast_job() {
  wait_while 0.1 1200 kill -0 "$$"
  # A script that is still shutting down ends everything itself.
  ! kill -0 "$$" || return 0
  # The container notices that the job is gone (`guard`), and is removed from Podman's storage.
  wait_while 0.1 100 is_conmon_running
  end_tagged "NBL_RUN=$NBL_RUN"
}

# End the containers of the program and of shells (shell.sh).
end_containers() {
  local file files=()
  for file in "$NBL_SESSION_DIR"/runtime/container{,-*}; do [[ ! -e $file ]] || files+=("$file"); done
  ((!${#files[@]})) || end_container "${files[@]}"
}

# Kernels run in their own sessions, and outlive a JupyterLab that is killed; schedulers find them. The process that
# mounts a container's image has its own process group and an empty environment, and outlives a container command that
# is stopped while starting; not every scheduler finds that one (Slurm without cgroups does not), or the process that
# supervises a Podman container.
end_stragglers() {
  local how
  for how in TERM KILL KILL; do
    list_stragglers
    if ((${#stragglers[@]})); then
      kill "-$how" "${stragglers[@]}" 2>/dev/null
    elif [[ -e $NBL_SESSION_DIR/endpoint.json || -e $NBL_SESSION_DIR/progress.json ]]; then
      return 0
    fi
    # A container that was still starting may have started another process meanwhile.
    pause 0.4
  done
}

list_stragglers() {
  tagged=()
  [[ -n ${SLURM_JOB_ID-}${PBS_JOBID-}${LSB_JOBID-} ]] || list_tagged "NBL_RUN=${NBL_RUN-}"
  stragglers=("${tagged[@]}")
  if [[ -e $NBL_SESSION_DIR/runtime/podman ]]; then
    list_tagged "NBL_CONTAINER=$NBL_SESSION_DIR"
    stragglers+=("${tagged[@]}")
  fi
  list_session
  stragglers+=("${members[@]}")
}

# Set members to the ids of all other processes of this job's session; to none if the session is not the job's alone, as
# in a terminal. Schedulers start a batch job as the leader of a session; with Slurm, this script's parent, slurmstepd,
# has started the session; its other members are those of the same step.
list_session() {
  local file session fields
  members=()
  read_stat "/proc/$$/stat"
  session=${fields[3]-}
  [[ $session == "$$" ]] || is_started_by_slurmstepd || return 0
  for file in /proc/[0-9]*/stat; do
    read_stat "$file"
    file=${file#/proc/} file=${file%/stat}
    if [[ ${fields[3]-} == "$session" && $file != "$$" && $file != "$PPID" ]]; then members+=("$file"); fi
  done
}

is_started_by_slurmstepd() { read_line "/proc/$PPID/comm" && [[ $REPLY == slurmstepd ]]; }

wait_for_program() {
  local code
  waiting=yes
  [[ -z $signal ]] || leave_on_signal
  wait "$program" 2>/dev/null
  code=$?
  # A forwarded signal interrupts `wait`, but does not necessarily end the script.
  while [[ -n $passed_on ]]; do
    passed_on=''
    wait "$program" 2>/dev/null
    code=$?
  done
  waiting=''
  # Some schedulers signal all processes of a job: the program may have received the signal first.
  ((code <= 128)) || pause 0.3
  [[ -z $signal ]] || leave_on_signal
  return "$code"
}

# A user's script may handle signals itself: save a checkpoint before the walltime ends (`sbatch --signal=B:USR1@60`),
# and go on. It gets them as if it were the job's own script; only itself or the scheduler's SIGKILL ends it.
pass_signals_on() {
  local name
  for name in USR1 USR2 TERM INT HUP; do
    # shellcheck disable=SC2064
    trap "pass_on $name" "$name"
  done
}

# shellcheck disable=SC2317  # called by the traps
pass_on() {
  [[ $1 == USR* ]] || ended_by=$1
  passed_on=yes
  kill "-$1" "$program" 2>/dev/null
}

# leave_with_script EXIT_CODE
leave_with_script() {
  if [[ -n $ended_by ]]; then
    signal=$ended_by
    leave_on_signal
  elif (($1 == 0)); then
    leave finished 0 "The script $want_script ended with exit code 0."
  elif (($1 > 128)); then
    leave script-failed "$1" "The script $want_script on $node was ended by signal $(($1 - 128)) (exit code $1)."
  else
    leave script-failed "$1" "The script $want_script on $node ended with exit code $1."
  fi
}

# Wait for the program to end, and report why it did.
await_end() {
  local code
  wait_for_program
  code=$?
  [[ $want_program != notebook ]] || await_image_note
  if read_line "$NBL_CAUSE_FILE"; then
    case ${REPLY%% *} in idle | finished | class-ended) leave "${REPLY%% *}" 0 "${REPLY#* }" ;; esac
    leave "${REPLY%% *}" "$((code ? code : 1))" "${REPLY#* }"
  elif ((code)) && [[ -n $want_container && ! -e $NBL_SESSION_DIR/runtime/inside ]]; then
    leave container-failed "$code" "The container command could not run bash in $want_container on $node (exit code\
 $code): see the job's log."
  elif [[ $want_program == notebook ]]; then
    leave_without_a_word "$code"
  elif [[ $want_program == script ]]; then
    leave_with_script "$code"
  elif ((code == 0)); then
    leave finished 0 "JupyterLab was ended by its user."
  elif ((code == 137)); then
    leave jupyter-failed "$code" "JupyterLab on $node was killed, perhaps because it ran out of memory: ask for more."
  else
    leave jupyter-failed "$code" "JupyterLab on $node ended with exit code $code: see the job's log."
  fi
}
