#!/bin/bash -l
# train-multi-node: trains on all GPUs of several nodes: srun starts torchrun on each, which starts one process per GPU.
#SBATCH --job-name=train-multi-node
#SBATCH --time=01:00:00
#SBATCH --nodes=2 --ntasks-per-node=1 --cpus-per-task=8
#SBATCH --gpus-per-node=2
#SBATCH --output=%x-%j.out --open-mode=append
#SBATCH --signal=B:USR1@120 --requeue
#
# srun belongs to Slurm: with another scheduler, use train-mpi.sh.
TRAINING=${TRAINING:-training}   # the folder with the Python files, beside this file; all nodes must see it
MODULES=${MODULES-}              # such as PyTorch/2.9.1-foss-2024a-CUDA-12.6.0
IMAGE=${IMAGE-}                  # or an Apptainer image, as in  IMAGE=/apps/torch.sif sbatch train-multi-node.sh
PROCESSES=${PROCESSES:-gpu}      # on each node; gpu: one for each GPU. Without GPUs: PROCESSES=2 sbatch …

# shellcheck disable=SC2086  # several modules may be named
[ -z "$MODULES" ] || module load $MODULES || exit
job=$SLURM_JOB_ID
OUTPUT=${OUTPUT:-runs/$job}      # not an option, because the lines below use it as well
export OMP_NUM_THREADS=${OMP_NUM_THREADS:-1}   # threads of each process, for what it does on the CPU

# The processes meet on the first node, which is this one, at a port computed from the job's id, so that two jobs on a
# node use different ones. It is below 32000, because Linux uses higher ports for outgoing connections. If it is in use
# already, the next one is taken.
head=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
port=$((20000 + SLURM_JOB_ID % 12000))
while (exec 3<>"/dev/tcp/$head/$port") 2>/dev/null; do port=$((port + 1)); done
echo "The processes meet at $head:$port."

# Two minutes before the walltime ends, Slurm sends USR1 only to this script (B:), because it would kill the programs
# around the trainer. A file then asks the trainer to save a checkpoint and stop.
mkdir -p "$OUTPUT" && rm -f "$OUTPUT/stop"
trap 'touch "$OUTPUT/stop"' USR1
start=()
[ -z "$IMAGE" ] || start=(apptainer exec --nv "$IMAGE")

# --cpus-per-task: since Slurm 22.05, srun does not inherit it from the job. --kill-on-bad-exit: if one node's processes
# fail, those of the others end as well, instead of waiting for them until the walltime ends.
srun --cpus-per-task="$SLURM_CPUS_PER_TASK" --kill-on-bad-exit=1 "${start[@]}" torchrun \
  --nnodes="$SLURM_JOB_NUM_NODES" --nproc-per-node="$PROCESSES" \
  --rdzv-backend=c10d --rdzv-id="$SLURM_JOB_ID" --rdzv-endpoint="$head:$port" \
  "$TRAINING/train_ddp.py" --output "$OUTPUT" --max-epochs 5 "$@" &
while kill -0 $! 2>/dev/null; do wait $!; done; wait $! || exit   # a signal ends wait early

# Not done yet: requeue the job with the same id, but not endlessly.
[ -e "$OUTPUT/unfinished" ] || exit 0
[ "${SLURM_TASK_PID:-$$}" = $$ ] || { echo "Not done yet: run the same command again."; exit 99; }   # not the job's script
echo "$job" >>"$OUTPUT/requeued"
[ "$(grep -cxF "$job" "$OUTPUT/requeued")" -le 50 ] || { echo "Not done after 50 requeues: raise --time." >&2; exit 1; }
exec scontrol requeue "$job"
