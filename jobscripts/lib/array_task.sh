#!/bin/bash
# Run one task of a job array: jupyterlab.sh with the task's own session directory, SESSION_DIR/tasks/NUMBER.
#
#   bash array_task.sh SESSION_DIR
#
# jupyterlab.sh starts it. All tasks share SESSION_DIR, with the script to run (work/NAME); each writes its files
# (started.json, exit.json, usage.csv) to its own directory. In SESSION_DIR itself, started.json is that of the first
# task that runs, and exit.json is written when all have ended.

# Bash's default shell options, whatever BASH_ENV and SHELLOPTS say; the same lines are in every script.
[[ -n ${users_options[1]+set} ]] ||
  users_options=("$SHELLOPTS" "$BASHOPTS" "${POSIXLY_CORRECT+$(compgen -e POSIXLY_CORRECT || :)}")
set +o posix; set +aefkmuvCET -B +o pipefail; trap - DEBUG ERR RETURN; [[ -n ${BASH_XTRACEFD-} ]] || set +x
shopt -u failglob nullglob dotglob nocaseglob nocasematch expand_aliases execfail lastpipe xpg_echo
IFS=$' \t\n'; unset GLOBIGNORE

main() {
  dir=${1%/} number=${SLURM_ARRAY_TASK_ID-}
  # shellcheck source=jobscripts/lib/lib.sh
  source "$dir/lib.sh" || exit
  trap : USR1 # meant for the user's script, which has not started yet
  [[ $number =~ ^[0-9]{1,9}$ ]] || unusable "This job is not a task of a job array: SLURM_ARRAY_TASK_ID is '$number'."
  task=$dir/tasks/$number
  users_umask=$(umask)
  umask 077
  make_directory || unusable "$task cannot be written on $(uname -n): is your home full, or read-only there?"
  umask "$users_umask"
  find_inherited_options
  exec ${as_inherited[@]+"${as_inherited[@]}"} "$BASH" "$task/jupyterlab.sh" "$task"
}

unusable() {
  printf 'notebook-launcher: %s\n' "$1" >&2
  exit 73 # EX_CANTCREAT, as in jupyterlab.sh
}

# The directory of a requeued task exists already.
make_directory() {
  local file files=()
  mkdir -p -- "$task" && rm -f -- "$dir/exit.json" || return
  for file in "$dir"/{*.{sh,py,js},session.json,arguments}; do [[ ! -f $file ]] || files+=("$file"); done
  ln -f -- "${files[@]}" "$task/" 2>/dev/null || cp -f -- "${files[@]}" "$task/" || return
  [[ -L $task/work ]] || ln -s ../../work "$task/work" || return
  # No program listens that would need a token.
  write_file "$task/token" none && write_file "$task/session.env" "$(settings)" && write_file "$task/log" "$(log_names)" ||
    return
  [[ -e $dir/started.json ]] || report_first
}

# Print the task's settings: those of all tasks, with the absolute path of the folder that they share.
settings() {
  local text
  text=$(<"$dir/session.env")
  printf '%s\n' "$text"
  [[ $'\n'$text == *$'\n'folder=* ]] || printf 'folder=%s\n' "$dir/work"
}

# Print the names of the files to which the scheduler has directed this task's output.
log_names() {
  local out error
  out=$(readlink -- "/proc/$$/fd/1") error=$(readlink -- "/proc/$$/fd/2")
  printf '%s\n' "$out"
  [[ $error == "$out" ]] || printf '%s\n' "$error"
}

report_first() {
  local job node
  json_string "${SLURM_ARRAY_JOB_ID-}"
  job=$REPLY
  json_string "$(uname -n)"
  node=$REPLY
  utc_now
  write_file "$dir/started.json" \
    "{\"version\":1,\"job\":$job,\"node\":$node,\"node_names\":[$node],\"host_keys\":[],\"started\":\"$REPLY\"}"
}

main "$@"
# shellcheck disable=SC2317
exit
