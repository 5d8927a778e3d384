# shellcheck shell=bash
#
# Starts, awaits and ends the workers of a distributed framework on all nodes of a job, if session.env asks for one
# (with=dask, with=ray). workers_dask.sh and workers_ray.sh have what is specific to a framework. jupyterlab.sh sources
# this file; it is never run.
#
# shellcheck disable=SC2006,SC2034,SC2154  # it shares its variables with jupyterlab.sh and lib.sh

# Seconds that the workers may take to end by themselves.
readonly WORKERS_GRACE_SECONDS=4

scheduler='' workers='' workers_report='' workers_begun=''

# Start the scheduler on this node, wait for it, and start the workers; they join while JupyterLab starts. Programs
# started from now on find the scheduler by its usual variables.
start_workers() {
  local plural=s
  [[ -n $want_with ]] || return 0
  # shellcheck source=jobscripts/lib/workers_dask.sh
  source "$scripts/workers_$want_with.sh"
  count_nodes
  ((NBL_NODES > 1)) || plural=''
  log "starting $framework_name on $NBL_NODES node$plural"
  start_part "$BASH" "$NBL_SESSION_DIR/worker_node.sh" "$NBL_SESSION_DIR" scheduler
  scheduler=$part workers_begun=yes
  await_scheduler
  name_scheduler
  ((worker_nodes)) || return 0
  find_step_command
  start_part "${step[@]}" "$BASH" "$NBL_SESSION_DIR/worker_node.sh" "$NBL_SESSION_DIR" workers
  workers=$part
}

# With schedulers other than Slurm, there is no uniform way to start a process on the other nodes.
count_nodes() {
  local file
  export NBL_NODES=1 NBL_FIRST_NODE=$node
  [[ -z ${SLURM_JOB_ID-} ]] || NBL_NODES=${SLURM_JOB_NUM_NODES:-1}
  worker_nodes=$NBL_NODES
  [[ $framework_first_node == workers ]] || worker_nodes=$((NBL_NODES - 1))
  for file in "${framework_files[@]/#/$NBL_SESSION_DIR/}"; do
    [[ -s $file ]] || leave workers-failed 1 "The keys for $framework_name's connections are missing: there is no $file."
  done
  if [[ -z ${SLURM_JOB_ID-} && `printf '%s\n' "${LSB_HOSTS-}" | tr ' ' '\n' | sort -u | grep -c .` -gt 1 ]]; then
    leave workers-failed 1 "$framework_name on several nodes needs Slurm: ask for one node, with more cores."
  fi
}

# In its own process group, like JupyterLab, and with the user's umask.
start_part() {
  set -m
  (
    trap - PIPE
    umask "$users_umask"
    exec "$@"
  ) </dev/null >&2 &
  part=$!
  set +m
}

# Set step to the words that start a command once on each node with workers, with all resources of the job there.
# Slurm's variables with requests per task or core are unset, because srun would apply them to the step again.
find_step_command() {
  local name others=()
  step=()
  ((NBL_NODES > 1)) || return 0
  ((worker_nodes == NBL_NODES)) || others=(--relative=1)
  step=(env)
  for name in "${!SLURM_NTASKS@}" "${!SLURM_TRES_PER@}" SLURM_CPUS_PER_TASK SLURM_CPUS_PER_GPU SLURM_GPUS_PER_TASK \
    SLURM_DISTRIBUTION SLURM_CPU_BIND SLURM_EXACT; do
    step+=(-u "$name")
  done
  step+=(srun --jobid="$SLURM_JOB_ID" --overlap --nodes="$worker_nodes" --ntasks="$worker_nodes" --ntasks-per-node=1
    "${others[@]}" --cpu-bind=none --mpi=none --export=ALL --kill-on-bad-exit=0 --wait=0 --input=none --unbuffered
    --quiet)
}

await_scheduler() {
  local said=15 file=$NBL_SESSION_DIR/runtime/scheduler
  SECONDS=0
  until read_line "$file"; do
    [[ -z $signal ]] || leave_on_signal
    is_job_running "$scheduler" || leave_without_workers "$scheduler" "scheduler on $node"
    wait_for_part "$framework_name's scheduler did not start on $node"
  done
  scheduler_address=${REPLY% *} dashboard_port=${REPLY##* }
}

# wait_for_part SENTENCE: wait a moment; end the job with the sentence once it has taken too long.
wait_for_part() {
  if ((SECONDS > want_start_timeout)); then
    leave workers-failed 1 "$1 within $want_start_timeout seconds: see the job's log; start_timeout= allows more."
  fi
  if ((SECONDS >= said)); then
    log "waiting for $framework_name ($SECONDS s)"
    ((said += 15))
  fi
  pause 0.05
}

# Wait until each node has its workers, and set workers_report to their entry in endpoint.json.
await_workers() {
  local said=15 nodes=0 count=0 threads=0 memory=0
  [[ -n $want_with ]] || return 0
  SECONDS=0
  until count_workers && ((nodes >= NBL_NODES)); do
    [[ -z $signal ]] || leave_on_signal
    is_job_running "$scheduler" || leave_without_workers "$scheduler" "scheduler on $node"
    [[ -z $workers ]] || is_job_running "$workers" || leave_without_workers "$workers" "workers"
    ! find_cause || leave "${REPLY%% *}" 1 "${REPLY#* }"
    wait_for_part "Only $nodes of $NBL_NODES nodes had joined $framework_name"
  done
  say_workers
  json_string "$scheduler_address"
  printf -v workers_report ',"%s":{"scheduler":%s,"nodes":%d,"workers":%d,"threads":%d,"memory_mib":%d,"dashboard":%d}' \
    "$want_with" "$REPLY" "$nodes" "$count" "$threads" "$((memory / 1048576))" "$dashboard_port"
}

# leave_without_workers JOB NAME
leave_without_workers() {
  local code
  wait "$1" 2>/dev/null
  code=$?
  ! find_cause || leave "${REPLY%% *}" 1 "${REPLY#* }"
  leave workers-failed "$((code ? code : 1))" "$framework_name's $2 ended with exit code $code: see the job's log."
}

# Set REPLY to the cause that one of the nodes has reported for its end.
find_cause() {
  local file
  for file in "$NBL_SESSION_DIR"/runtime/cause-{scheduler,workers}-*; do
    ! read_line "$file" || return 0
  done
  return 1
}

# End the workers first: without the scheduler they would wait for it. srun forwards this signal, while SIGTERM would make
# it kill the step.
end_workers() {
  local part
  for part in "${workers-}" "${scheduler-}"; do
    if is_job_running "$part"; then
      kill -USR2 "$part" 2>/dev/null
      wait_while 0.05 "$((20 * WORKERS_GRACE_SECONDS))" is_job_running "$part"
      kill -KILL -- "-$part" 2>/dev/null
    fi
  done
  workers='' scheduler=''
}
