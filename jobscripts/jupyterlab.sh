#!/bin/bash
#SBATCH --job-name=jupyterlab
#SBATCH --time=0:59:00
#SBATCH --output=jupyterlab-%j.log
#
# Runs JupyterLab, as a batch job or directly:
#
#   sbatch jobscripts/jupyterlab.sh SESSION_DIR        bash jobscripts/jupyterlab.sh SESSION_DIR
#
# It can also run a notebook from top to bottom (program=notebook) or a user's job script (program=script), or keep a
# node for shells (program=shell).
#
# SESSION_DIR is created if it does not exist. SESSION_DIR/session.env says what to run and where; the answer is written
# to SESSION_DIR/endpoint.json; docs/job-script.md describes both. JupyterLab listens only on the node's 127.0.0.1,
# unless session.env asks for more, and its token is in SESSION_DIR/token.
#
# This script only starts, waits and reports, so that it handles a signal at once. `enter`, in lib/enter.sh, loads
# modules, enters the container, and execs JupyterLab or the program that runs the notebook. lib/job_services.sh has the
# services that run beside it. Bash loses a trap that is due while it parses $(…) or <(…), or carries out `break` or
# `continue` (seen in 5.2): so here, and in what is sourced, there are backquotes, loops end by their condition, and the
# few process substitutions are made only once.
#
# shellcheck disable=SC2006

# Bash's default shell options, whatever BASH_ENV and SHELLOPTS say; the same lines are in every script.
[[ -n ${users_options[1]+set} ]] ||
  users_options=("$SHELLOPTS" "$BASHOPTS" "${POSIXLY_CORRECT+$(compgen -e POSIXLY_CORRECT || :)}")
set +o posix; set +aefkmuvCET -B +o pipefail; trap - DEBUG ERR RETURN; [[ -n ${BASH_XTRACEFD-} ]] || set +x
shopt -u failglob nullglob dotglob nocaseglob nocasematch expand_aliases execfail lastpipe xpg_echo
IFS=$' \t\n'; unset GLOBIGNORE

main() {
  case ${1-} in
    '' | -*)    printf 'usage: jupyterlab.sh SESSION_DIR\n' >&2; exit 2 ;;
    *)          run_job "$1" ;;
  esac
}

# The files that a job needs beside this script, and those that it uses if they are there.
readonly NEEDED=({lib,containers,activate,enter,program,job_services,workers}.sh {jupyter_server_config,own_connections}.py)
readonly OPTIONAL=({quick_start,import_cache,static_files,idle_guard,idle_rules}.py {image,heartbeat,reverse}.sh
  stage{,_disk,_squash}.sh staged_mount.py execute{,_common,_kernel,_outputs,_script,_html}.py
  {worker_node,torchrun_nodes,workers_{dask,ray}}.sh {dask,ray}_node.py node_resources.py panel{,_view,_apps}.js
  panel{,_facts,_saving}.py {session_apps,app_{requests,tensorboard}}.py)

# Seconds that JupyterLab may take to end its kernels; it gives each of them 5.
readonly GRACE_SECONDS=${NBL_GRACE_SECONDS:-8}

# Seconds that a notebook that is being stopped may take to write its outputs, before exit.json is written.
readonly LAST_WRITE_SECONDS=3

# Seconds that the end of a run may wait for the image's digest.
readonly DIGEST_SECONDS=${NBL_DIGEST_SECONDS:-60}
# Of these, seconds for which a calculation already running at low priority may continue: it may be nearly done.
readonly DIGEST_NEARLY_DONE_SECONDS=${NBL_DIGEST_NEARLY_DONE_SECONDS:-10}

# Seconds for which the job of a shell waits for the first shell, and for another one after the last has ended.
readonly UNTIL_THE_FIRST_SHELL=${NBL_FIRST_SHELL_SECONDS:-120} AFTER_THE_LAST_SHELL=5

# The exit code if exit.json cannot be written to the session directory (EX_CANTCREAT); the log then has the reason.
readonly EXIT_UNUSABLE=73

