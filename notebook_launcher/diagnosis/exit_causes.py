"""Why jobs end: tables of what the job script's record, exit codes and log messages mean. Pure."""

from __future__ import annotations

import re
import signal as signals
from collections.abc import Sequence

from notebook_launcher.core.errors import (
    ActivationFailed,
    BindMissing,
    BootFailed,
    ContainerFailed,
    DeadlinePassed,
    HomeUnusable,
    ImageUnusable,
    JobCancelled,
    JobFailed,
    JobTimedOut,
    JupyterCrashed,
    JupyterMissing,
    JupyterSlow,
    LauncherError,
    ModuleFailed,
    NodeFailed,
    NotebookFailed,
    OutOfMemory,
    Preempted,
    Revoked,
    ScriptFailed,
    WorkersFailed,
)
from notebook_launcher.core.frozen import Frozen
from notebook_launcher.schedulers.base import State


class Cause(Frozen):
    """One cause: the error for it, what to do, and what happened (to follow “Job 7 …”), if that is always the same."""

    kind: type[LauncherError]
    hint: str
    what: str = ""


#: causes that the scheduler may explain better: it sent the signal, or a lack of memory caused the crash. A tuple, not
#: a set, since the recorded cause may be anything, even unhashable
SCHEDULER_KNOWS_BETTER = (None, "stopped", "jupyter-failed", "container-failed", "kernel-died", "script-failed")
#: causes that are only symptoms; the log may name the real one
MAYBE_IN_THE_LOG = frozenset({"jupyter-failed", "container-failed", "jupyter-silent", "activate-failed", "kernel-died"})
#: the exit code of a job script that cannot write to its session's directory
EXIT_UNUSABLE = 73

_MAKE_ONE = "or make one: launch-notebook env create requirements.txt --name NAME"
_DISK_SPACE = "make room in your home folder (quota -s), or name another place with session_root in the profile"
_MEMORY = "ask for more with --mem"
_AGAIN = "start again"
#: what to do if nothing better is known
LOG = "read the last lines of its log"
_TO_START = "check that you may write in the log's folder on the compute nodes; -o and session_root name another one"

#: by the cause in ``exit.json``, see docs/job-script.md; the job script itself describes what happened
BY_SCRIPT: dict[str, Cause] = {
    "finished": Cause(JobFailed, LOG),
    "jupyter-missing": Cause(
        JupyterMissing,
        "name a container (-- /path/image.sif), a module (--module NAME) or a conda environment (--conda NAME) that "
        "has JupyterLab",
    ),
    "jupyter-failed": Cause(JupyterCrashed, LOG),
    "notebook-failed": Cause(
        NotebookFailed, "the traceback is in the fetched notebook, below that cell; fix it, and run it again"
    ),
    "kernel-died": Cause(
        NotebookFailed, "where memory was short, ask for more with --mem; else the end of the log may tell what crashed"
    ),
    "script-failed": Cause(ScriptFailed, "what it printed last, above, may tell why; then submit it again"),
    "folder-missing": Cause(JobFailed, "name another folder with -D (--chdir)"),
    "input-missing": Cause(JobFailed, "name another file with --input; a path from / is one on the cluster"),
    "jupyter-silent": Cause(JupyterSlow, "read its log; start_timeout in the profile allows a slow start more time"),
    "image-missing": Cause(ImageUnusable, "check the name after --, or `container` and `image_dir` in the profile"),
    "image-unreadable": Cause(ImageUnusable, "ask its owner to let you read it"),
    "image-differs": Cause(
        ImageUnusable,
        "use the image that the profile or the course names, or change `digest` there: `env show` shows both",
    ),
    "bind-missing": Cause(BindMissing, "check `bind` in the profile's environment"),
    "container-command-missing": Cause(ContainerFailed, "name a module that has it with --module"),
    "container-failed": Cause(ContainerFailed, LOG),
    "module-failed": Cause(ModuleFailed, "list the names with `module avail` on the login node"),
    "module-command-missing": Cause(
        ModuleFailed, "leave the modules out, or ask the cluster's support how batch jobs load them"
    ),
    "conda-missing": Cause(
        ActivationFailed,
        "list the names with: conda env list   (inside the image, if you use one)",
    ),
    "venv-missing": Cause(ActivationFailed, "check the path after --venv or --uv"),
    "activate-failed": Cause(ActivationFailed, "check `activate` in the profile's environment"),
    "workers-missing": Cause(
        WorkersFailed,
        f"take an environment that has it (launch-notebook env list), {_MAKE_ONE}",
    ),
    "workers-failed": Cause(WorkersFailed, LOG),
    "session-unusable": Cause(HomeUnusable, _DISK_SPACE),
}

