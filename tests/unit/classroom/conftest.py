"""A login node with doubles of Slurm's commands, and a class on it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone

import pytest

from notebook_launcher.classroom.roster import Student
from notebook_launcher.classroom.student_states import ClassOf
from notebook_launcher.core.command_result import CommandResult
from notebook_launcher.core.interrupts import Interrupts
from notebook_launcher.hosts.counted_prompts import CountedPrompts
from notebook_launcher.planning.target import LaunchTarget
from notebook_launcher.profiles.models import ClusterProfile
from notebook_launcher.schedulers.slurm.commands import Slurm
from notebook_launcher.session.context import Context
from notebook_launcher.session.record import Site
from tests.doubles import Answer, FakeHost, FakePrompts, RecordingView

NOW = datetime(2026, 11, 24, 13, 30, tzinfo=timezone.utc)
LAB = ClassOf("gpulab", (Student("alice", "Alice"), Student("bob", "Bob")), reservation="lab1", account="proj1")
NODES = "gpu1 gpu mixed 2/14/0/16 gpu:t4:2 gpu:t4:1(IDX:0) none\ngpu2 gpu down 0/0/16/16 gpu:t4:2 gpu:t4:0 broken\n"


@dataclass
class Cluster:
    """What Slurm and getent answer: rows of squeue without their mark, rows of sacct, lines of the users who exist.

    ``ran``: all that was run.
    """

    rows: list[str] = field(default_factory=list)
    history: str = ""
    users: str = ""
    silent: bool = False
    scancel: str = ""
    private: str = "none"
    ran: list[str] = field(default_factory=list)

    def answer(self, argv: list[str]) -> Answer:
        commands = argv[4:] if "ask" in argv else [" ".join(argv)]
        answers = [self.one(command) for command in commands]
        if "ask" not in argv:
            return answers[0]
        return CommandResult(
            0,
            "".join(f"{one.stdout}\n--answered-- {one.exit_code}\n" for one in answers),
            "".join(f"{one.stderr}\n--answered--\n" for one in answers),
        )

    def one(self, command: str) -> CommandResult:
        self.ran.append(command)
        if "squeue" in command:
            mark = re.search(r"JobID:20\|(\w+)\|", command)
            assert mark
            rows = "".join(f"{row.replace('MARK', mark[1])}\n" for row in self.rows)
            return CommandResult(1, "", "Socket timed out") if self.silent else CommandResult(0, rows)
        if "scancel" in command:
            return CommandResult(1 if self.scancel else 0, "", self.scancel)
        if "getent" in command:
            return CommandResult(2 if self.users else 127, self.users)
        found = re.search(r"--delimiter=(\w+)", command)
        history = self.history.replace("|", found[1]) if found else ""
        answers = {"sacct ": history, "sinfo": NODES, "config": f"PrivateData = {self.private}\n",
                   "reservation": "ReservationName=lab1 Nodes=gpu1,gpu2 Users=(null) Accounts=proj1\n"}  # fmt: skip
        return CommandResult(0, next((text for word, text in answers.items() if word in command), ""))


def row(job: str, user: str, state: str, *, reason: str = "None", name: str = "20261124-133000-k3f2", gpus: int = 1,
        reservation: str = "lab1") -> str:  # fmt: skip
    fields = [job, "MARK", user, state, "gpu", "gpu1", "2026-11-24T13:00:00+0000", "2026-11-24T14:20:00+0000",
              "1:00:00", "proj1", reservation, f"cpu=1,gres/gpu={gpus}", "N/A", "N/A", "N/A", "1", "1", "0:0", reason,
              name]  # fmt: skip
    return "|".join(fields) + "|"


@pytest.fixture
def slurm() -> Cluster:
    return Cluster()


def context_of(
    slurm: Cluster, view: RecordingView, *, prompts: FakePrompts | None = None, more: Sequence[tuple[str, str]] = ()
) -> Context:
    def answer(argv: list[str]) -> Answer:
        found = next((text for word, text in more if word in " ".join(argv)), None)
        return CommandResult(0, found) if found is not None else slurm.answer(argv)

    site = replace(Site("/home/teacher", "teacher", "login", NOW), now=NOW)
    target = LaunchTarget(ClusterProfile(), "uni", None, "slurm")
    counted = CountedPrompts(prompts or FakePrompts())
    return Context(target, FakeHost(answer), site, Slurm(), "/root", view, counted, Interrupts())