run_job() {
  concluded='' program='' program_name=JupyterLab ssh_server='' sampler='' heartbeat='' noter='' stager='' passed_on='' ended_by=''
  answer_signals
  trap : USR1 # meant for the user's script, which has not started yet; see pass_signals_on
  find_log_is_new
  users_umask=`umask`
  umask 077
  open_session_dir "$1"
  find_scripts
  # shellcheck source=jobscripts/lib/lib.sh
  source "$scripts/lib.sh"
  # shellcheck source=jobscripts/lib/enter.sh
  source "$scripts/enter.sh"
  # shellcheck source=jobscripts/lib/program.sh
  source "$scripts/program.sh"
  # shellcheck source=jobscripts/lib/job_services.sh
  source "$scripts/job_services.sh"
  # shellcheck source=jobscripts/lib/workers.sh
  source "$scripts/workers.sh"
  find_job_id
  find_node
  # list_stragglers recognizes our processes by this variable.
  export NBL_RUN=$$-$RANDOM$RANDOM
  trap 'leave_unforeseen $?' EXIT
  prepare_session_dir
  [[ $want_program == script ]] || trap - USR1
  case $want_program in
    shell)     wait_on_shells ;;
    notebook)  run_notebook ;;
    script)    run_script ;;
    *)         run_jupyterlab ;;
  esac
}

run_jupyterlab() {
  leave_if_not_wanted
  find_listen_address
  start_sshd
  start_reverse
  if [[ -n $want_with ]]; then
    await_ssh_port
    report_started
    start_workers
  fi
  start_program
  if [[ -z $want_with ]]; then
    # After starting the program, which must not wait for the SSH server; the tunnel is opened while JupyterLab starts.
    await_ssh_port
    report_started
  fi
  if await_program; then
    await_workers
    report_endpoint
    start_watching
    remove_left_folders
    start_noting_image
    start_staging
  fi
  await_end
}

# ------------------------------------------------------------------------------------------- the session directory

unusable() {
  printf 'notebook-launcher: %s\n' "$1" >&2
  exit "$EXIT_UNUSABLE"
}

open_session_dir() {
  NBL_SESSION_DIR=${1%/}
  [[ $NBL_SESSION_DIR == /* ]] || NBL_SESSION_DIR=$PWD/$NBL_SESSION_DIR
  export NBL_SESSION_DIR NBL_CAUSE_FILE=$NBL_SESSION_DIR/runtime/cause
  export NBL_CONTAINER_FILE=$NBL_SESSION_DIR/runtime/container
  [[ -d $NBL_SESSION_DIR ]] || mkdir -p -- "$NBL_SESSION_DIR" ||
    unusable "The session directory $NBL_SESSION_DIR cannot be made on `uname -n`."
  # It must belong to us, because scripts are read from it.
  [[ -O $NBL_SESSION_DIR ]] || unusable "The session directory $NBL_SESSION_DIR belongs to somebody else."
  chmod 700 -- "$NBL_SESSION_DIR" || unusable "The session directory $NBL_SESSION_DIR cannot be closed to others."
}

# Set scripts to the directory with the other job scripts. A launcher puts copies into the session directory. Without a
# launcher they are in lib/ beside this file; but Slurm runs a copy of this file from its spool directory, and only
# reports where the original was.
find_scripts() {
  local here=${BASH_SOURCE[0]}
  [[ $here == */* ]] || here=./$here
  [[ ! -e $NBL_SESSION_DIR/session.json ]] || ! find_scripts_in "$NBL_SESSION_DIR" || return 0
  # Slurm's controller is queried only if necessary.
  find_scripts_in "${here%/*}" || find_scripts_in "`submitted_from`" || find_scripts_in "$NBL_SESSION_DIR" ||
    unusable "${NEEDED[*]} were not found; put the files of jobscripts/lib/ into $NBL_SESSION_DIR."
}

# find_scripts_in FOLDER
find_scripts_in() {
  [[ -n $1 ]] || return 1
  for scripts in "$1" "$1/lib"; do ! has_scripts "$scripts" || return 0; done
  return 1
}

# has_scripts FOLDER
has_scripts() {
  local name
  for name in "${NEEDED[@]}"; do [[ -r $1/$name ]] || return 1; done
}

