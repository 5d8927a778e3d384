#!/bin/bash -l
# train-mpi: trains on several nodes with one process per GPU, all started by mpirun.
#SBATCH --job-name=train-mpi
#SBATCH --time=01:00:00
#SBATCH --nodes=2 --ntasks-per-node=2 --cpus-per-task=4
#SBATCH --gpus-per-node=2
#SBATCH --output=%x-%j.out --open-mode=append
#SBATCH --ignore-pbs
#
#BSUB -J train-mpi
#BSUB -q gpuv100
#BSUB -W 1:00
#BSUB -n 4
#BSUB -R "span[ptile=2] rusage[mem=2GB]"
#BSUB -gpu "num=2:mode=shared"
#BSUB -o train-mpi-%J.out
#
#PBS -N train-mpi
#PBS -l walltime=01:00:00
#PBS -l select=2:ncpus=8:mpiprocs=2:ngpus=2
#PBS -j oe
#
# mpirun asks the scheduler on which nodes to start how many processes. It comes from a module outside the image;
# PyTorch need not support MPI: each process finds its rank in the variables that mpirun sets.
TRAINING=${TRAINING:-training}   # the folder with the Python files, beside this file; all nodes must see it
MODULES=${MODULES-}              # such as "OpenMPI/5.0.3-GCC-13.3.0 PyTorch/2.9.1-foss-2024a-CUDA-12.6.0"
IMAGE=${IMAGE-}                  # or an Apptainer image with PyTorch, and the module of mpirun in MODULES
MPIRUN=${MPIRUN:-mpirun}         # with options of your site, such as MPIRUN="mpirun --mca btl_tcp_if_include ib0"

cd "${PBS_O_WORKDIR:-.}" || exit
# shellcheck disable=SC2086  # several modules may be named
[ -z "$MODULES" ] || module load $MODULES || exit
job=${SLURM_JOB_ID:-${LSB_JOBID:-${PBS_JOBID:-by-hand}}}
export OMP_NUM_THREADS=${OMP_NUM_THREADS:-1}   # threads of each process, for what it does on the CPU

# Rank 0 is on this node, where the others find it at a port made from the job's id: see train-multi-node.sh.
head=$(hostname)
port=$((20000 + 10#0${job//[!0-9]/} % 12000))
while (exec 3<>"/dev/tcp/$head/$port") 2>/dev/null; do port=$((port + 1)); done

start=()
[ -z "$IMAGE" ] || start=(apptainer exec --nv "$IMAGE")
# env: passes variables to the other nodes with every MPI, whose own options for it differ
# shellcheck disable=SC2086  # MPIRUN may have options
exec $MPIRUN env MASTER_ADDR="$head" MASTER_PORT="$port" OMP_NUM_THREADS="$OMP_NUM_THREADS" \
  "${start[@]}" python3 "$TRAINING/train_ddp.py" --output "runs/$job" --max-epochs 5 "$@"
