"""Events of submitted job scripts, and of reports on jobs."""

from __future__ import annotations

from notebook_launcher.core.events.base import Event
from notebook_launcher.core.frozen import Frozen


class ScriptPrepared(Event, name="script_prepared"):
    """A job script is ready to be sent. ``flags``: of its ``#SBATCH`` lines, as typed; ``files``: sent with it."""

    script: str
    flags: str
    files: tuple[str, ...]


class ScriptFinished(Event, name="script_finished"):
    """A submitted script ended with exit code 0. ``seconds``: from its start; ``folder``: where it ran, on the cluster.

    ``tasks``: the number of tasks of a job array, all of which ended so. ``copy_command``: copies the folder here; "":
    it is here already.
    """

    session: str
    job: str
    script: str
    seconds: float
    folder: str
    tasks: int | None = None
    copy_command: str = ""


class TaskStarted(Event, name="task_started"):
    """A task of a job array has started."""

    session: str
    job: str
    task: int
    node: str


class TaskEnded(Event, name="task_ended"):
    """A task of a job array has ended. ``cause``, ``exit_code``: as in its ``exit.json``.

    ``state``: the field of ``TaskCounts`` in which it counts: ``finished``, ``failed`` or ``cancelled``.
    """

    session: str
    job: str
    task: int
    node: str
    cause: str
    exit_code: int | None
    seconds: float | None
    state: str


class TasksProgress(Event, name="tasks"):
    """How many tasks of a job array are in each state: the fields of ``TaskCounts``."""

    session: str
    job: str
    tasks: int
    waiting: int
    running: int
    finished: int
    failed: int
    cancelled: int


class StepUsed(Frozen):
    """What one step of a running job uses; ``None``: not known. ``step``: its number, or ``batch``: the script itself.

    ``cores``: how many each of its tasks keeps busy, the mean since the last query; ``cpu_seconds``: CPU time since its
    start, the mean of its tasks. ``slowest_task``, on ``slowest_node``, has used ``slowest_share`` % of that mean;
    reported only if it is less than half. ``memory_mib``: the most that any task uses; this is ``memory_task`` on
    ``memory_node``.
    """

    step: str
    tasks: int | None
    nodes: str
    cores: float | None
    cpu_seconds: float | None
    slowest_task: str
    slowest_node: str
    slowest_share: float | None
    memory_mib: float | None
    memory_task: str
    memory_node: str
    gpu_percent: float | None


class StepsUsed(Event, name="steps_used"):
    """What the steps of a running script use: a minute after its start, every ten minutes, and when the user asks."""

    session: str
    job: str
    steps: tuple[StepUsed, ...]


class TemplatesListed(Event, name="templates"):
    """The bundled job scripts: pairs of a name and a sentence."""

    templates: tuple[tuple[str, str], ...]


class TemplateFilled(Event, name="template"):
    """A bundled job script, filled in for a cluster. ``cluster``: the profile's name, if there is one."""

    template: str
    cluster: str | None
    text: str


class TemplateSaved(Event, name="template_saved"):
    """A bundled job script was filled in for a cluster, and written into a folder with the files that it needs.

    ``written``, ``unchanged``: paths in ``folder``; the latter were there already. ``command``: submits it from here,
    or copies it to the cluster first; "": no cluster is known. ``on_login``: what to type then on the login node.
    """

    template: str
    cluster: str | None
    folder: str
    written: tuple[str, ...]
    unchanged: tuple[str, ...]
    command: str
    on_login: str = ""


class ReportColumn(Frozen):
    """One column of the accounting: its name there, its value, and what it means."""

    column: str
    value: str
    meaning: str


class ReportUse(Frozen):
    """What was requested and what was used, as text. ``of``: time, cores, memory or GPUs; ``share``: used, in %."""

    of: str
    asked: str
    used: str
    share: float | None = None


class ReportStep(Frozen):
    """One step of a job: the batch script itself, or one ``srun``. As text; "": not reported.

    ``tasks``: how many, and on which nodes. ``memory``: the most of any of its tasks, with that task and its node.
    """

    step: str
    state: str
    tasks: str
    cpu: str
    memory: str


class JobReport(Event, name="job_report"):
    """What a job requested and used. ``state``: as the scheduler reports it. ``session``: its session, if it has one.

    ``columns``: those of the accounting. ``joules``: its energy, ``energy_of``: of what (``nodes`` or ``GPUs``).
    ``epochs``, ``images``: as the job itself reported them. ``advice`` and ``unknown``, in sentences: what to request
    next time, and what nobody reported. ``explained``: whether the columns are part of the report. ``tasks``: the
    number of tasks of a job array; the values are then those of all tasks, which are the ``steps``.
    """

    job: str
    job_name: str
    session: str | None
    state: str
    columns: tuple[ReportColumn, ...]
    use: tuple[ReportUse, ...]
    steps: tuple[ReportStep, ...]
    joules: float | None = None
    energy_of: str = ""
    epochs: int | None = None
    images: int | None = None
    advice: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()
    explained: bool = True
    tasks: int | None = None

    @property
    def joules_per_epoch(self) -> float | None:
        """The energy of one epoch."""
        return self.joules / self.epochs if self.joules and self.epochs else None

    @property
    def joules_per_image(self) -> float | None:
        """The energy of one image."""
        return self.joules / self.images if self.joules and self.images else None
