# shellcheck shell=bash
#
# Whether the job is still wanted, if it continues another one. What runs beside the program in a job: an SSH server into
# the session, the sampler of what is used, and what notes the image's digest; and what removes the folders of jobs that
# were killed. jupyterlab.sh sources this file; it is never run.
#
# shellcheck disable=SC2034,SC2154  # it shares its variables with jupyterlab.sh and lib.sh

# --------------------------------------------------------------------------------------------------- the job before

# How much earlier than its walltime a session ends that somebody has cancelled.
readonly EARLY_SECONDS=120

# A session that somebody has shut down or cancelled, or that nobody used, does not continue in the next job
# (continues=NAME). Nor do two jobs of one session run for long: one that was put back into the queue gives way to its
# next job, if that runs by now (continues_in); and the next job to one that has started again since it was queued.
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

# was_ended_early DIRECTORY: whether the session was ended by a signal long before its walltime was over, by what the
# launcher has noted of that when it queued this job. It was cancelled, or preempted: an attached launcher then ends this
# job as well. REPLY is the session's exit.json.
was_ended_early() {
  local ended ends
  [[ $REPLY =~ \"ended\":\"([0-9TZ:-]+)\" ]] && ended=$(date -d "${BASH_REMATCH[1]}" +%s 2>/dev/null) || return 1
  read_line "$1/next_job.json" && [[ $REPLY =~ \"ends\":\"([0-9TZ:+-]+)\" ]] || return 1
  ends=$(date -d "${BASH_REMATCH[1]}" +%s 2>/dev/null) && ((ends - ended > EARLY_SECONDS))
}

# ------------------------------------------------------------------------------------------------- the SSH server

# Start an SSH server into this session, where session.env asks for one. In a process group of its own, as JupyterLab: a
# terminal's Ctrl-C is for this script, which ends the rest.
start_sshd() {
  [[ $want_sshd == yes ]] || return 0
  set -m
  "$BASH" "$scripts/sshd.sh" listen "$NBL_SESSION_DIR" </dev/null &
  ssh_server=$!
  set +m
}

# Set ssh_port to the port of the SSH server; to nothing where there is none, and the log then says why. It takes some
# hundredths of a second; a program on a busy file server may take longer, and the tunnel has other ways.
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

# Asked of bash, which knows its children: the number of one that has ended may be another process's by now.
is_sshd_running() { [[ -n $ssh_server && $'\n'$(jobs -rp)$'\n' == *$'\n'"$ssh_server"$'\n'* ]]; }

# sshd serves every connection in a session of its own and writes over its environment: no process group, no session and
# no mark leads to it. But all of them write to one log.
end_sshd() {
  [[ -n $ssh_server ]] || return 0
  if is_sshd_running; then kill -KILL "$ssh_server"; fi
  end_writers "$NBL_SESSION_DIR/runtime/sshd.log"
  ssh_server=''
}

# ------------------------------------------------------------------------------------ connections to the login node

# Answer the launchers that call the job from a login node (reverse.sh), where session.env asks for that. It ends when
# this script does, which has the other end of its input.
start_reverse() {
  [[ $want_reverse == yes && -r $scripts/reverse.sh ]] || return 0
  local runtime=$NBL_SESSION_DIR/runtime
  if ! { mkdir -- "$runtime/reverse" && : >"$runtime/reverse/calls"; }; then
    log "$runtime/reverse could not be made; no login node can call this job"
    return
  fi
  exec {reverse}> >(exec "$BASH" "$scripts/reverse.sh" answer "$NBL_SESSION_DIR" 3>&2 2>"$runtime/reverse.log" >&2)
}

# All that it has started writes to these files.
end_reverse() {
  local file
  [[ -n ${reverse-} ]] || return 0
  exec {reverse}>&-
  reverse=''
  for file in "$NBL_SESSION_DIR"/runtime/reverse{,-*}.log; do [[ ! -e $file ]] || end_writers "$file"; done
}

# ------------------------------------------------------------------------------------------------ what the node has

# Look at the node, where session.env asks for that and a launcher has put survey.sh here: runtime/survey is what that
# prints, once it is complete.
start_survey() {
  local file=$NBL_SESSION_DIR/runtime/survey
  [[ $want_survey == yes && -r $NBL_SESSION_DIR/survey.sh ]] || return 0
  { "$BASH" "$NBL_SESSION_DIR/survey.sh" node >"$file.new" && mv -f -- "$file.new" "$file"; } </dev/null 2>/dev/null &
}

is_surveying() { [[ ${want_survey-} == yes && ! -e $NBL_SESSION_DIR/runtime/survey ]]; }

# ------------------------------------------------------------------------------------------------ what the job uses

# Start what watches the program, unless that is done.
start_watching() {
  [[ -z $sampler$heartbeat ]] || return 0
  start_sampler
  [[ $want_program != jupyterlab ]] || start_heartbeat
}

# Sample it, where session.env asks for that. In a process group of its own, and behind everything else that wants to
# run. A SIGPIPE is a signal again there: it ends an nvidia-smi to which nobody listens any more.
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
  local looks
  [[ -n $sampler ]] || return 0
  # Asked, so that it can say what it has cost; it gets a processor after everybody else.
  kill -TERM "$sampler"
  for ((looks = 0; looks < 150; looks++)); do
    [[ $'\n'$(jobs -rp)$'\n' == *$'\n'"$sampler"$'\n'* ]] || break
    pause 0.02
  done
  kill -KILL -- "-$sampler"
  sampler=''
}

# ------------------------------------------------------------------------------------------------ the class's teacher

# Report to the teacher of a course, where session.env asks for that. In a process group of its own, and behind all else.
start_heartbeat() {
  [[ -n $want_class_folder && -r $scripts/heartbeat.sh ]] || return 0
  set -m
  nice -n 10 "$BASH" "$scripts/heartbeat.sh" "$NBL_SESSION_DIR" "$want_class_folder" "${want_course_folder:-$PWD}" \
    "$$" "$program" </dev/null >&2 &
  heartbeat=$!
  set +m
}

# Asked, so that it can report how the session has ended; a file server that does not answer is not waited for.
end_heartbeat() {
  local looks
  [[ -n $heartbeat ]] || return 0
  kill -TERM "$heartbeat" 2>/dev/null
  for ((looks = 0; looks < 50; looks++)); do
    [[ $'\n'$(jobs -rp)$'\n' == *$'\n'"$heartbeat"$'\n'* ]] || break
    pause 0.04
  done
  kill -KILL -- "-$heartbeat" 2>/dev/null
  heartbeat=''
}

# -------------------------------------------------------------------------------------------------------- the image

# Note in image.json which image it is. Only now: to take the digest of a large one means to read all of it.
start_noting_image() {
  [[ -n $want_container && -r $scripts/image.sh ]] || return 0
  set -m
  "$BASH" "$scripts/image.sh" "${1-note}" "$NBL_SESSION_DIR" </dev/null >&2 &
  noter=$!
  set +m
}

is_noting_image() { [[ -n $noter && $'\n'$(jobs -pr)$'\n' == *$'\n'"$noter"$'\n'* ]]; }

# A run that took less time than the digest: it is fetched with its notes now, and they say which image it was. The
# calculation may be nearly done. But at low priority, which only root may raise, it might never be on a busy node: then
# it begins again; what was read is still in memory.
await_image_note() {
  local first=$noter patience=$DIGEST_NEARLY_DONE_SECONDS
  waiting=''
  is_noting_image || return 0
  log "waiting for the image's digest"
  ((patience < DIGEST_SECONDS)) || patience=0
  notes_image_for "$patience" || return 0
  end_noting_image
  wait "$first" 2>/dev/null # bash would tell the log how it was killed
  start_noting_image note-now
  ! notes_image_for "$((DIGEST_SECONDS - patience))" ||
    log "the image's digest was not calculated within $DIGEST_SECONDS seconds after the notebook ended"
}

# notes_image_for SECONDS: wait so long at most. Fail once it is done, or the job was told to end.
notes_image_for() {
  local looks
  for ((looks = 0; looks < 10 * $1; looks++)); do
    [[ -z $signal ]] && is_noting_image || return 1
    pause 0.1
  done
}

# Once it has ended, its number may be another's.
end_noting_image() {
  ! is_noting_image || kill -KILL -- "-$noter" 2>/dev/null
  noter=''
}

# ------------------------------------------------------------------------------------- copies on the node's own disk

# How often a site's cleaner of /tmp has to see that a copy is in use: they take what is some days old.
readonly TOUCH_SECONDS=${NBL_STAGE_TOUCH_SECONDS:-86400}

# Lock the copies that the program uses (stage.sh) for as long as this script runs: nobody removes them meanwhile. In
# folders that are locked, systemd-tmpfiles removes nothing.
hold_staged() {
  local file lock
  while IFS= read -r file; do
    { exec {lock}<"$file"; } 2>/dev/null && flock -s -n "$lock"
    { exec {lock}<"${file%.lock}"; } 2>/dev/null && flock -s -n "$lock"
  done <"$NBL_SESSION_DIR/runtime/staged"
  : >"$NBL_SESSION_DIR/runtime/staged-held"
  exec {holding}> >(keep_from_cleaners)
}

# Until the copies are made, the script has not begun, and signals are for this one.
await_copies() {
  until [[ -e $NBL_SESSION_DIR/runtime/staging-over ]] || ! is_running; do
    [[ -z $signal ]] || leave_on_signal
    pause 0.05
  done
  [[ ! -e $NBL_SESSION_DIR/runtime/staged ]] || hold_staged
}

# It ends when this script does, which has the other end of its input.
keep_from_cleaners() {
  local file
  trap '' USR1 USR2
  while read -r -t "$TOUCH_SECONDS" _; (($? > 128)); do
    while IFS= read -r file; do
      touch -c -- "$file" "${file%.lock}/size" 2>/dev/null
    done <"$NBL_SESSION_DIR/runtime/staged"
  done
}

# Make the archive that was not there yet (stage.sh), and the copy from it: for the next job, and behind all else.
start_staging() {
  [[ -e $NBL_SESSION_DIR/runtime/stage-later && -r $scripts/stage.sh ]] || return 0
  set -m
  nice -n 19 "$BASH" "$scripts/stage.sh" "$NBL_SESSION_DIR" </dev/null >&2 &
  stager=$!
  set +m
}

# Asked, so that it can remove what is not finished.
end_staging() {
  local looks
  for ((looks = 0; looks < 10; looks++)); do
    is_staging || break
    ((looks)) || kill -TERM -- "-$stager" 2>/dev/null
    pause 0.05
  done
  # Once it has ended, its number may be another's.
  ! is_staging || kill -KILL -- "-$stager" 2>/dev/null
  stager=''
  [[ -z ${holding-} ]] || exec {holding}>&-
  holding=''
}

# What was not finished when it was ended or killed.
remove_half_copies() {
  compgen -G "$NBL_SESSION_DIR/runtime/[cp]*ing-*" >/dev/null && [[ -r $scripts/stage_disk.sh ]] || return 0
  # shellcheck source=jobscripts/lib/stage_disk.sh
  source "$scripts/stage_disk.sh"
  remove_half_made "$NBL_SESSION_DIR/runtime"
}

is_staging() { [[ -n $stager && $'\n'$(jobs -pr)$'\n' == *$'\n'"$stager"$'\n'* ]]; }

# --------------------------------------------------------------------------- the folders of kernels, Ray's and Dask's

# A job that was killed as a whole has not removed its folders: remove those in which no socket is open, and whose name no
# process was started with, as JupyterLab and Ray are. Not those in $TMPDIR, which other machines may see, with processes
# that are unseen here.
remove_left_folders() {
  local folder known folders=()
  for folder in {/tmp,/var/tmp}/nl-{kernels,dask}-* /tmp/nl-ray-*; do
    # Ray's is there before a process has its name: while a container starts. Dask's has a socket that says so.
    [[ $folder == */nl-kernels-* || -n $(find "$folder" -maxdepth 0 -mmin +10 2>/dev/null) ]] || continue
    [[ $folder != */nl-dask-* || -S $folder/in-use ]] || continue
    if is_session_folder "$folder"; then folders+=("$folder"); fi
  done
  ((${#folders[@]})) && [[ -r /proc/net/unix ]] || return 0
  known=$(cat /proc/net/unix /proc/[0-9]*/environ 2>/dev/null | tr '\0' '\n')
  # Without the path of this job's own directory, what is running was not read.
  [[ $known == *"$NBL_SESSION_DIR"* ]] || return 0
  for folder in "${folders[@]}"; do
    [[ $known == *"$folder"* ]] || rm -rf -- "$folder"
  done
}

is_session_folder() { [[ $1 =~ ^/.*/nl-(kernels|ray|dask)-[[:alnum:]_]{8}$ && -O $1 && -d $1 && ! -L $1 ]]; }

# ------------------------------------------------------------------------------------------------------ a job array

# The last task of an array that ends reports the end of all of them (see array_task.sh).
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
  text="{\"version\":1,\"job\":$REPLY,\"cause\":\"$cause\",\"message\":\"$text\""
  write_file "$all/exit.json" "$text,\"exit_code\":$code,\"ended\":\"$(utc_now)\"}"
}
