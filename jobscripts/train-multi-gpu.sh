#!/bin/bash -l
# train-multi-gpu: trains on all GPUs of one node: torchrun starts one process per GPU.
#SBATCH --job-name=train-multi-gpu
#SBATCH --time=01:00:00
#SBATCH --nodes=1 --ntasks=1 --cpus-per-task=8
#SBATCH --gpus-per-node=2
#SBATCH --output=%x-%j.out --open-mode=append
#SBATCH --signal=B:USR1@120 --requeue
#SBATCH --ignore-pbs
#
#BSUB -J train-multi-gpu -q gpuv100
#BSUB -W 1:00 -n 8 -o train-multi-gpu-%J.out
#BSUB -R "span[hosts=1] rusage[mem=2GB]"
#BSUB -gpu "num=2:mode=exclusive_process"
#BSUB -wa USR1 -wt 2 -Q 99
#
#PBS -N train-multi-gpu -j oe
#PBS -l walltime=01:00:00 -l select=1:ncpus=8:ngpus=2
#
TRAINING=${TRAINING:-training}   # the folder with the Python files, beside this file
MODULES=${MODULES-}              # such as PyTorch/2.9.1-foss-2024a-CUDA-12.6.0
IMAGE=${IMAGE-}                  # or an Apptainer image, as in  IMAGE=/apps/torch.sif sbatch train-multi-gpu.sh
PROCESSES=${PROCESSES:-gpu}      # gpu: one for each GPU of the job. Without GPUs: PROCESSES=2 sbatch …

cd "${PBS_O_WORKDIR:-.}" || exit
# shellcheck disable=SC2086  # several modules may be named
[ -z "$MODULES" ] || module load $MODULES || exit
job=${SLURM_JOB_ID:-${LSB_JOBID:-${PBS_JOBID:-by-hand}}}
OUTPUT=${OUTPUT:-runs/$job}      # not an option, because the lines below use it as well
export OMP_NUM_THREADS=${OMP_NUM_THREADS:-1}   # threads of each process, for what it does on the CPU

# Before the walltime ends, the scheduler sends USR1: then a file asks the trainer to save a checkpoint and stop.
mkdir -p "$OUTPUT" && rm -f "$OUTPUT/stop"
trap 'touch "$OUTPUT/stop"' USR1
trap 'kill %1' INT TERM   # for Ctrl-C, if you run this file by hand
start=()
[ -z "${SLURM_JOB_ID-}" ] || start=(srun --ntasks=1 --cpus-per-task="${SLURM_CPUS_PER_TASK:-${SLURM_CPUS_ON_NODE:-1}}")
[ -z "$IMAGE" ] || start+=(apptainer exec --nv "$IMAGE")
# --standalone: torchrun chooses a free port, on which the processes meet
(trap '' USR1 && exec "${start[@]}" torchrun --standalone --nproc-per-node="$PROCESSES" \
  "$TRAINING/train_ddp.py" --output "$OUTPUT" --max-epochs 5 "$@") &
while kill -0 $! 2>/dev/null; do wait $!; done; wait $! || exit   # a signal ends wait early

# Not done yet: requeue the job with the same id, but not endlessly. LSF does that for the exit code given by -Q.
[ -e "$OUTPUT/unfinished" ] || exit 0
[ "${SLURM_TASK_PID:-$$}" = $$ ] || { echo "Not done yet: run the same command again."; exit 99; }   # not the job's script
echo "$job" >>"$OUTPUT/requeued"
[ "$(grep -cxF "$job" "$OUTPUT/requeued")" -le 50 ] || { echo "Not done after 50 requeues: raise --time." >&2; exit 1; }
[ -z "${SLURM_JOB_ID-}" ] || exec scontrol requeue "$SLURM_JOB_ID"
exit 99