#: by the state that the scheduler reports, where that is more specific than the job's own record
BY_STATE: dict[State, Cause] = {
    State.OUT_OF_MEMORY: Cause(OutOfMemory, _MEMORY, "needed more memory than it had asked for"),
    State.NODE_FAIL: Cause(NodeFailed, _AGAIN, "ended because its node failed"),
    State.PREEMPTED: Cause(
        Preempted, "start again, or use another partition or QOS", "was preempted by a job with a higher priority"
    ),
    State.BOOT_FAIL: Cause(BootFailed, _AGAIN, "did not start because its node failed to boot"),
    State.DEADLINE: Cause(DeadlinePassed, "leave out --deadline", "could not be done before its deadline"),
    State.REVOKED: Cause(Revoked, "see: squeue --me --clusters=all", "was moved to another cluster"),
    State.TIMEOUT: Cause(JobTimedOut, "ask for more with -t next time", "reached its walltime"),
}

#: by the reason that Slurm reports for a failed job
BY_REASON: dict[str, Cause] = {
    "OutOfMemory": BY_STATE[State.OUT_OF_MEMORY],
    "SystemFailure": Cause(BootFailed, _AGAIN, "failed because of Slurm, a file system or the network"),
    "InactiveLimit": Cause(JobFailed, _AGAIN, "was ended because it did nothing for too long"),
    # 22.05 reports this for every job that was killed; a failed start is only one cause
    "JobLaunchFailure": Cause(JobFailed, _TO_START, "was killed, or could not be started"),
}

#: causes that are not failures; the job's own message says all
IDLE = "idle"
CLASS_ENDED = "class-ended"  # by the teacher of a course

UNUSABLE = Cause(HomeUnusable, _DISK_SPACE, "could not write into its session's directory")
#: Slurm's code for a job output that could not be opened: no process sends this signal
NO_OUTPUT_SIGNAL = 53
NO_OUTPUT = Cause(
    BootFailed, _TO_START, "could not be started: Slurm could not open the file for its output on the node"
)

#: where the scheduler's history does not distinguish between a lack of memory and a cancellation
KILLED = Cause(
    JobFailed,
    "unless somebody cancelled it, ask for more memory with --mem",
    "was killed on its node, because it ran out of memory or somebody cancelled it; which of the two is not recorded",
)


# --- codes and signals ---------------------------------------------------------------------------------------------

_SIGNALS = {
    signals.SIGTERM: "it was asked to end",
    signals.SIGINT: "it was interrupted",
    signals.SIGABRT: "it gave up by itself",
    signals.SIGSEGV: "it crashed",
    9: "it was killed, perhaps because it ran out of memory",
    7: "a bus error, perhaps because a disk is full",
    24: "it used more CPU time than is allowed",
    25: "a file became larger than is allowed",
}
_CODES = {126: "something that should run may not be executed", 127: "a command was not found"}


def signal_name(number: int) -> str:
    """Return a signal's name, or its number if this system does not know it."""
    try:
        return signals.Signals(number).name
    except ValueError:
        return str(number)


def signal_meaning(number: int) -> str:
    """Return the meaning of a signal; empty if its name says enough."""
    return _SIGNALS.get(number, "")


def exit_code_meaning(code: int) -> str:
    """Return the meaning of an exit code that a shell sets; empty if it only means failure.

    Slurm subtracts 128 from larger codes, so a shell's 137 is reported as 9.
    """
    if code in _CODES:
        return _CODES[code]
    if code > 128:
        return signal_meaning(code - 128)
    meaning = signal_meaning(code) if code not in (signals.SIGHUP, signals.SIGINT) else ""
    return f"if it stands for {code + 128}, {meaning}" if meaning else ""