submitted_from() {
  local line
  [[ -n ${SLURM_JOB_ID-} ]] || return 0
  scontrol show job "$SLURM_JOB_ID" 2>/dev/null | while read -r line; do
    # The arguments follow the path, and both may contain spaces.
    [[ $line == Command=*/jupyterlab.sh* ]] && line=${line#Command=} && printf '%s\n' "${line%%/jupyterlab.sh*}"
  done
}

prepare_session_dir() {
  local name left=()
  continues_in=''
  if read_line "$NBL_SESSION_DIR/next_job.json" &&
    [[ $REPLY =~ \"session\":\"([0-9]{8}-[0-9]{6}-[a-z2-7]{4})\" ]]; then
    continues_in=${BASH_REMATCH[1]}
  fi
  # Files of an earlier run, if the job was requeued.
  for name in {started,endpoint,exit,idle,image,notice,progress,staging,unsaved,renew,next_job}.json ended-from runtime; do
    [[ ! -e $NBL_SESSION_DIR/$name && ! -L $NBL_SESSION_DIR/$name ]] || left+=("$NBL_SESSION_DIR/$name")
  done
  ((!${#left[@]})) || rm -rf -- "${left[@]}"
  { mkdir -- "$NBL_SESSION_DIR"/runtime{,/python{,/__pycache__}} && copy_scripts && make_token; } || leave_unwritable
  read_settings "$NBL_SESSION_DIR/session.env"
  [[ -n $want_container && $NBL_SESSION_DIR == *[:,]* ]] || return 0
  leave session-unusable "$EXIT_UNUSABLE" "The session directory's name, $NBL_SESSION_DIR, holds a ':' or ',', which\
 the container's --bind cannot express."
}

leave_unwritable() {
  leave session-unusable "$EXIT_UNUSABLE" \
    "The session directory $NBL_SESSION_DIR cannot be written on $node: is your home full, or read-only there?"
}

# Copy the scripts to the session directory, from which the part inside the container and JupyterLab read them.
#
# With as few processes as possible, and replacing whole files: an open shell may be reading those of an earlier run. A
# launcher has already put all of them there.
copy_scripts() {
  local name new=$NBL_SESSION_DIR/runtime/scripts files=()
  [[ ! $scripts -ef $NBL_SESSION_DIR || ! -e $NBL_SESSION_DIR/session.json || ! -r $NBL_SESSION_DIR/jupyterlab.sh ]] || return 0
  for name in "${NEEDED[@]}"; do files+=("$scripts/$name"); done
  for name in "${OPTIONAL[@]}"; do
    [[ ! -r $scripts/$name ]] || files+=("$scripts/$name")
  done
  mkdir -- "$new" || return
  [[ $scripts -ef $NBL_SESSION_DIR ]] || cp --no-preserve=mode -- "${files[@]}" "$new" || return
  [[ ${BASH_SOURCE[0]} -ef $NBL_SESSION_DIR/jupyterlab.sh ]] || cat -- "${BASH_SOURCE[0]}" >"$new/jupyterlab.sh" ||
    return
  files=("$new"/*)
  [[ ! -e ${files[0]} ]] || mv -f -- "${files[@]}" "$NBL_SESSION_DIR" || return
  rmdir -- "$new"
}

# Write a random token to its file. It must not appear in arguments, nor in a variable that other processes inherit.
make_token() {
  local file=$NBL_SESSION_DIR/token
  if [[ ! -e $file && ! -L $file ]] && ((BASH_VERSINFO[0] * 100 + BASH_VERSINFO[1] >= 501)); then
    printf '%08x%08x%08x%08x%08x%08x' "$SRANDOM" "$SRANDOM" "$SRANDOM" "$SRANDOM" "$SRANDOM" "$SRANDOM" >"$file"
    [[ -s $file ]]
    return
  fi
  if [[ ! -s $file ]]; then
    od -An -v -N24 -tx1 /dev/urandom | tr -d ' \n' >"$file.new.$$" && [[ -s $file.new.$$ ]] || return 1
    mv -f -- "$file.new.$$" "$file" || return 1
  fi
  chmod 600 -- "$file"
}

# -------------------------------------------------------------------------------------------------------- reports

# Set log_is_new to true if the file to which this job prints is empty: depending on the site, a scheduler truncates the
# log of a requeued job, or appends to it.
find_log_is_new() {
  log_is_new=false
  [[ ! -f /dev/fd/1 || -s /dev/fd/1 ]] || log_is_new=true
}

report_started() {
  local names keys
  # For a shell (shell.sh), which starts in another folder.
  write_file "$NBL_SESSION_DIR/runtime/folder" "$PWD" || leave_unwritable
  find_node_names
  find_host_keys
  json_list "${node_names[@]}"
  names=$REPLY
  json_list "${host_keys[@]}"
  keys=$REPLY
  utc_now
  report started '"node_names":%s,"host_keys":%s,"pid":%d%s,"new_log":%s,"started":"%s"' \
    "$names" "$keys" "$$" "${ssh_port:+,\"ssh_port\":$ssh_port}" "$log_is_new" "$REPLY" || leave_unwritable
  log "job ${job_id:-without a number} on $node, session directory $NBL_SESSION_DIR"
}

report_endpoint() {
  [[ ! -e $NBL_SESSION_DIR/apps.json ]] || workers_report=${workers_report-}',"apps":true'
  utc_now
  report endpoint '"address":"%s","port":%d,"base_url":%s,"secure":%s,"pid":%d,"started":"%s"%s' \
    "$listen_address" "$server_port" "$server_base_url" "$server_secure" "$server_pid" "$REPLY" \
    "${workers_report-}" || leave_unwritable
  log "JupyterLab listens on $listen_address:$server_port of $node, after $SECONDS seconds"
  log "its endpoint is in $NBL_SESSION_DIR/endpoint.json, its token in $NBL_SESSION_DIR/token"
  local tunnel="ssh -L $server_port:$listen_address:$server_port $node" page="http://127.0.0.1:$server_port/lab"
  if has_queue; then
    log "by hand: ${tunnel/ssh/ssh -J LOGIN_NODE}, then open $page and give the token"
  else
    log "by hand: open $page on $node and give the token; from another machine first: $tunnel"
  fi
}

# report NAME FORMAT VALUE...: write NAME.json, which begins with the fields common to all these files.
report() {
  local name=$1 format=$2 head text
  shift 2
  json_string "$job_id"
  head=$REPLY
  json_string "$node"
  printf -v head '{"version":1,"job":%s,"node":%s,' "$head" "$REPLY"
  # shellcheck disable=SC2059
  printf -v text "$format" "$@"
  write_file "$NBL_SESSION_DIR/$name.json" "$head$text}"
}

# conclude CAUSE EXIT_CODE SENTENCE: write exit.json, once.
conclude() {
  local cause message
  [[ -z $concluded ]] || return 0
  concluded=$1
  log "$3"
  json_string "$1"
  cause=$REPLY
  json_string "$3"
  message=$REPLY
  utc_now
  report exit '"cause":%s,"message":%s,"exit_code":%d,"ended":"%s"' "$cause" "$message" "$2" "$REPLY" ||
    log "exit.json could not be written"
  rm -f -- "$NBL_SESSION_DIR/idle.json"
  [[ ! -L $NBL_SESSION_DIR/work ]] || conclude_array
}

# leave CAUSE EXIT_CODE SENTENCE: end the programs of the job, then the job.
leave() {
  trap '' TERM INT HUP USR2
  stand_by_podman
  [[ ${want_program-} != notebook ]] || await_last_write 2>/dev/null
  # Reported first, because ending everything may take longer than the scheduler waits before it sends SIGKILL.
  conclude "$@"
  # From here on, bash would print how JupyterLab died: "Bus error", if the container is gone first.
  exec {log_fd}>&2 2>/dev/null
  end_heartbeat
  end_sampler
  end_noting_image
  end_staging
  end_workers
  end_program
  # Not earlier: JupyterLab's pages save over these connections while it shuts down.
  end_sshd
  end_reverse
  end_what_is_left
  remove_half_copies
  remove_kernel_folder
  exit "$2"
}

# If the container had its own /tmp, the folder is gone with it.
remove_kernel_folder() {
  read_line "$NBL_SESSION_DIR/runtime/kernels" || return 0
  is_session_folder "$REPLY" || return 0
  rm -rf -- "$REPLY"
}

# -------------------------------------------------------------------------------------------------------- signals

answer_signals() {
  signal='' waiting=''
  trap 'note_signal TERM' TERM
  trap 'note_signal INT' INT
  trap 'note_signal HUP' HUP
  trap 'note_signal USR2' USR2 # LSF sends USR2 first when the walltime is over
}

# A trap may run inside `read -t`, whose timeout then aborts the trap's commands: so there, only note the signal. During
# `wait` for the program it is safe to act, and nothing else would.
# shellcheck disable=SC2317  # called by the traps, as leave_unforeseen
note_signal() {
  signal=$1
  [[ -z $waiting ]] || leave_on_signal
}

leave_on_signal() {
  local -A number=([TERM]=15 [INT]=2 [HUP]=1 [USR2]=12)
  local why='it was cancelled, or its time was over.'
  ! has_queue || why='it was cancelled or put back into the queue, or its time was over.'
  waiting=''
  leave stopped "$((128 + number[$signal]))" "The job was ended by signal SIG$signal: $why"
}

# shellcheck disable=SC2317
leave_unforeseen() {
  [[ -n $concluded ]] || leave jupyter-failed "$1" "The job script ended unexpectedly with exit code $1."
}

# ------------------------------------------------------------------------------------------------------- a notebook

# With program=notebook there is no server: execute.py runs the notebook from top to bottom, and the job ends with it.
run_notebook() {
  program_name='the notebook' ssh_port='' listen_address=none
  prepare_work || leave_unwritable
  if [[ -n $want_with ]]; then
    report_started
    start_workers
    await_workers
  fi
  start_program
  [[ -n $want_with ]] || report_started
  if await_program; then
    start_watching
    remove_left_folders
    start_noting_image
    start_staging
  fi
  await_end
}

# Prepare the folder for the files that were sent and for the results. Results of an earlier run, before the job was
# requeued, are moved aside so that they do not mix with new ones; results that were sent are put back. The first run
# saves those in results.sent, which is empty if there were none; later runs recognize by that file that they are not
# the first.
prepare_work() {
  local stem=${want_notebook%.ipynb} name count=1 earlier=()
  local work=$NBL_SESSION_DIR/work sent=$NBL_SESSION_DIR/results.sent
  [[ -d $work ]] || mkdir -- "$work" || return 1
  if [[ ! -e $sent ]]; then
    if [[ -e $work/results.jsonl ]]; then cp -- "$work/results.jsonl" "$sent"; else : >"$sent"; fi
    return
  fi
  for name in "$stem.ipynb" "$stem.out" results.jsonl; do
    # With a notebook, NAME.out was sent, or belongs to the notebook.
    if [[ -e $work/$name && ($name != *.out || $want_to == script) ]]; then earlier+=("$work/$name"); fi
  done
  ((${#earlier[@]})) || return 0
  while [[ -e $work/earlier-$count ]]; do ((count++)); done
  log "what an earlier run has left is in work/earlier-$count"
  mkdir -- "$work/earlier-$count" && mv -f -- "${earlier[@]}" "$work/earlier-$count" || return 1
  [[ ! -s $sent ]] || cp -- "$sent" "$work/results.jsonl"
}

# Once exit.json exists, the notebook must be final: so it is asked to end before that, and given a moment.
await_last_write() {
  is_running || return 0
  kill -TERM -- "-$program" || kill -TERM "$program"
  wait_while 0.05 "$((20 * LAST_WRITE_SECONDS))" is_running
}

# leave_without_a_word EXIT_CODE: end the job, although execute.py could not report why it ended.
leave_without_a_word() {
  if (($1 == 137)); then
    leave kernel-died "$1" "The notebook on $node was killed, perhaps because it ran out of memory: ask for more."
  fi
  leave jupyter-failed "$(($1 ? $1 : 1))" "What runs the notebook on $node ended with exit code $1: see the job's log."
}

# ------------------------------------------------------------------------------------------------- a user's script

# With program=script the job runs the user's own script, work/NAME, and ends with it.
run_script() {
  program_name='the script' ssh_port='' listen_address=none
  [[ -f $NBL_SESSION_DIR/work/$want_script ]] ||
    leave session-unusable "$EXIT_UNUSABLE" "The script $NBL_SESSION_DIR/work/$want_script is not there on $node."
  start_program
  [[ $want_stage == yes ]] || pass_signals_on
  report_started
  start_sampler
  if [[ $want_stage == yes ]]; then
    await_copies
    pass_signals_on
    start_staging
  fi
  await_end
}

# --------------------------------------------------------------------------------------------------------- shells

# With program=shell there is no JupyterLab: the job keeps its node while somebody has a shell there (shell.sh), and
# ends soon after the last one, so that a lost connection does not keep a node allocated.
wait_on_shells() {
  local come='' without=0
  start_survey
  start_sshd
  start_reverse
  await_ssh_port
  report_started
  start_sampler
  while ((without < (${#come} ? AFTER_THE_LAST_SHELL : UNTIL_THE_FIRST_SHELL))); do
    [[ -z $signal ]] || leave_on_signal
    pause 1
    without=$((without + 1))
    if is_any_shell_open; then without=0; fi
    # A shell may have started and ended meanwhile.
    if [[ -z $come && -e $NBL_SESSION_DIR/runtime/first-shell ]]; then come=yes without=0; fi
  done
  [[ -z $signal ]] || leave_on_signal
  [[ -n $come ]] || leave finished 0 "Nobody opened a shell within $UNTIL_THE_FIRST_SHELL seconds."
  leave finished 0 "The last shell was closed."
}

# Each shell creates a file whose name ends in its process id, and removes it at its end if it can.
is_any_shell_open() {
  local file
  for file in "$NBL_SESSION_DIR"/runtime/shell-*; do
    [[ -e $file ]] && kill -0 "${file##*-}" 2>/dev/null && return
  done
  return 1
}

# bash reads the whole file before it runs anything, because the file may be replaced while the job waits.
main "$@"
# shellcheck disable=SC2317
exit
