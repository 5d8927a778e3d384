"""The view for people: sentences, and on a terminal a line that updates in place.

Code for events of single commands is imported with the first such event, because every command imports this module.
"""

from __future__ import annotations

import functools
from datetime import datetime
from typing import TYPE_CHECKING

from notebook_launcher.cli.views.console_view import ConsoleView, capital
from notebook_launcher.cli.views.environments import building_text, image_lines, show_environments, staging_text
from notebook_launcher.cli.views.next_job import next_job_text, time_left_text
from notebook_launcher.cli.views.pending_line import is_news, pending_parts
from notebook_launcher.cli.views.ports import ports_text
from notebook_launcher.cli.views.price import price_text, price_warning
from notebook_launcher.cli.views.runs import finished_text, prepared_text, progress_text, results_text
from notebook_launcher.cli.views.shell import shell_text
from notebook_launcher.core import events
from notebook_launcher.core.text import joined, listed, printable

if TYPE_CHECKING:
    from rich.console import Console

    from notebook_launcher.cli.views.batch import BatchEvent
    from notebook_launcher.cli.views.classroom import ClassEvent
    from notebook_launcher.cli.views.courses import CourseEvent


class TextView(ConsoleView):
    """Maps each event to its sentence, and to what is shown during the wait after it."""

    def __init__(
        self,
        console: Console,
        *,
        open_browser: bool = False,
        verbose: bool = False,
        notify: bool = False,
        interactive: bool = False,
        aside: Console | None = None,
    ) -> None:
        super().__init__(console, open_browser=open_browser, verbose=verbose, notify=notify, aside=aside)
        self._interactive = interactive
        self._address_shown = False
        self._course_shown = ""
        self._next_jobs: dict[str, str] = {}  # the jobs that continue sessions, by session
        self._starts = False  # whether the job was seen pending, so that JupyterLab is only starting

    def _show(self, event: events.Event) -> None:
        if isinstance(event, _NOT_ATTACHED) or (isinstance(event, events.Pending) and event.state != "SUSPENDED"):
            self._close_status_line()
        self._starts = self._starts or isinstance(event, events.Submitted | events.Pending)
        self._display(event)

    @functools.singledispatchmethod
    def _display(self, event: events.Event) -> None:
        """Show one kind of event. Every kind has a method below, which a test checks."""
        raise TypeError(f"TextView does not show {type(event).__name__}")

    @_display.register(events.Note)
    @_display.register(events.NextJobGone)
    def _(self, event: events.Note | events.NextJobGone) -> None:
        """Print a sentence, optionally with commands to copy on further lines. A waiting line stays."""
        if isinstance(event, events.NextJobGone):
            self._next_jobs.pop(event.continues, None)
        sentence, *commands = event.text.split("\n")
        waits_for = self._status.parts if self._status is not None else None
        self._say(sentence, style="yellow", aside=True)
        for command in commands:
            self._say(command, style="yellow", whole=True, aside=True)
        if waits_for is not None:
            self._update(waits_for)

    @_display.register(events.Querying)
    @_display.register(events.Staging)
    def _(self, event: events.Querying | events.Staging) -> None:
        self._wait(staging_text(event) if isinstance(event, events.Staging) else event.text)

    # --- a launch -----------------------------------------------------------------------------------------------

    @_display.register(events.Connecting)
    def _(self, event: events.Connecting) -> None:
        self._wait(f"connecting to {event.host}")

    @_display.register(events.Connected)
    def _(self, event: events.Connected) -> None:
        if self._verbose:
            self._say(f"Connected to {event.host} by {event.engine}: {event.why}")
        elif self._in_place:
            self._update(lambda: [f"connected to {event.host}"])

    @_display.register(events.Submitted)
    def _(self, event: events.Submitted) -> None:
        where = f" on {event.cluster}" if event.cluster else ""
        named = f"  (session {event.session})" if event.session != event.job else ""
        if event.scheduler == "local":
            self._say(f"Job {event.job} needs no queue; it may run for {event.walltime}{named}")
            self._wait("waiting for the job to start")
            return
        self._say(f"Job {event.job}{where} is queued; it may run for {event.walltime}{named}")
        self._wait("waiting for the scheduler")

    @_display.register(events.Pending)
    def _(self, event: events.Pending) -> None:
        if self._in_place:
            self._update(lambda: pending_parts(event, _now()))
        elif is_news(event, self._last_pending, _now()):
            self._last_pending = event
            self._say(capital("; ".join(pending_parts(event, _now()))), aside=True)

    @_display.register(events.SchedulerNotResponding)
    def _(self, event: events.SchedulerNotResponding) -> None:
        text = f"the scheduler does not answer ({event.reason}); it is asked again, and job {event.job} goes on"
        if self._address_shown and self._status is None:
            self._say(capital(text), style="yellow", aside=True)
        else:
            self._wait(text)

    @_display.register(events.Running)
    def _(self, event: events.Running) -> None:
        what = "JupyterLab is starting" if self._starts else "the compute node is being reached"
        what = f"the {event.program} is starting" if event.program in ("notebook", "script") else what
        self._wait(f"job {event.job} runs on {event.node}; {what}")

    @_display.register(events.TunnelOpened)
    def _(self, event: events.TunnelOpened) -> None:
        if self._verbose:
            self._say(f"Connected to {event.node} ({event.route})")

    @_display.register(events.Ready)
    @_display.register(events.BrowserOpened)
    def _(self, event: events.Ready | events.BrowserOpened) -> None:
        self._address_shown = True
        attached = "" if isinstance(event, events.Ready) else ", and another launch-notebook here is attached to it"
        self._say(f"JupyterLab runs on {event.node}{attached}:", style="green")
        self._show_address(event.url)
        if isinstance(event, events.Ready):
            from notebook_launcher.cli.views.status_line import how_it_ends

            self._say(how_it_ends(event.started_here, interactive=self._interactive))

    def _show_address(self, url: str, style: str = "bold") -> None:
        """Print an address in place of the status line, which the caller shows again below it.

        It is never folded, so that the terminal keeps it whole for a click or a copy.
        """
        self._stop_status()
        self._console.print(printable(url), style=style, soft_wrap=True, highlight=False, markup=False)

    @_display.register(events.Renewed)
    @_display.register(events.Continued)
    def _(self, event: events.Renewed | events.Continued) -> None:
        if isinstance(event, events.Renewed):
            self._next_jobs[event.continues] = event.job
        self._say(next_job_text(event, _now()), style="green" if isinstance(event, events.Continued) else "")
        self._stop_status()

    @_display.register(events.LocalLabReady)
    def _(self, event: events.LocalLabReady) -> None:
        self._say(f"Your own JupyterLab, with this machine's files and the kernels of {event.node}:", style="green")
        self._show_address(event.url)
        self._show_status_line()

    @_display.register(events.SessionAddress)
    def _(self, event: events.SessionAddress) -> None:
        self._show_address(event.url, style="")

    @_display.register(events.ReachedBySsh)
    def _(self, event: events.ReachedBySsh) -> None:
        self._say("You are logged in to this machine by SSH. To open the address on your own computer, type there:")
        self._say(f"  {event.forward_command}", whole=True)
        if event.connect_command:
            self._say("or, if launch-notebook is installed there:")
            self._say(f"  {event.connect_command}", whole=True)

    @_display.register(events.PortForwarded)
    @_display.register(events.WorkersReady)
    def _(self, event: events.PortForwarded | events.WorkersReady) -> None:
        self._say(ports_text(event), whole=True)

    @_display.register(events.AppOpened)
    def _(self, event: events.AppOpened) -> None:
        if event.state == "failed":
            self._say(f"{event.title} is not running. {event.message}", style="yellow")
            if event.log:
                self._say("\n".join(["  The end of its log:", *(f"  | {line}" for line in event.log)]))
        else:
            self._say(f"{event.title}: {event.url}", whole=True)

    @_display.register(events.AppFailed)
    def _(self, event: events.AppFailed) -> None:
        last = f"The last line of its log: {event.log[-1]}" if event.log else ""
        self._say(joined(f"{event.title} is not running.", event.message, last), style="yellow")
        if event.status_command:
            self._say(f"  more of its log:  {event.status_command}", style="yellow", whole=True)

    @_display.register(events.Disconnected)
    def _(self, event: events.Disconnected) -> None:
        self._set_trouble(f"network down, trying again ({event.reason}); job {event.job} goes on")

    @_display.register(events.Reconnected)
    def _(self, event: events.Reconnected) -> None:
        same = " The address is the same." if self._address_shown else ""
        self._set_trouble("")
        self._say(f"Connected again, after {event.seconds:.0f} s.{same}", style="green", aside=True)

    @_display.register(events.Stopping)
    def _(self, event: events.Stopping) -> None:
        self._wait(f"ending job {event.job}")

    @_display.register(events.Ended)
    def _(self, event: events.Ended) -> None:
        self._say(event.text, style="green")

    @_display.register(events.Detached)
    def _(self, event: events.Detached) -> None:
        keeps = "waits in the queue" if event.is_queued else "keeps running"
        job = f" (job {event.job})" if event.job != event.session else ""
        self._say(f"Session {event.session} {keeps} without this terminal{job}.")
        self._say(f"  reconnect:  {event.connect_command}\n  end it:     {event.stop_command}", whole=True)
        if event.results_command:
            self._say(f"  results:    {event.results_command}", whole=True)

    @_display.register(events.ShellOpening)
    def _(self, event: events.ShellOpening) -> None:
        self._stop_status()  # it must not overwrite what the node prints
        if event.command is None:
            self._say(shell_text(event))

    @_display.register(events.DryRun)
    def _(self, event: events.DryRun) -> None:
        self._stop_status()
        text = (
            f"# dry run: nothing was submitted; on {event.where} it would be:\n{event.command}\n\n"
            f"# {event.directory}/session.env\n{event.session_env.rstrip()}"
        )
        self._console.print(text, soft_wrap=True, highlight=False, markup=False)

    @_display.register(events.CostEstimate)
    def _(self, event: events.CostEstimate) -> None:
        self._say(price_text(event), aside=True)
        if event.note and self._verbose:
            self._say(capital(event.note), aside=True)
        if warning := price_warning(event):
            self._say(warning, style="yellow", aside=True)

    @_display.register(events.ScriptPrepared)
    @_display.register(events.ScriptFinished)
    @_display.register(events.TemplatesListed)
    @_display.register(events.TemplateFilled)
    @_display.register(events.TemplateSaved)
    @_display.register(events.JobReport)
    def _(self, event: BatchEvent) -> None:
        from notebook_launcher.cli.views.batch import show_batch

        self._stop_status()
        show_batch(self._console, event)

    # --- while attached -----------------------------------------------------------------------------------------

    @_display.register(events.StepsUsed)
    def _(self, event: events.StepsUsed) -> None:
        from notebook_launcher.cli.views.batch import step_text

        for text in [step_text(step) for step in event.steps] or ["No step has reported what it uses."]:
            self._say(text, style="dim", aside=True)

    @_display.register(events.TaskStarted)
    @_display.register(events.TaskEnded)
    def _(self, event: events.TaskStarted | events.TaskEnded) -> None:
        from notebook_launcher.cli.views.batch import task_text

        failed = isinstance(event, events.TaskEnded) and event.cause != "finished"
        self._say(task_text(event), style="yellow" if failed else "dim", aside=True)

    @_display.register(events.TasksProgress)
    def _(self, event: events.TasksProgress) -> None:
        from notebook_launcher.cli.views.batch import tasks_parts

        if self._has_status_line:  # otherwise, the lines on each task show it
            self._open_status_line().update_tasks(tasks_parts(event))
            self._show_status_line()

    @_display.register(events.Attached)
    def _(self, event: events.Attached) -> None:
        if self._has_status_line:
            self._open_status_line().update(event)
            self._show_status_line()

    @_display.register(events.TimeLeft)
    def _(self, event: events.TimeLeft) -> None:
        self._say(time_left_text(event, next_job := self._next_jobs.get(event.session), _now()), style="yellow")
        if not next_job:
            self._say(f"  start the same again:  {event.relaunch_command}", whole=True)
        self._ring()

    @_display.register(events.Idle)
    def _(self, event: events.Idle) -> None:
        self._say(event.text, style="yellow")
        self._ring()

    @_display.register(events.NotSaved)
    def _(self, event: events.NotSaved) -> None:
        self._say(f"JupyterLab could not save {listed(event.paths)}; see its page.", style="yellow")
        self._ring()

    @_display.register(events.Bill)
    def _(self, event: events.Bill) -> None:
        from notebook_launcher.cli.views.bill import show_bill

        self._stop_status()
        show_bill(self._console, event)

    # --- notebooks and benches ----------------------------------------------------------------------------------

    @_display.register(events.NotebookPrepared)
    def _(self, event: events.NotebookPrepared) -> None:
        self._say(prepared_text(event), aside=True)

    @_display.register(events.NotebookProgress)
    def _(self, event: events.NotebookProgress) -> None:
        if self._has_status_line:
            self._stop_waiting()
            self._open_status_line().update_notebook(event)
            self._show_status_line()
        else:
            self._say(progress_text(event), aside=True)

    @_display.register(events.NotebookFinished)
    def _(self, event: events.NotebookFinished) -> None:
        self._say(finished_text(event), style="green")

    @_display.register(events.ResultsFetched)
    def _(self, event: events.ResultsFetched) -> None:
        sentence, lines = results_text(event)
        self._say(sentence)
        for line in lines:
            self._say(line, whole=True)

    @_display.register(events.BundledNotebooks)
    def _(self, event: events.BundledNotebooks) -> None:
        from notebook_launcher.cli.views.notebooks import show_notebooks

        self._stop_status()
        show_notebooks(self._console, event)

    @_display.register(events.BenchProgress)
    @_display.register(events.BenchReported)
    def _(self, event: events.BenchProgress | events.BenchReported) -> None:
        self._stop_waiting()
        self._parts.bench.show(event)

    # --- lists, files, checks -----------------------------------------------------------------------------------

    @_display.register(events.SessionEntry)
    @_display.register(events.ListDone)
    def _(self, event: events.SessionEntry | events.ListDone) -> None:
        self._stop_status()
        self._parts.session_list.show(event, _now())

    @_display.register(events.Status)
    @_display.register(events.LogLine)
    @_display.register(events.FileWritten)
    def _(self, event: events.Status | events.LogLine | events.FileWritten) -> None:
        self._stop_waiting()
        self._parts.usage.show(event)
        if isinstance(event, events.LogLine) and event.task is not None:
            self._show_status_line()
        self._show_status_line()

    @_display.register(events.Forecast)
    @_display.register(events.Alternative)
    @_display.register(events.ForecastDone)
    @_display.register(events.Queue)
    def _(self, event: events.Forecast | events.Alternative | events.ForecastDone | events.Queue) -> None:
        self._stop_status()
        self._parts.forecast.show(event, _now())

    @_display.register(events.CourseUsed)
    def _(self, event: events.CourseUsed) -> None:
        if event.course != self._course_shown:
            self._course_shown = event.course
            self._show_course(event)

    @_display.register(events.CourseEntry)
    @_display.register(events.NotebooksCopied)
    def _show_course(self, event: CourseEvent) -> None:
        from notebook_launcher.cli.views.courses import course_text

        sentence, lines = course_text(event)
        if sentence:
            aside = not isinstance(event, events.CourseEntry)
            self._say(sentence, aside=aside)
            for line in lines:
                self._say(line, whole=True, aside=aside)

    @_display.register(events.ClustersListed)
    @_display.register(events.ProfileShown)
    @_display.register(events.Saved)
    def _(self, event: events.ClustersListed | events.ProfileShown | events.Saved) -> None:
        from notebook_launcher.cli.views.clusters import show_clusters

        self._stop_status()
        show_clusters(self._console, self._aside, event)

    @_display.register(events.EnvironmentsListed)
    @_display.register(events.EnvironmentShown)
    def _(self, event: events.EnvironmentsListed | events.EnvironmentShown) -> None:
        self._stop_status()
        show_environments(self._console, event)

    @_display.register(events.Building)
    def _(self, event: events.Building) -> None:
        self._wait(building_text(event))

    @_display.register(events.ImageReady)
    def _(self, event: events.ImageReady) -> None:
        for line in image_lines(event):
            self._say(line, whole=True)

    @_display.register(events.CheckResult)
    def _(self, event: events.CheckResult) -> None:
        from notebook_launcher.cli.views.checks import show_check

        self._stop_status()
        show_check(self._console, event)

    @_display.register(events.ChecksDone)
    def _(self, event: events.ChecksDone) -> None:
        from notebook_launcher.cli.views.checks import checks_text

        self._stop_status()
        self._say(checks_text(event), style="" if event.faults else "green")

    @_display.register(events.ClassSeen)
    @_display.register(events.ClassPage)
    @_display.register(events.ClassCollected)
    @_display.register(events.ClassEnded)
    def _(self, event: ClassEvent) -> None:
        self._stop_waiting()
        self._parts.classroom.show(event)

    @_display.register(events.Copying)
    @_display.register(events.Copied)
    def _(self, event: events.Copying | events.Copied) -> None:
        self._stop_status(keep_bar=True)
        self._parts.copies.show(event)


#: events after which this launcher is not attached to a session
_NOT_ATTACHED = (
    *(events.Running, events.Stopping, events.Ended, events.Detached),
    *(events.NotebookFinished, events.ResultsFetched, events.Bill, events.ScriptFinished, events.JobReport),
)


def _now() -> datetime:
    return datetime.now().astimezone()
