# shellcheck shell=bash
#
# Services that run beside the program in a job: an SSH server into the session, the sampler of its usage, and the
# program that records the image's digest. Also removes the folders of killed jobs, and checks whether a job that
# continues another one is still wanted. jupyterlab.sh sources this file; it is never run.
#
# shellcheck disable=SC2006,SC2034,SC2154  # it shares its variables with jupyterlab.sh and lib.sh

# --------------------------------------------------------------------------------------------------- the previous job

# A session that ends this many seconds before its walltime was cancelled.
readonly EARLY_SECONDS=120

# A session that somebody has shut down or cancelled, or that nobody used, does not continue in the next job
# (continues=NAME). Nor do two jobs of a session run at the same time for long: a requeued job ends if its next job is
# running by now (continues_in), and a next job ends if the job that it continues has started again since.
leave_if_not_wanted() {
  local other sessions=${NBL_SESSION_DIR%/*}
  other=$sessions/$continues_in
  if [[ -n $continues_in && -e $other/started.json && ! -e $other/exit.json ]]; then
    leave finished 0 "This session continues in session $continues_in, which is already running."
  fi
  [[ $want_continues =~ ^[0-9]{8}-[0-9]{6}-[a-z2-7]{4}$ ]] || return 0
  other=$sessions/$want_continues
  if ! read_line "$other/exit.json"; then
    [[ ! -e $NBL_SESSION_DIR/session.json || ! $other/started.json -nt $NBL_SESSION_DIR/session.json ]] ||
      leave finished 0 "Session $want_continues has started again, so it does not continue in this job yet."
    return 0
  fi
  case $REPLY in
    *'"message":"This session continues in session '*) return 0 ;;
    *'"cause":"finished"'* | *'"cause":"idle"'* | *'"cause":"class-ended"'*) ;;
    *'"cause":"stopped"'*) was_ended_early "$other" || return 0 ;;
    *) return 0 ;;
  esac
  leave finished 0 "Session $want_continues ended before its walltime was over, so it does not continue in this job."
}

# was_ended_early DIRECTORY: whether a signal ended the session long before the end of its walltime, which the launcher
# recorded when it queued this job. Then it was cancelled or preempted, after which an attached launcher would end this
# job as well. REPLY is the session's exit.json.
was_ended_early() {
  local ended ends
  [[ $REPLY =~ \"ended\":\"([0-9TZ:-]+)\" ]] && ended=`date -d "${BASH_REMATCH[1]}" +%s 2>/dev/null` || return 1
  read_line "$1/next_job.json" && [[ $REPLY =~ \"ends\":\"([0-9TZ:+-]+)\" ]] || return 1
  ends=`date -d "${BASH_REMATCH[1]}" +%s 2>/dev/null` && ((ends - ended > EARLY_SECONDS))
}

# ------------------------------------------------------------------------------------------------- the SSH server

# Start an SSH server into this session, if session.env asks for one. In its own process group, like JupyterLab: a
# terminal's Ctrl-C is for this script, which ends the others.
start_sshd() {
  [[ $want_sshd == yes ]] || return 0
  set -m
  "$BASH" "$scripts/sshd.sh" listen "$NBL_SESSION_DIR" </dev/null &
  ssh_server=$!
  set +m
}

# Set ssh_port to the port of the SSH server; to nothing if there is none, with the reason in the log. This takes some
# hundredths of a second; with sshd on a busy file server it may take longer, and the tunnel then uses other routes.
await_ssh_port() {
  local looks
  ssh_port=''
  [[ -n $ssh_server ]] || return 0
  for ((looks = 0; looks < 300; looks++)); do
    if read_line "$NBL_SESSION_DIR/runtime/ssh_port"; then
      ssh_port=$REPLY
      return
    fi
    [[ -z $signal ]] && is_sshd_running || return 0
    pause 0.01
  done
  log "the SSH server did not listen within 3 seconds; going on without it"
  end_sshd
}

is_sshd_running() { is_job_running "$ssh_server"; }

# sshd serves every connection in a new session and overwrites its environment, so that its processes cannot be found by
# process group, session or mark. But all of them write to the same log.
end_sshd() {
  [[ -n $ssh_server ]] || return 0
  if is_sshd_running; then kill -KILL "$ssh_server"; fi
  end_writers "$NBL_SESSION_DIR/runtime/sshd.log"
  ssh_server=''
}

# ------------------------------------------------------------------------------------ connections to the login node

# Answer the launchers that call the job from a login node (reverse.sh), if session.env asks for that. It ends with this
# script, which holds the other end of its input.
start_reverse() {
  [[ $want_reverse == yes && -r $scripts/reverse.sh ]] || return 0
  local runtime=$NBL_SESSION_DIR/runtime
  if ! { mkdir -- "$runtime/reverse" && : >"$runtime/reverse/calls"; }; then
    log "$runtime/reverse could not be made; no login node can call this job"
    return
  fi
  exec {reverse}> >(exec "$BASH" "$scripts/reverse.sh" answer "$NBL_SESSION_DIR" 3>&2 2>"$runtime/reverse.log" >&2)
}

# All processes that it has started write to these files.
end_reverse() {
  local file
  [[ -n ${reverse-} ]] || return 0
  exec {reverse}>&-
  reverse=''
  for file in "$NBL_SESSION_DIR"/runtime/reverse{,-*}.log; do [[ ! -e $file ]] || end_writers "$file"; done
}

# ------------------------------------------------------------------------------------------------ the node's survey

# Run survey.sh on the node, if session.env asks for that and a launcher has sent it: runtime/survey is its complete
# output.
start_survey() {
  local file=$NBL_SESSION_DIR/runtime/survey
  [[ $want_survey == yes && -r $NBL_SESSION_DIR/survey.sh ]] || return 0
  { "$BASH" "$NBL_SESSION_DIR/survey.sh" node >"$file.new" && mv -f -- "$file.new" "$file"; } </dev/null 2>/dev/null &
}

is_surveying() { [[ ${want_survey-} == yes && ! -e $NBL_SESSION_DIR/runtime/survey ]]; }

# ------------------------------------------------------------------------------------------------ the job's usage

# Start the services that watch the program, unless they have been started.
start_watching() {
  [[ -z $sampler$heartbeat ]] || return 0
  start_sampler
  [[ $want_program != jupyterlab ]] || start_heartbeat
}

# Sample the job's usage, if session.env asks for that. In its own process group, and at the lowest priority. SIGPIPE
# has its default action there again, so that it ends an nvidia-smi whose output nobody reads any more.
start_sampler() {
  ((want_usage)) || return 0
  if [[ ! -r $scripts/usage.sh ]]; then
    log "usage.sh is not in $scripts, so what the job uses is not sampled"
    return
  fi
  set -m
  (
    trap - PIPE
    exec nice -n 10 "$BASH" "$scripts/usage.sh" "$NBL_SESSION_DIR" "$want_usage" "$$"
  ) </dev/null >&2 &
  sampler=$!
  set +m
}

end_sampler() {
  [[ -n $sampler ]] || return 0
  # TERM first, so that it can report what it has cost; at low priority, that may take a moment.
  kill -TERM "$sampler"
  wait_while 0.02 150 is_job_running "$sampler"
  kill -KILL -- "-$sampler"
  sampler=''
}

# ------------------------------------------------------------------------------------------------ the class's teacher

# Report to the teacher of a course, if session.env asks for that. In its own process group, and at low priority.
start_heartbeat() {
  [[ -n $want_class_folder && -r $scripts/heartbeat.sh ]] || return 0
  set -m
  nice -n 10 "$BASH" "$scripts/heartbeat.sh" "$NBL_SESSION_DIR" "$want_class_folder" "${want_course_folder:-$PWD}" \
    "$$" "$program" </dev/null >&2 &
  heartbeat=$!
  set +m
}

# TERM first, so that it can report how the session has ended; but do not wait for a file server that does not answer.
end_heartbeat() {
  [[ -n $heartbeat ]] || return 0
  kill -TERM "$heartbeat" 2>/dev/null
  wait_while 0.04 50 is_job_running "$heartbeat"
  kill -KILL -- "-$heartbeat" 2>/dev/null
  heartbeat=''
}

# -------------------------------------------------------------------------------------------------------- the image

# Record in image.json which image is used. Only now, because computing the digest means reading the whole image.
start_noting_image() {
  [[ -n $want_container && -r $scripts/image.sh ]] || return 0
  set -m
  "$BASH" "$scripts/image.sh" "${1-note}" "$NBL_SESSION_DIR" </dev/null >&2 &
  noter=$!
  set +m
}

is_noting_image() { is_job_running "$noter"; }

# Wait for the digest at the end of a short run, because the results are fetched with the record of the image. The
# computation may be nearly done. But at low priority, which only root may raise, it might never finish on a busy node:
# then it is started again at normal priority; the data read so far is still cached.
await_image_note() {
  local first=$noter patience=$DIGEST_NEARLY_DONE_SECONDS
  waiting=''
  is_noting_image || return 0
  log "waiting for the image's digest"
  ((patience < DIGEST_SECONDS)) || patience=0
  notes_image_for "$patience" || return 0
  end_noting_image
  wait "$first" 2>/dev/null # bash would print to the log how it was killed
  start_noting_image note-now
  ! notes_image_for "$((DIGEST_SECONDS - patience))" ||
    log "the image's digest was not calculated within $DIGEST_SECONDS seconds after the notebook ended"
}

# notes_image_for SECONDS: wait at most that long. Fail once it is done, or the job is asked to end.
notes_image_for() {
  local looks
  for ((looks = 0; looks < 10 * $1; looks++)); do
    [[ -z $signal ]] && is_noting_image || return 1
    pause 0.1
  done
}

# Once it has ended, its process id may have been reused.
end_noting_image() {
  ! is_noting_image || kill -KILL -- "-$noter" 2>/dev/null
  noter=''
}

# ------------------------------------------------------------------------------------- copies on the node's own disk

# Seconds after which a copy is touched: programs that clean /tmp remove files that are some days old.
readonly TOUCH_SECONDS=${NBL_STAGE_TOUCH_SECONDS:-86400}

# Lock the copies that the program uses (stage.sh) for as long as this script runs, so that no job removes them.
# systemd-tmpfiles removes nothing in locked folders.
hold_staged() {
  local file lock
  while IFS= read -r file; do
    { exec {lock}<"$file"; } 2>/dev/null && flock -s -n "$lock"
    { exec {lock}<"${file%.lock}"; } 2>/dev/null && flock -s -n "$lock"
  done <"$NBL_SESSION_DIR/runtime/staged"
  : >"$NBL_SESSION_DIR/runtime/staged-held"
  exec {holding}> >(keep_from_cleaners)
}

# Until the copies are made, the user's script has not started, and signals are handled by this one.
await_copies() {
  until [[ -e $NBL_SESSION_DIR/runtime/staging-over ]] || ! is_running; do
    [[ -z $signal ]] || leave_on_signal
    pause 0.05
  done
  [[ ! -e $NBL_SESSION_DIR/runtime/staged ]] || hold_staged
}

# It ends with this script, which holds the other end of its input.
keep_from_cleaners() {
  local file
  trap '' USR1 USR2
  while read -r -t "$TOUCH_SECONDS" _; (($? > 128)); do
    while IFS= read -r file; do
      touch -c -- "$file" "${file%.lock}/size" 2>/dev/null
    done <"$NBL_SESSION_DIR/runtime/staged"
  done
}

# Make the archive that did not exist yet (stage.sh), and the copy from it: for the next job, and at low priority.
start_staging() {
  [[ -e $NBL_SESSION_DIR/runtime/stage-later && -r $scripts/stage.sh ]] || return 0
  set -m
  nice -n 19 "$BASH" "$scripts/stage.sh" "$NBL_SESSION_DIR" </dev/null >&2 &
  stager=$!
  set +m
}

# TERM first, so that it can remove incomplete files.
end_staging() {
  ! is_staging || kill -TERM -- "-$stager" 2>/dev/null
  wait_while 0.05 10 is_staging
  # Once it has ended, its process id may have been reused.
  ! is_staging || kill -KILL -- "-$stager" 2>/dev/null
  stager=''
  [[ -z ${holding-} ]] || exec {holding}>&-
  holding=''
}

# Remove copies that were incomplete when it was ended or killed.
remove_half_copies() {
  compgen -G "$NBL_SESSION_DIR/runtime/[cp]*ing-*" >/dev/null && [[ -r $scripts/stage_disk.sh ]] || return 0
  # shellcheck source=jobscripts/lib/stage_disk.sh
  source "$scripts/stage_disk.sh"
  remove_half_made "$NBL_SESSION_DIR/runtime"
}

is_staging() { is_job_running "$stager"; }

# --------------------------------------------------------------------------- the folders of kernels, Ray and Dask

# Remove the folders of jobs that were killed as a whole: those in which no socket is open, and whose name no process
# has in its arguments, as JupyterLab and Ray have. Not those in $TMPDIR, which may be shared with other machines, whose
# processes are not visible here.
remove_left_folders() {
  local folder known folders=()
  for folder in {/tmp,/var/tmp}/nl-{kernels,dask}-* /tmp/nl-ray-*; do
    if may_be_left "$folder" && is_session_folder "$folder"; then folders+=("$folder"); fi
  done
  ((${#folders[@]})) && [[ -r /proc/net/unix ]] || return 0
  known=`cat /proc/net/unix /proc/[0-9]*/environ 2>/dev/null | tr '\0' '\n'`
  # If this job's own directory is not among them, the processes could not be read.
  [[ $known == *"$NBL_SESSION_DIR"* ]] || return 0
  for folder in "${folders[@]}"; do
    [[ $known == *"$folder"* ]] || rm -rf -- "$folder"
  done
}

# Ray's folder exists before a process has its name, while a container starts. Dask's has an open socket.
may_be_left() {
  [[ $1 == */nl-kernels-* ]] && return
  [[ -n `find "$1" -maxdepth 0 -mmin +10 2>/dev/null` ]] && [[ $1 != */nl-dask-* || -S $1/in-use ]]
}

is_session_folder() { [[ $1 =~ ^/.*/nl-(kernels|ray|dask)-[[:alnum:]_]{8}$ && -O $1 && -d $1 && ! -L $1 ]]; }

# ------------------------------------------------------------------------------------------------------ a job array

# The last task of an array to end reports the end of all of them (see array_task.sh).
conclude_array() {
  local all=${NBL_SESSION_DIR%/tasks/*} file count=0 failed=0 stopped=0 cause=finished code=0 text ended
  for file in "$all"/tasks/*/exit.json; do [[ ! -e $file ]] || ((count++)); done
  ((count > 0 && count >= ${SLURM_ARRAY_TASK_COUNT:-count})) || return 0
  for file in "$all"/tasks/*/exit.json; do
    read_line "$file"
    case $REPLY in
      *'"cause":"finished",'*) ;;
      *'"cause":"stopped",'*) ((stopped++)) ;;
      *) ((failed++)) ;;
    esac
  done
  text="$failed of $count tasks failed."
  ended='were cancelled or reached their walltime.'
  ((stopped != 1)) || ended='was cancelled or reached its walltime.'
  if ((failed)); then
    cause=script-failed code=1
    ((!stopped)) || text="${text%.}, and $stopped $ended"
  elif ((stopped)); then
    cause=stopped code=143 text="$stopped of $count tasks $ended"
  fi
  json_string "${SLURM_ARRAY_JOB_ID-}"
  text="{\"version\":1,\"job\":$REPLY,\"cause\":\"$cause\",\"message\":\"$text\",\"exit_code\":$code"
  utc_now
  write_file "$all/exit.json" "$text,\"ended\":\"$REPLY\"}"
}
