"""The training loop: the same steps with one process and with many, and with or without a stop in between."""

from __future__ import annotations

import argparse
import itertools
import os
import time
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch
from digits import CLASSES, SIDE, digits
from plan import (
    begins_anew,
    check_same,
    checkpoint_file,
    job_number,
    run_file,
    scaling,
    settings,
    split,
    stop_file,
    this_run,
    unfinished_file,
    write_json,
)
from process_group import ProcessGroup
from ranks import TrainingError
from supervise import StopRequest
from torch import nn
from torch.utils.data import DataLoader, DistributedSampler

TYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
VALIDATION = 1000  # images
WARM_UP = 1  # epochs that do not count in images_per_second, if there are more


class RestOfEpoch(DistributedSampler[Any]):
    """PyTorch's sampler, which shuffles every epoch, and can skip images that were done before a checkpoint."""

    done = 0

    def __iter__(self) -> Iterator[int]:
        return itertools.islice(super().__iter__(), self.done, None)

    def __len__(self) -> int:
        return super().__len__() - self.done


class Training:
    """The training of a network over the epochs."""

    def __init__(self, options: argparse.Namespace, group: ProcessGroup) -> None:
        self.options, self.group = options, group
        self.split = split(options.images, options.batch_size, group.process.processes, options.accumulate)
        torch.manual_seed(options.seed)  # the same initial weights everywhere
        network = nn.Sequential(
            nn.Flatten(),
            nn.Linear(SIDE * SIDE, options.hidden_dim),
            nn.ReLU(),
            nn.Linear(options.hidden_dim, CLASSES),
        ).to(group.device)
        self.plain = network
        self.network = group.share(network)
        self.optimizer = torch.optim.Adam(network.parameters(), lr=options.learning_rate)
        self.loss = nn.CrossEntropyLoss()
        # Small gradients would be rounded to zero in fp16: they are scaled up, and down again before the update.
        scaler = getattr(torch.amp, "GradScaler", None) or torch.cuda.amp.GradScaler
        self.scaler = scaler(enabled=options.precision == "fp16" and group.device.type == "cuda")
        images = digits(options.images, options.seed)
        self.sampler = RestOfEpoch(
            images, group.process.processes, group.process.rank, shuffle=True, seed=options.seed, drop_last=True
        )
        self.loader = DataLoader(images, batch_size=self.split.per_part, sampler=self.sampler, drop_last=True)
        self.validation = digits(VALIDATION, options.seed + 1)
        self.epochs: list[dict[str, Any]] = []  # completed epochs
        self.step = 0  # steps done in the current epoch
        self.sum = 0.0  # sum of their losses
        self.seconds = 0.0  # time that they took
        self.restarts = 0
        self.looked = 0.0  # time of the last check for the job script's file

    # ---- one step ------------------------------------------------------------------------------------------------

    def compute(self, images: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """Compute the loss of some images, and add its gradients to the accumulated ones."""
        device = self.group.device
        precision = self.options.precision
        mixed = torch.autocast(device.type, dtype=TYPES[precision], enabled=precision != "fp32")
        images, labels = images.to(device, non_blocking=True), labels.to(device, non_blocking=True)
        with mixed:
            loss = self.loss(self.network(images), labels) / self.options.accumulate
        self.scaler.scale(loss).backward()
        return loss.detach()

    def take_step(self, batches: Iterator[Any]) -> torch.Tensor:
        """Update the network once. Gradients are exchanged only with the last part of the batch."""
        total = torch.zeros((), device=self.group.device)
        parts = self.options.accumulate
        for part in range(parts):
            is_last = part == parts - 1
            with nullcontext() if is_last or self.network is self.plain else self.network.no_sync():
                total += self.compute(*next(batches))
        self.scaler.step(self.optimizer)
        self.scaler.update()
        self.optimizer.zero_grad(set_to_none=True)
        return total

    # ---- epochs --------------------------------------------------------------------------------------------------

    def run_epoch(self, stop: StopRequest) -> bool:
        """Do the rest of an epoch; return ``False`` if a stop was requested in any of the processes."""
        self.sampler.set_epoch(len(self.epochs))
        self.sampler.done = self.step * self.split.per_process
        batches = iter(self.loader)
        began = time.perf_counter() - self.seconds
        while self.step < self.split.steps:
            loss = self.take_step(batches)
            losses, stops = self.group.total(loss, self.is_asked_to_stop(stop))
            self.step += 1
            self.sum += losses / self.group.process.processes
            self.seconds = time.perf_counter() - began
            if stops:
                return False
            if self.options.pause:
                time.sleep(self.options.pause)
        self.group.barrier()
        self.close_epoch()
        return True

    def is_asked_to_stop(self, stop: StopRequest) -> bool:
        """Whether this process has got a signal, or the job script's file exists, which is checked once a second."""
        if self.group.is_first and time.monotonic() > self.looked + 1:
            self.looked = time.monotonic()
            if stop_file(self.options.output).exists():
                stop.signal = stop.signal or "the job script"
        return bool(stop.signal)

    def close_epoch(self) -> None:
        """Validate, and record the epoch's results."""
        loss, accuracy = self.validate()
        done = self.split.steps * self.options.batch_size
        self.epochs.append({
            "epoch": len(self.epochs) + 1,
            "loss": self.sum / self.split.steps,
            "validation_loss": loss,
            "accuracy": accuracy,
            "seconds": round(self.seconds, 3),
            "images_per_second": round(done / self.seconds, 1),
        })  # fmt: skip
        self.step, self.sum, self.seconds = 0, 0.0, 0.0
        last = self.epochs[-1]
        self.say(
            f"epoch {last['epoch']}/{self.options.max_epochs}: loss {last['loss']:.6f}, validation loss {loss:.6f}, "
            f"accuracy {100 * accuracy:.1f} %, {last['images_per_second']:.0f} images/s"
        )

    @torch.no_grad()
    def validate(self) -> tuple[float, float]:
        """Return loss and accuracy on the validation images, of which each process computes a part."""
        process, device = self.group.process, self.group.device
        images, labels = (one[process.rank :: process.processes].to(device) for one in self.validation.tensors)
        answers = self.plain(images)
        loss = nn.functional.cross_entropy(answers, labels, reduction="sum")
        right = (answers.argmax(1) == labels).sum()
        loss_sum, hits, count = self.group.total(loss, right, len(labels))
        return loss_sum / count, hits / count

    # ---- checkpoints ---------------------------------------------------------------------------------------------

    def save(self) -> None:
        """Write the checkpoint atomically: if the process is killed meanwhile, the earlier one stays intact."""
        if self.group.is_first:
            file = checkpoint_file(self.options.output)
            new = file.with_name(file.name + ".new")
            state = {
                "settings": settings(self.options),
                "network": self.plain.state_dict(),
                "optimizer": self.optimizer.state_dict(),
                "scaler": self.scaler.state_dict(),
                "epochs": self.epochs,
                "progress": [self.step, self.sum, self.seconds, self.restarts],
            }
            torch.save(state, new)
            new.replace(file)
            run_file(self.options.output).write_text(this_run(os.environ) + "\n", encoding="utf-8")
        self.group.barrier()

    def resume(self) -> None:
        """Continue from the checkpoint, if there is one."""
        if self.group.gather(begins_anew(self.options, os.environ))[0]:  # rank 0 has the variables of the job
            return
        file = checkpoint_file(self.options.output)
        there = file.exists()
        if not all(self.group.gather(there)):
            if there:
                raise TrainingError(f"Not every node sees {file}: put --output on a file system that all nodes share.")
            return
        # weights_only: a checkpoint is data, and cannot contain code
        saved = torch.load(file, map_location=self.group.device, weights_only=True)
        check_same(saved["settings"], settings(self.options), self.options.output)
        self.plain.load_state_dict(saved["network"])
        self.optimizer.load_state_dict(saved["optimizer"])
        self.scaler.load_state_dict(saved["scaler"])
        self.epochs = saved["epochs"]
        self.step, self.sum, self.seconds, self.restarts = saved["progress"]
        self.restarts += 1
        self.say(f"Continues from {file}: epoch {len(self.epochs) + 1}, after step {self.step}.")

    # ---- output --------------------------------------------------------------------------------------------------

    def say(self, text: str) -> None:
        """Print a line from the first process only."""
        if self.group.is_first:
            print(text, flush=True)

    def introduce(self) -> None:
        """Print the configuration of the training."""
        process, nodes = self.group.process, self.group.nodes
        many, on = ("es" * (process.processes > 1), "s" * (len(nodes) > 1))
        self.say(
            f"{process.processes} process{many} on {len(nodes)} node{on} ({', '.join(nodes)}), {self.group.devices}, "
            f"{self.group.backend if process.processes > 1 else 'no backend'}; "
            f"a step is {self.options.batch_size} images, {self.split.per_process} of each process"
        )

    def result(self) -> dict[str, Any]:
        """Return the content of result.json."""
        timed = sorted(one["images_per_second"] for one in self.epochs[WARM_UP:] or self.epochs)
        speed = timed[len(timed) // 2]
        process = self.group.process
        batch = [one[: self.split.per_part] for one in self.loader.dataset.tensors]
        share = self.group.communication_share(lambda: self.compute(*batch), self.network)
        last = self.epochs[-1]
        return {
            "version": 1,
            "job": job_number(os.environ) or None,
            "processes": process.processes,
            "nodes": self.group.nodes,
            "devices": self.group.devices,
            "backend": self.group.backend if process.processes > 1 else None,
            "launcher": process.launcher or None,
            "torch": torch.__version__,
            "settings": settings(self.options),
            "restarts": self.restarts,
            "epochs": self.epochs,
            **{name: last[name] for name in ("loss", "validation_loss", "accuracy")},
            "images_per_second": speed,
            "communication_share": round(share, 3),
            "scaling": scaling(self.options.baseline, process.processes, speed),
        }


def train(options: argparse.Namespace, group: ProcessGroup, stop: StopRequest) -> int:
    """Train all epochs, or until a stop is requested; return the exit code."""
    output: Path = options.output
    output.mkdir(parents=True, exist_ok=True)
    training = Training(options, group)
    training.introduce()
    training.resume()
    while len(training.epochs) < options.max_epochs:
        if not training.run_epoch(stop):
            training.save()
            if group.is_first:
                unfinished_file(output).write_text(job_number(os.environ) + "\n", encoding="utf-8")
                stop_file(output).unlink(missing_ok=True)
            training.say(
                f"Asked to stop in epoch {len(training.epochs) + 1}, after step {training.step}: saved "
                f"{checkpoint_file(output)}. The same command continues from there."
            )
            return 0
        is_last = len(training.epochs) >= options.max_epochs
        if is_last or len(training.epochs) % options.checkpoint_every == 0:
            training.save()
    result = training.result()
    if group.is_first:
        write_json(output / "result.json", result)
        unfinished_file(output).unlink(missing_ok=True)
        run_file(output).unlink(missing_ok=True)
    training.say(
        f"{result['images_per_second']:.0f} images/s; {100 * result['communication_share']:.0f} % of a step is "
        f"communication; written to {output / 'result.json'}"
    )
    return 0