def missing_module_hint(message: str) -> str:
    """Return what to do about Python's message that a module is missing; empty for any other message."""
    missing = re.search(r"\bNo module named '([\w.]+)'", message)
    if missing is None:
        return ""
    name = missing[1].partition(".")[0]
    return f"take an environment that has {name} (name it after --; see: launch-notebook env list), {_MAKE_ONE}"


# --- messages in a log ---------------------------------------------------------------------------------------------

_LAST_LINES = 10  # earlier lines may belong to an earlier run
# The beginning of a line of Slurm's step daemon in a job's log. Since 26.05 it is the time instead of the program's
# name, as in many programs' logs, so the words that follow have to be the daemon's.
_STEP_DAEMONS_LINE = re.compile(
    r"\s*(?:slurmstepd|\[[^]]{1,80}\] error: "
    r"(?:\*\*\* (?:JOB|STEP) |StepId=|Detected \d+ oom_kill |Exceeded job memory))"
)
# Messages of Slurm's step daemon in a job's log about a lack of memory.
_MEMORY_SHORT: tuple[tuple[str, Cause], ...] = (
    (r"oom[-_]kill|out-of-memory handler|exceeded (job |step )?memory limit", BY_STATE[State.OUT_OF_MEMORY]),
)
_STEP_DAEMON: tuple[tuple[str, Cause], ...] = (
    *_MEMORY_SHORT,
    (r"CANCELLED AT .* DUE TO TIME LIMIT", BY_STATE[State.TIMEOUT]),
    (r"CANCELLED AT .* DUE TO PREEMPTION", BY_STATE[State.PREEMPTED]),
    (r"CANCELLED AT .* DUE TO NODE FAILURE", BY_STATE[State.NODE_FAIL]),
    (r"CANCELLED AT \S+ (\*\*\*|DUE to SIGNAL)", Cause(JobCancelled, "start again when you like", "was cancelled")),
)
# Messages of failing programs.
_PROGRAMS: tuple[tuple[str, Cause], ...] = (
    (r"No space left on device", Cause(HomeUnusable, _DISK_SPACE, "failed because a disk is full")),
    (r"Disk quota exceeded", Cause(HomeUnusable, _DISK_SPACE, "failed because a disk quota is used up")),
    (
        r"Read-only file system",
        Cause(HomeUnusable, "ask the cluster's support", "failed because a file system is read-only on its node"),
    ),
    (
        r"CUDA out of memory|CUDA error: out of memory|CUDA_ERROR_OUT_OF_MEMORY",
        Cause(
            OutOfMemory,
            "ask for a GPU with more memory, or use less of it at once",
            "failed because the GPU's memory was used up",
        ),
    ),
    (
        r"oom[-_]kill|Out of memory: Killed|\bMemoryError\b|std::bad_alloc|Cannot allocate memory",
        Cause(OutOfMemory, _MEMORY, "failed because its memory was used up"),
    ),
)


def cause_in_log(log: Sequence[str]) -> tuple[Cause, str] | None:
    """Return the cause that one of the log's last lines names, with that line."""
    return memory_shortage(log) or _last(_PROGRAMS, log)


def memory_shortage(log: Sequence[str]) -> tuple[Cause, str] | None:
    """Return the cause and the line if Slurm's step daemon reports an out-of-memory event; else ``None``."""
    return _last(_MEMORY_SHORT, _by_step_daemon(log))


def step_daemon_message(log: Sequence[str]) -> tuple[Cause, str] | None:
    """Return the cause in the last message of Slurm's step daemon in the log, with that line, if there is one."""
    return _last(_STEP_DAEMON, _by_step_daemon(log))


def _by_step_daemon(log: Sequence[str]) -> list[str]:
    return [line for line in log if _STEP_DAEMONS_LINE.match(line)]


def _last(table: Sequence[tuple[str, Cause]], lines: Sequence[str]) -> tuple[Cause, str] | None:
    for line in reversed(lines[-_LAST_LINES:]):
        for pattern, cause in table:
            if re.search(pattern, line, re.I):
                return cause, line.strip()
    return None


def script_message(log: Sequence[str]) -> str:
    """Return the message that the job script left in the log because it could not write anywhere else, if any."""
    for line in reversed(log):
        if match := re.match(r"\s*notebook-launcher: (.*session directory.*)", line, re.I):
            return match[1].strip()
    return ""
