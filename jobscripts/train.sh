#!/bin/bash -l
# train: trains the image classifier on one GPU, and continues automatically if the walltime is too short.
#SBATCH --job-name=train
#SBATCH --time=01:00:00
#SBATCH --ntasks=1 --cpus-per-task=4
#SBATCH --gpus-per-node=1
#SBATCH --output=%x-%j.out --open-mode=append
#SBATCH --signal=B:USR1@120 --requeue
#SBATCH --ignore-pbs
#
#BSUB -J train -q gpuv100
#BSUB -W 1:00 -n 4
#BSUB -R "span[hosts=1] rusage[mem=2GB]"
#BSUB -gpu "num=1:mode=exclusive_process"
#BSUB -o gpu_%J.out -e gpu_%J.err
#BSUB -wa USR1 -wt 2 -Q 99
#
#PBS -N train -j oe
#PBS -l walltime=01:00:00
#PBS -l select=1:ncpus=4:ngpus=1
#
# Put options of the trainer after the script's name, or at the end of this file:  sbatch train.sh --max-epochs 20
TRAINING=${TRAINING:-training}   # the folder with the Python files, beside this file
MODULES=${MODULES-}              # such as PyTorch/2.9.1-foss-2024a-CUDA-12.6.0
IMAGE=${IMAGE-}                  # or an Apptainer image, as in  IMAGE=/apps/torch.sif sbatch train.sh

cd "${PBS_O_WORKDIR:-.}" || exit
# shellcheck disable=SC2086  # several modules may be named
[ -z "$MODULES" ] || module load $MODULES || exit
job=${SLURM_JOB_ID:-${LSB_JOBID:-${PBS_JOBID:-by-hand}}}
OUTPUT=${OUTPUT:-runs/$job}      # not an option, because the lines below use it as well

# Before the walltime ends, the scheduler sends USR1: then a file asks the trainer to save a checkpoint and stop.
mkdir -p "$OUTPUT" && rm -f "$OUTPUT/stop"
trap 'touch "$OUTPUT/stop"' USR1
trap 'kill %1' INT TERM   # for Ctrl-C, if you run this file by hand
start=()
[ -z "${SLURM_JOB_ID-}" ] || start=(srun --ntasks=1 --cpus-per-task="${SLURM_CPUS_PER_TASK:-${SLURM_CPUS_ON_NODE:-1}}")
[ -z "$IMAGE" ] || start+=(apptainer exec --nv "$IMAGE")
(trap '' USR1 && exec "${start[@]}" python3 "$TRAINING/image_classifier.py" --output "$OUTPUT" \
  --accelerator auto --devices 1 --max-epochs 5 "$@") &
while kill -0 $! 2>/dev/null; do wait $!; done; wait $! || exit   # a signal ends wait early

# Not done yet: requeue the job with the same id, but not endlessly. LSF does that for the exit code given by -Q.
[ -e "$OUTPUT/unfinished" ] || exit 0
[ "${SLURM_TASK_PID:-$$}" = $$ ] || { echo "Not done yet: run the same command again."; exit 99; }   # not the job's script
echo "$job" >>"$OUTPUT/requeued"
[ "$(grep -cxF "$job" "$OUTPUT/requeued")" -le 50 ] || { echo "Not done after 50 requeues: raise --time." >&2; exit 1; }
[ -z "${SLURM_JOB_ID-}" ] || exec scontrol requeue "$SLURM_JOB_ID"
exit 99
