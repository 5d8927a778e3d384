#!/bin/bash -l
# gpu-check: shows the job's GPU, and whether PyTorch can compute on it.
#SBATCH --job-name=gpu-check
#SBATCH --time=00:05:00
#SBATCH --ntasks=1
#SBATCH --cpus-per-task=4
#SBATCH --gpus-per-node=1
#SBATCH --output=%x-%j.out
#SBATCH --ignore-pbs
#
#BSUB -J gpu-check
#BSUB -q gpuv100
#BSUB -W 0:05
#BSUB -n 4
#BSUB -R "span[hosts=1] rusage[mem=2GB]"
#BSUB -gpu "num=1:mode=exclusive_process"
#BSUB -o gpu-check-%J.out
#
#PBS -N gpu-check
#PBS -l walltime=00:05:00
#PBS -l select=1:ncpus=4:ngpus=1
#PBS -j oe
#
# Software: where PyTorch comes from. Set one of these here, or when you submit:
#   IMAGE=/apps/torch.sif sbatch gpu-check.sh
MODULES=${MODULES-}   # such as PyTorch/2.9.1-foss-2024a-CUDA-12.6.0
IMAGE=${IMAGE-}       # an Apptainer image; --nv lets it use the node's GPU driver
cd "${PBS_O_WORKDIR:-.}" || exit
# shellcheck disable=SC2086  # several modules may be named
[ -z "$MODULES" ] || module load $MODULES || exit
start=()
[ -z "$IMAGE" ] || start=(apptainer exec --nv "$IMAGE")

echo "CUDA_VISIBLE_DEVICES=${CUDA_VISIBLE_DEVICES-(not set)}   # the GPUs that the scheduler gave to this job"
nvidia-smi || echo "There is no nvidia-smi here: this node has no NVIDIA GPU, or the job asked for none."

"${start[@]}" python3 - <<'END'
import time, torch

print(f"PyTorch {torch.__version__}, for CUDA {torch.version.cuda}; GPUs that it sees: {torch.cuda.device_count()}")
for number in range(torch.cuda.device_count()):
    matrix = torch.rand(8192, 8192, device=f"cuda:{number}")
    for _ in range(2):  # the first run includes setting up CUDA
        began = time.perf_counter()
        matrix @ matrix
        torch.cuda.synchronize(number)
        seconds = time.perf_counter() - began
    print(f"{torch.cuda.get_device_name(number)}: {2 * 8192**3 / seconds / 1e12:.1f} TFLOP/s")
END
