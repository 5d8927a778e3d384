#!/bin/bash -l
# first-job: a first batch job, which prints where it runs and what it was given.
#SBATCH --job-name=first-job
#SBATCH --time=00:05:00
#SBATCH --ntasks=1
#SBATCH --cpus-per-task=1
#SBATCH --mem=500M
#SBATCH --output=%x-%j.out
#SBATCH --ignore-pbs
#
#BSUB -J first-job
#BSUB -W 0:05
#BSUB -n 1
#BSUB -R "span[hosts=1] rusage[mem=500MB]"
#BSUB -o first-job-%J.out
#
#PBS -N first-job
#PBS -l walltime=00:05:00
#PBS -l select=1:ncpus=1:mem=500mb
#PBS -j oe
#
#$ -N first-job
#$ -S /bin/bash -cwd -j y
#$ -l h_rt=00:05:00
#
# Submit it on the login node, in its folder:    Slurm  sbatch first-job.sh      LSF          bsub < first-job.sh
#                                                PBS    qsub first-job.sh        Grid Engine  qsub first-job.sh
# Lines such as #SBATCH say what the job needs. Each scheduler reads its own lines and ignores the others as comments.
# Slurm's sbatch would read those of PBS and LSF as well: --ignore-pbs prevents that.
# Many clusters need more: an account (#SBATCH -A …), a partition (#SBATCH -p …). Typed flags override the file's:
#   sbatch -A myproject -t 2 first-job.sh

# A batch job begins where it was submitted; with PBS it begins in the home directory.
cd "${PBS_O_WORKDIR:-.}" || exit

echo "Hello from job ${SLURM_JOB_ID:-${LSB_JOBID:-${PBS_JOBID:-${JOB_ID:-(none: run by hand)}}}} on $(hostname)"
echo "It runs in $PWD and may use $(nproc) of the node's cores."
date
sleep 10   # time to see it in the queue
date

# While it waits or runs:  squeue --me            Cancel it:  scancel JOB
# Afterwards, what it used:
#   sacct -j JOB --format=JobID,JobName,State,ExitCode,Elapsed,TotalCPU,MaxRSS,ReqMem,NodeList
# Elapsed is the time that passed, TotalCPU the time that the cores worked, MaxRSS the most memory it had.
