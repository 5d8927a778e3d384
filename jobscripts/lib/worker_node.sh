#!/bin/bash
#
# Run one node's part of a distributed framework in the session's environment: the scheduler, or this node's workers.
#
#   worker_node.sh SESSION_DIR scheduler|workers
#
# Started by workers.sh on each node by a job step. It has two parts: the outer one keeps running, and restarts the
# workers when they end; the inner one (--here) execs the framework's process, in the container if there is one. The
# cause of a failure is written to SESSION_DIR/runtime/cause-ROLE-NODE.
#
# shellcheck disable=SC2154  # want_… and the like are set by lib.sh

# Bash's default shell options, whatever BASH_ENV and SHELLOPTS say; the same lines are in every script.
[[ -n ${users_options[1]+set} ]] ||
  users_options=("$SHELLOPTS" "$BASHOPTS" "${POSIXLY_CORRECT+$(compgen -e POSIXLY_CORRECT || :)}")
set +o posix; set +aefkmuvCET -B +o pipefail; trap - DEBUG ERR RETURN; [[ -n ${BASH_XTRACEFD-} ]] || set +x
shopt -u failglob nullglob dotglob nocaseglob nocasematch expand_aliases execfail lastpipe xpg_echo
IFS=$' \t\n'; unset GLOBIGNORE

# How often workers are restarted when they end, unless they have run for a minute meanwhile.
readonly MOST_TRIES=5

main() {
  case ${1-} in
    --here)   become_part "$2" "$3" "$4" ;;
    '' | -*)  printf 'usage: worker_node.sh SESSION_DIR scheduler|workers\n' >&2; exit 2 ;;
    *)        run_part "${1%/}" "$2" ;;
  esac
}

# know SESSION_DIR ROLE NODE: set the variables that both parts need.
know() {
  role=$2
  export NBL_SESSION_DIR=$1 NBL_NODE_NAME=$3
  export NBL_CAUSE_FILE=$1/runtime/cause-$2-$3 NBL_INSIDE_FILE=$1/runtime/inside-$2-$3
  export NBL_CONTAINER_FILE=$1/runtime/container-$2-$3
  # shellcheck source=jobscripts/lib/enter.sh
  source "$1/enter.sh"
  # shellcheck source=jobscripts/lib/lib.sh
  source "$1/lib.sh"
  node=$3
  read_settings "$1/session.env" 2>/dev/null # the job itself has already reported problems
  # shellcheck source=jobscripts/lib/workers_dask.sh
  source "$1/workers_$want_with.sh"
}

# ================================================================================================= the outer part

run_part() {
  local name way=("$BASH")
  stopped='' child='' name=$(uname -n)
  know "$1" "$2" "$name"
  rm -f -- "$NBL_CAUSE_FILE" "$NBL_INSIDE_FILE"
  trap 'stop' TERM INT HUP USR2
  trap 'clean_up' EXIT
  if read_line "$NBL_SESSION_DIR/runtime/folder"; then cd -- "$REPLY" || :; fi
  find_own_address
  prepare_framework
  if [[ -n $want_container ]]; then
    set_up_node
    prepare_container
    way=("${into_container[@]}" /bin/bash)
  fi
  keep_running "${way[@]}" "$NBL_SESSION_DIR/worker_node.sh" --here "$NBL_SESSION_DIR" "$role" "$name"
}

# A single node needs no network.
find_own_address() {
  find_node_names
  listen_address=127.0.0.1
  if ((NBL_NODES > 1)); then
    find_node_address || fail workers-failed "No address of $node was found that the job's other nodes could reach."
  fi
  export NBL_NODE_ADDRESS=$listen_address
}

# keep_running COMMAND...: restart the workers when they end. Not the scheduler, without which all results are lost.
keep_running() {
  local code since tries=0
  while [[ -z $stopped ]]; do
    since=$SECONDS
    "$@" </dev/null &
    child=$!
    [[ -z $stopped ]] || stop
    until wait "$child"; code=$?; ((code <= 128)) || ! kill -0 "$child" 2>/dev/null; do :; done
    child=''
    [[ -z $stopped && ! -s $NBL_CAUSE_FILE ]] || break
    ((SECONDS - since < 60)) || tries=0
    if [[ -n $want_container && ! -e $NBL_INSIDE_FILE ]]; then
      fail container-failed "The container command could not run bash in $want_container on $node (exit code $code): see\
 the job's log."
    fi
    if [[ $role != workers ]] || ((++tries > MOST_TRIES)); then
      fail workers-failed "$framework_name's $role on $node ended with exit code $code: see the job's log."
    fi
    log "$framework_name's workers on $node ended with exit code $code; starting them again"
    pause "$tries"
  done
}

stop() {
  stopped=yes
  [[ -z $child ]] || kill -TERM "$child" 2>/dev/null
}

# shellcheck disable=SC2317  # called by the trap
clean_up() {
  [[ ! -e $NBL_CONTAINER_FILE ]] || end_container "$NBL_CONTAINER_FILE"
  rm -f -- "$NBL_INSIDE_FILE"
  clean_up_framework
}

# ================================================================================================= the inner part

become_part() {
  know "$1" "$2" "$3"
  write_file "$NBL_INSIDE_FILE" "$$"
  if [[ -n $want_container ]]; then set_up_container; else set_up_node; fi
  activate
  find_framework_python
  set_framework_variables
  find_inherited_options
  exec "${as_inherited[@]}" "$framework_python" -B "$NBL_SESSION_DIR/${want_with}_node.py" "$role"
}

# Set framework_python to the Python of the environment's JupyterLab, or to another one that has the framework.
find_framework_python() {
  local lab
  lab=$(type -P jupyter-lab)
  for framework_python in "$(python_of "$lab")" "${lab:+${lab%/*}/python3}" "$(type -P python3)" "$(type -P python)"; do
    [[ -x $framework_python ]] && has_framework "$framework_python" && return
  done
  fail workers-missing "There is no $framework_version, which --with $want_with starts, in\
 $(where_it_should_be "$framework_packages")."
}

main "$@"
exit
