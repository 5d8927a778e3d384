"""The processes of a training, connected by PyTorch: the device of each, and how they exchange gradients."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable
from contextlib import nullcontext
from datetime import timedelta
from statistics import median
from typing import Any

import torch
import torch.distributed as dist
from ranks import Process, TrainingError, gpus_of_job, meeting_point, threads, unused_gpus
from torch import nn
from torch.nn.parallel import DistributedDataParallel

ROUNDS = 5  # repetitions when steps are timed with and without exchange


class ProcessGroup:
    """This process and the others. Use it in a ``with`` statement: the processes leave together."""

    def __init__(self, process: Process, accelerator: str, timeout: int) -> None:
        self.process = process
        self.timeout = timeout
        self.device = choose_device(process, accelerator)
        self.backend = "nccl" if self.device.type == "cuda" and dist.is_nccl_available() else "gloo"
        self.nodes: list[str] = [process.node]
        self.gpus: list[str] = []

    def __enter__(self) -> ProcessGroup:
        if self.device.type == "cuda":
            torch.cuda.set_device(self.device)
        elif "OMP_NUM_THREADS" not in os.environ:
            torch.set_num_threads(threads(os.environ, self.process))
        if self.process.processes > 1:
            self._join()
        self._introduce()
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if self.process.processes > 1 and kind is None:
            dist.barrier()
            dist.destroy_process_group()

    def _join(self) -> None:
        host, port = meeting_point(os.environ, self.process)
        os.environ.update(MASTER_ADDR=host, MASTER_PORT=str(port))
        os.environ.update(RANK=str(self.process.rank), WORLD_SIZE=str(self.process.processes))
        # gloo exchanges tensors in main memory, and nccl those on GPUs, if there are any
        backend = "cpu:gloo,cuda:nccl" if self.backend == "nccl" else "gloo"
        try:
            dist.init_process_group(backend, timeout=timedelta(seconds=self.timeout))
        except RuntimeError as error:
            reason = str(error).splitlines()[0]
            if "EADDRINUSE" in str(error) or "address already in use" in str(error):
                raise TrainingError(f"Port {port} of {host} is in use: set MASTER_PORT to another one.") from error
            raise TrainingError(
                f"Not all {self.process.processes} processes came to {host}:{port} within {self.timeout} s: {reason}"
            ) from error

    def _introduce(self) -> None:
        """Find out where the others are, and print a warning if this node has unused GPUs."""
        process, own = self.process, ""
        if self.device.type == "cuda":
            own = str(getattr(torch.cuda.get_device_properties(self.device), "uuid", process.local_rank))
        everybody = self.gather((process.node, own))
        self.nodes = list(dict.fromkeys(node for node, _ in everybody))
        here = Counter(gpu for node, gpu in everybody if node == process.node and gpu)
        if here and max(here.values()) > 1:
            raise TrainingError(
                f"{max(here.values())} processes share one GPU: start one process for each GPU, or ask for more GPUs."
            )
        of_job = max(gpus_of_job(os.environ), len(here))
        if process.local_rank == 0 and (sentence := unused_gpus(process, of_job, len(here))):
            print(sentence, flush=True)
        self.gpus = [gpu for _, gpu in everybody if gpu]

    @property
    def is_first(self) -> bool:
        """Whether this process prints and writes for all."""
        return self.process.rank == 0

    @property
    def devices(self) -> str:
        """A description of the devices of all processes."""
        if self.device.type == "cuda":
            return f"{len(self.gpus)} × {torch.cuda.get_device_name(self.device)}"
        return "CPU"

    def gather(self, item: Any) -> list[Any]:
        """Return the items passed by all processes, in the order of ranks."""
        if self.process.processes == 1:
            return [item]
        found: list[Any] = [None] * self.process.processes
        dist.all_gather_object(found, item)
        return found

    def total(self, *numbers: torch.Tensor | float) -> list[float]:
        """Return the sums over all processes."""
        packed = torch.stack([torch.as_tensor(one, dtype=torch.float64, device=self.device) for one in numbers])
        if self.process.processes > 1:
            dist.all_reduce(packed)
        return [float(one) for one in packed.tolist()]

    def barrier(self) -> None:
        """Wait until all processes have reached this point."""
        if self.process.processes > 1:
            dist.barrier()

    def share(self, network: nn.Module) -> nn.Module:
        """Return the network wrapped so that gradients are averaged over all processes while they are computed."""
        if self.process.processes == 1:
            return network
        ids = [self.device.index] if self.device.type == "cuda" else None
        return DistributedDataParallel(network, device_ids=ids)

    def communication_share(self, compute: Callable[[], object], network: nn.Module) -> float:
        """Return the fraction of a step's time spent on exchanging gradients and waiting for other processes.

        ``compute`` does the forward and backward pass of a step. It is timed with and without the exchange, so that
        communication which DDP overlaps with computing does not count.
        """
        if not isinstance(network, DistributedDataParallel):
            return 0.0
        timed: dict[bool, list[float]] = {True: [], False: []}
        for number in range(2 * (ROUNDS + 1)):
            exchanged = number % 2 == 0
            self.barrier()
            began = time.perf_counter()
            with nullcontext() if exchanged else network.no_sync():
                compute()
            if self.device.type == "cuda":
                torch.cuda.synchronize(self.device)
            timed[exchanged].append(time.perf_counter() - began)
            network.zero_grad(set_to_none=True)
        share = 1 - median(timed[False][1:]) / median(timed[True][1:])
        return max(0.0, self.total(share)[0] / self.process.processes)


def choose_device(process: Process, accelerator: str) -> torch.device:
    """Return the GPU with this process's local rank, or the CPU."""
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if accelerator == "gpu" and not count:
        raise TrainingError(
            f"PyTorch {torch.__version__} sees no GPU on {process.node}. Ask the scheduler for one, and in a container "
            "use `apptainer exec --nv`; a PyTorch with +cpu in its version cannot use any."
        )
    if accelerator == "cpu" or not count:
        return torch.device("cpu")
    # If the scheduler gives each process its own GPU, each sees only that one, as number 0.
    return torch.device("cuda", process.local_rank if process.local_rank < count else 0)
