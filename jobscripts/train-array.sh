#!/bin/bash -l
# train-array: trains once with each of several learning rates, each in its own job.
#SBATCH --job-name=train-array
#SBATCH --array=1-3
#SBATCH --time=00:30:00
#SBATCH --ntasks=1 --cpus-per-task=4
#SBATCH --gpus-per-node=1
#SBATCH --output=%x-%A_%a.out
#SBATCH --ignore-pbs
#
#BSUB -J "train-array[1-3]"
#BSUB -q gpuv100
#BSUB -W 0:30
#BSUB -n 4
#BSUB -R "span[hosts=1] rusage[mem=2GB]"
#BSUB -gpu "num=1:mode=exclusive_process"
#BSUB -o train-array-%J_%I.out
#
#PBS -N train-array
#PBS -J 1-3
#PBS -l walltime=00:30:00
#PBS -l select=1:ncpus=4:ngpus=1
#PBS -j oe
#
#$ -N train-array
#$ -S /bin/bash -cwd -j y
#$ -t 1-3
#$ -l h_rt=00:30:00
#
# Only two at a time: [1-3]%2 with Slurm and LSF, -tc 2 with Grid Engine. Only one task:  sbatch --array=2
# train-array.sh
TRAINING=${TRAINING:-training}   # the folder with the Python files, beside this file
MODULES=${MODULES-}              # such as PyTorch/2.9.1-foss-2024a-CUDA-12.6.0
IMAGE=${IMAGE-}                  # or an Apptainer image, as in  IMAGE=/apps/torch.sif sbatch train-array.sh
RATES=(0.01 0.001 0.0001)        # as many as the array has tasks

cd "${PBS_O_WORKDIR:-.}" || exit
# shellcheck disable=SC2086  # several modules may be named
[ -z "$MODULES" ] || module load $MODULES || exit
task=${SLURM_ARRAY_TASK_ID:-${LSB_JOBINDEX:-${PBS_ARRAY_INDEX:-${SGE_TASK_ID:-1}}}}
rate=''
((task < 1)) || rate=${RATES[task - 1]}
[ -n "$rate" ] || { echo "Task $task has no learning rate: RATES has ${#RATES[@]}." >&2; exit 2; }

start=()
[ -z "$IMAGE" ] || start=(apptainer exec --nv "$IMAGE")
job=${SLURM_ARRAY_JOB_ID:-${LSB_JOBID:-${PBS_JOBID:-${JOB_ID:-by-hand}}}}
echo "Task $task: learning rate $rate"
exec "${start[@]}" python3 "$TRAINING/train_ddp.py" --output "runs/${job%%[*}/rate-$rate" --learning-rate "$rate" "$@"
