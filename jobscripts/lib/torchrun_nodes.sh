#!/bin/bash
#
# torchrun on all nodes of a session, from a cell or a terminal of JupyterLab:
#
#   torchrun-all-nodes [options of torchrun] SCRIPT [arguments]
#
# enter.sh puts it on the PATH under that name if the job has several nodes. Each node gets one process per GPU, or a
# single process without GPUs, unless --nproc-per-node is given. It ends when the first process fails, or when the cell
# is interrupted.

# Bash's default shell options, whatever BASH_ENV and SHELLOPTS say; the same lines are in every script.
[[ -n ${users_options[1]+set} ]] ||
  users_options=("$SHELLOPTS" "$BASHOPTS" "${POSIXLY_CORRECT+$(compgen -e POSIXLY_CORRECT || :)}")
set +o posix; set +aefkmuvCET -B +o pipefail; trap - DEBUG ERR RETURN; [[ -n ${BASH_XTRACEFD-} ]] || set +x
shopt -u failglob nullglob dotglob nocaseglob nocasematch expand_aliases execfail lastpipe xpg_echo
IFS=$' \t\n'; unset GLOBIGNORE

main() {
  local head port processes=1 without=() name
  (($#)) || { printf 'usage: torchrun-all-nodes [options of torchrun] SCRIPT [arguments]\n' >&2; exit 2; }
  [[ -n ${SLURM_JOB_ID-} ]] || give_up "This is not a Slurm job. On one node, type: torchrun --standalone SCRIPT"
  type -P srun >/dev/null || give_up "There is no srun here, as in most images: use a job script instead, as\
 'launch-notebook jobscript train-multi-node' prints one."
  type -P torchrun >/dev/null || give_up "There is no torchrun in this environment: pip install torch."
  head=${SLURMD_NODENAME:-$(uname -n)}
  find_port
  [[ -z ${CUDA_VISIBLE_DEVICES-}${ROCR_VISIBLE_DEVICES-} ]] || processes=gpu
  # srun would apply requests per task or core in these variables to the step again.
  for name in "${!SLURM_NTASKS@}" "${!SLURM_TRES_PER@}" SLURM_CPUS_PER_TASK SLURM_CPUS_PER_GPU SLURM_GPUS_PER_TASK \
    SLURM_DISTRIBUTION SLURM_CPU_BIND SLURM_EXACT; do
    without+=(-u "$name")
  done
  exec env "${without[@]}" srun --jobid="$SLURM_JOB_ID" --overlap --nodes="$SLURM_JOB_NUM_NODES" \
    --ntasks="$SLURM_JOB_NUM_NODES" --ntasks-per-node=1 --cpu-bind=none --mpi=none --export=ALL --input=none \
    --kill-on-bad-exit=1 --quit-on-interrupt --unbuffered --quiet \
    torchrun --nnodes="$SLURM_JOB_NUM_NODES" --nproc-per-node="$processes" --rdzv-backend=c10d \
    --rdzv-id="$SLURM_JOB_ID-$port" --rdzv-endpoint="$head:$port" "$@"
}

give_up() {
  printf 'torchrun-all-nodes: %s\n' "$1" >&2
  exit 1
}

# Set port to a free one on this node: from 20000 to 31999, because Linux uses higher ones for outgoing connections.
find_port() {
  port=$((20000 + RANDOM % 12000))
  while (exec 3<>"/dev/tcp/$head/$port") 2>/dev/null; do port=$((20000 + RANDOM % 12000)); done
}

main "$@"
