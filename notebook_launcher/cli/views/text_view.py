"""What the user sees: a line that updates in place in a terminal, lines elsewhere, JSON objects with ``--json``."""

from __future__ import annotations

import contextlib
import io
import queue
import sys
import threading
from collections.abc import Callable, Iterator
from datetime import datetime
from typing import TYPE_CHECKING

from notebook_launcher.cli.views import notifications as notifying
from notebook_launcher.cli.views.bench import BenchView
from notebook_launcher.cli.views.bill import show_receipt
from notebook_launcher.cli.views.checks import checked_words, show_check
from notebook_launcher.cli.views.clock import clock, moment
from notebook_launcher.cli.views.clusters import show_clusters
from notebook_launcher.cli.views.copy_progress import CopyView
from notebook_launcher.cli.views.courses import CourseEvent, course_words
from notebook_launcher.cli.views.environments import building_words, made_words, show_environments
from notebook_launcher.cli.views.errors import elapsed, json_line
from notebook_launcher.cli.views.forecast import Tables
from notebook_launcher.cli.views.notebooks import show_notebooks
from notebook_launcher.cli.views.pending_line import WaitingLine, is_news, waiting_parts
from notebook_launcher.cli.views.price import price_warning, price_words
from notebook_launcher.cli.views.runs import cell_words, fetched_words, queued_words, ran_words
from notebook_launcher.cli.views.session_list import Listing
from notebook_launcher.cli.views.shell import opening_words
from notebook_launcher.cli.views.status_line import HeldLine
from notebook_launcher.cli.views.usage_graphs import Looks
from notebook_launcher.core.events import launch as events
from notebook_launcher.core.interrupts import Interrupts
from notebook_launcher.core.text import printable
from notebook_launcher.session.context import Typed

if TYPE_CHECKING:
    from rich.console import Console
    from rich.status import Status

    from notebook_launcher.cli.views.browser import Browser


class BaseView:
    """Shows events; a context manager that gives the terminal back as it was, on every way out."""

    exit_code = 0

    def __init__(self, *, open_browser: bool = False, notify: bool = False) -> None:
        self.interrupts = Interrupts()
        self.listening = False
        self._open_browser = open_browser
        self._notifier = notifying.Notifier(self._say_of_notifying, self._terminal_writer()) if notify else None
        self._has_session = self._opened = False
        self._browser: Browser | None = None
        self._silent = False
        self._answers: queue.SimpleQueue[str | None] | None = None
        self._terminal = Terminal()

    def __enter__(self) -> BaseView:
        return self

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        self._terminal.restore()
        if self._notifier is not None:
            if self._has_session and (text := notifying.worth_telling_at_the_end(error)):
                self._notifier.tell(text)
            self._notifier.close()
        if self._browser:
            self._browser.close_when_read() if self._opened and error is None else self._browser.close()

    def show(self, event: events.Event) -> None:
        """Show one event, and open the browser when it is time to."""
        if not self._silent:
            try:
                self._show(event)
            except BrokenPipeError:  # who read us has gone: nobody would know of the session any more
                self.silence()
                sys.stdout = io.StringIO()  # or the interpreter would try once more at its end, and complain
                self.interrupts.arrive("end")
            except OSError:  # the terminal is gone; a signal tells so as well
                self.silence()
        if isinstance(event, events.Ready | events.Opened) and self._open_browser and self._browser is None:
            self._open(event.url)
        self._opened = self._opened or isinstance(event, events.Opened)
        self._has_session = self._has_session or isinstance(event, events.Submitted | events.Ready)
        if self._notifier is not None and (text := notifying.worth_telling(event)):
            self._notifier.tell(text)

    def _say_of_notifying(self, text: str) -> None:
        self.show(events.Noted(text))

    def _terminal_writer(self) -> Callable[[str], None] | None:
        """Return what writes commands to the terminal, ``None`` where none shows what is printed."""
        return None

    def _open(self, url: str) -> None:
        from notebook_launcher.cli.views.browser import Browser

        try:
            self._browser = Browser(url)
        except OSError as error:
            self.show(events.Noted(f"The browser could not be opened: {error}. The address works in any browser."))

    def _show(self, event: events.Event) -> None:
        raise NotImplementedError

    def listen(self, inbox: queue.SimpleQueue[object]) -> None:
        """Pass each line that the user types to ``inbox``."""
        if not self.listening:
            self.listening = True
            threading.Thread(target=self._read_keyboard, args=(inbox,), name="keyboard", daemon=True).start()

    def _read_keyboard(self, inbox: queue.SimpleQueue[object]) -> None:
        ends = 0
        with contextlib.suppress(OSError, ValueError):
            # Ctrl-D ends a terminal's input for a moment only; a pipe's or a closed terminal's for ever
            while ends < (_CTRL_DS if sys.stdin.isatty() else 1):
                line = sys.stdin.readline()
                if line:
                    self._pass_on(line.rstrip("\n"), inbox)
                else:
                    ends += 1

    def _pass_on(self, line: str, inbox: queue.SimpleQueue[object]) -> None:
        answers = self._answers
        if answers is not None:
            answers.put(line)
        else:
            self._line_typed()
            inbox.put(Typed(line))

    def _line_typed(self) -> None:
        """The cursor has moved, because the user has typed a line."""

    def next_line(self, question: str, *, echo: bool) -> str | None:
        """Ask while listening: the next line is the answer.

        ``None`` where it could not be kept from being shown, or was dismissed.
        """
        if not echo and not self._terminal.echo(False):
            return None
        self._answers = queue.SimpleQueue()
        try:
            sys.stderr.write(printable(question))
            sys.stderr.flush()
            return self._answers.get()
        finally:
            self._answers = None
            if not echo:
                self._terminal.echo(True)
                sys.stderr.write("\n")

    def dismiss(self) -> None:
        """End the question that stands, if any, without an answer; may be called by a signal handler."""
        answers = self._answers
        if answers is not None:
            answers.put(None)

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """Leave the terminal alone while the block runs."""
        yield

    def silence(self) -> None:
        """Show nothing from now on."""
        self._silent = True


_CTRL_DS = 100


class Terminal:
    """The settings of the terminal on standard input, to be put back: a question without echo may be cut off."""

    def __init__(self) -> None:
        self._before = None
        try:
            import termios
        except ImportError:  # Windows
            return
        with contextlib.suppress(termios.error, OSError, ValueError):
            self._before = termios.tcgetattr(sys.stdin.fileno())

    def restore(self) -> None:
        """Put them back."""
        self.echo(True)

    def echo(self, shown: bool) -> bool:
        """Show what is typed, or not; return whether that could be done."""
        if self._before is None:
            return False
        import termios

        settings = list(self._before)
        if not shown:
            settings[3] &= ~termios.ECHO
        with contextlib.suppress(termios.error, OSError, ValueError):
            termios.tcsetattr(sys.stdin.fileno(), termios.TCSADRAIN, settings)
            return True
        return False


class JsonView(BaseView):
    """One JSON object a line on stdout, and nothing else there."""

    def _show(self, event: events.Event) -> None:
        print(json_line(event), flush=True)


class TextView(BaseView):
    """Sentences; in a terminal the last one updates in place while something is waited for."""

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
        self._console = console
        self._aside = aside or console  # for what is said besides: a program may read the other one
        super().__init__(open_browser=open_browser, notify=notify)
        self._interactive = interactive
        self._verbose = verbose
        self._status: Status | None = None
        self._tables = Tables(console)
        self._copies = CopyView(console)
        self._bench = BenchView(console, self._aside)
        self._listing = Listing(console)
        self._looks = Looks(console)
        self._told: events.Waiting | None = None
        self._address_shown = False
        self._course_told = ""
        self._asking = False  # a question stands on the terminal: no waiting line over it
        self._held: HeldLine | None = None
        self._starts = False  # whether the job was seen before it ran, so that JupyterLab only starts

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self._let_go()
        self._stop_status()
        super().__exit__(kind, error, trace)

    def silence(self) -> None:
        """Show nothing from now on, not even a waiting line."""
        super().silence()
        if self._held is not None:
            self._held.abandon()
        with contextlib.suppress(OSError):
            self._stop_status()

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """Leave the terminal alone while the block runs."""
        self._stop_status()
        self._asking = True
        try:
            yield
        finally:
            self._asking = False
            self._show_held()

    def _show(self, event: events.Event) -> None:
        if isinstance(event, _NOT_HELD) or (isinstance(event, events.Waiting) and event.state != "SUSPENDED"):
            self._let_go()
        self._starts = self._starts or isinstance(event, events.Submitted | events.Waiting)
        if isinstance(event, events.Holding | events.TimeLeft | events.Idle):
            self._while_held(event)
        elif isinstance(event, events.Noted):
            self._note(event.text)
        elif isinstance(event, events.Connecting):
            self._wait(f"connecting to {event.host}")
        elif isinstance(event, events.Connected):
            if self._verbose:
                self._say(f"Connected to {event.host} by {event.engine}: {event.why}")
            elif self._in_place:
                self._update(lambda: [f"connected to {event.host}"])
        elif isinstance(event, events.Submitted):
            where = f" on {event.cluster}" if event.cluster else ""
            named = f"  (session {event.session})" if event.session != event.job else ""
            self._say(f"Job {event.job}{where} is queued; it may run for {event.walltime}{named}")
            self._wait("waiting for the scheduler")
        elif isinstance(event, events.Waiting):
            self._waits(event)
        elif isinstance(event, events.Unanswered):
            self._unanswered(event)
        elif isinstance(event, events.Running):
            what = "JupyterLab is starting" if self._starts else "the way there is being opened"
            what = "the notebook is starting" if event.program == "notebook" else what
            self._wait(f"job {event.job} runs on {event.node}; {what}")
        elif isinstance(event, events.Tunnelled):
            if self._verbose:
                self._say(f"There is a way to {event.node} ({event.stream})")
        elif isinstance(event, events.Ready | events.Opened):
            self._ready(event)
        elif isinstance(event, events.Forwarded):
            self._say(f"Port {event.port} of {event.node}: http://127.0.0.1:{event.local_port}", whole=True)
        elif isinstance(event, events.Disconnected):
            self._away(f"network down, trying again ({event.reason}); job {event.job} goes on")
        elif isinstance(event, events.Reconnected):
            same = " The address is the same." if self._address_shown else ""
            self._away("")
            self._say(f"Connected again, after {event.seconds:.0f} s.{same}", style="green", aside=True)
        elif isinstance(event, events.Ending):
            self._wait(f"ending job {event.job}")
        elif isinstance(event, events.Ended):
            self._say(event.text, style="green")
        elif isinstance(event, events.Left):
            self._say(f"Session {event.session} goes on without this terminal (job {event.job}).")
            self._say(f"  come back:  {event.come_back}\n  end it:     {event.stop}", whole=True)
            if event.results:
                self._say(f"  results:    {event.results}", whole=True)
        elif isinstance(event, events.ShellOpening):
            self._stop_status()  # it must not run over what the node prints
            if event.command is None:
                self._say(opening_words(event))
        elif isinstance(event, events.Planned):
            self._planned(event)
        elif isinstance(event, events.NotebookQueued | events.CellRuns | events.NotebookRan | events.ResultsFetched):
            self._run(event)
        elif isinstance(event, events.Asking):
            self._wait(event.text)
        elif isinstance(event, events.Bill):
            self._stop_status()
            show_receipt(self._console, event)
        elif isinstance(event, events.CourseTaken | events.CourseSeen | events.NotebooksBrought):
            self._course(event)
        elif isinstance(event, events.NotebooksListed):
            self._stop_status()
            show_notebooks(self._console, event)
        elif isinstance(event, events.ClustersListed | events.ProfileShown | events.Kept):
            self._stop_status()
            show_clusters(self._console, self._aside, event)
        elif isinstance(event, events.Priced):
            self._price(event)
        elif isinstance(event, events.Building | events.ImageMade):
            self._making(event)
        elif isinstance(event, events.EnvironmentsListed | events.EnvironmentShown):
            self._stop_status()
            show_environments(self._console, event)
        elif isinstance(event, events.Checked):
            self._stop_status()
            show_check(self._console, event)
        elif isinstance(event, events.CheckedAll):
            self._stop_status()
            self._say(checked_words(event), style="" if event.faults else "green")
        elif isinstance(event, events.BenchStep | events.BenchReported):
            self._stop_waiting()
            self._bench.show(event)
        elif isinstance(event, events.Copying | events.Copied):
            self._stop_status(keep_bar=True)
            self._copies.show(event)
        elif isinstance(event, events.Forecast | events.Variation | events.Compared | events.Queue):
            self._stop_status()
            self._tables.show(event, _now())
        elif isinstance(event, events.SessionSeen | events.Listed):
            self._stop_status()
            self._listing.show(event, _now())
        elif isinstance(event, events.Status | events.Logged | events.Drawn):
            self._stop_waiting()
            self._looks.show(event)

    def _while_held(self, event: events.Holding | events.TimeLeft | events.Idle) -> None:
        if isinstance(event, events.TimeLeft):
            ends, left = _at(event.ends), notifying.in_words(event.seconds_left)
            self._say(f"{left} left: job {event.job} ends at {ends}. Save what you need.", style="yellow")
            self._say(f"  start the same again:  {event.go_on}", whole=True)
            self._ring()
        elif isinstance(event, events.Idle):
            self._say(event.text, style="yellow")
            self._ring()
        elif self._holds_a_line:
            self._held = self._held or HeldLine(self._console)
            self._held.tell(event)
            self._show_held()

    def _run(self, event: events.NotebookQueued | events.CellRuns | events.NotebookRan | events.ResultsFetched) -> None:
        if isinstance(event, events.NotebookQueued):
            self._say(queued_words(event), aside=True)
        elif isinstance(event, events.NotebookRan):
            self._say(ran_words(event), style="green")
        elif isinstance(event, events.ResultsFetched):
            sentence, lines = fetched_words(event)
            self._say(sentence)
            for line in lines:
                self._say(line, whole=True)
        elif self._holds_a_line:
            self._stop_waiting()
            self._held = self._held or HeldLine(self._console)
            self._held.runs(event)
            self._show_held()
        else:
            self._say(cell_words(event), aside=True)

    @property
    def _holds_a_line(self) -> bool:
        return self._in_place and not self._console.is_dumb_terminal and not self._console.legacy_windows

    def _ring(self) -> None:
        if self._console.is_terminal:
            self._console.bell()

    def _terminal_writer(self) -> Callable[[str], None] | None:
        def write(text: str) -> None:
            with contextlib.suppress(OSError, ValueError):
                self._console.file.write(text)
                self._console.file.flush()

        return write if self._console.is_terminal else None

    def _away(self, text: str) -> None:
        """Say that the network is down, in the line that is there already; "": it is there again."""
        if self._held is not None:
            self._held.trouble(text)
        elif text:
            self._wait(text)

    def _let_go(self) -> None:
        held, self._held = self._held, None
        if held is not None:
            held.close()

    def _show_held(self) -> None:
        if self._held is not None and self._status is None and not self._asking and not self._silent:
            self._held.show()

    def _line_typed(self) -> None:
        if self._held is not None:
            self._held.typed()

    def _ready(self, event: events.Ready | events.Opened) -> None:
        self._address_shown = True
        held_here = ", and is held by another launch-notebook here" if isinstance(event, events.Opened) else ""
        self._say(f"JupyterLab runs on {event.node}{held_here}:", style="green")
        self._stop_status()
        # never folded by us: a terminal then keeps the address whole for a click or a copy
        self._console.print(printable(event.url), style="bold", soft_wrap=True, highlight=False, markup=False)
        if held_here:
            return
        if self._interactive:
            self._say("ENTER ends the session and its job; d and ENTER leaves it running.")
        else:
            self._say("Ctrl-C ends the session and its job.")

    def _planned(self, event: events.Planned) -> None:
        self._stop_status()
        for line in (
            f"# on {event.where}, nothing of this has been done:",
            event.command,
            "",
            f"# {event.directory}/session.env",
            event.session_env.rstrip(),
        ):
            self._console.print(line, soft_wrap=True, highlight=False, markup=False)

    def _say(self, text: str, style: str = "", *, whole: bool = False, aside: bool = False) -> None:
        """Print a sentence, folded between words; ``whole``: one to copy from, which only the terminal may fold.

        ``aside``: it is no result, and goes to standard error where a program may read the results.
        """
        console = self._aside if aside else self._console
        text = printable(text)
        self._stop_status()
        stamp = f"[{elapsed():6.2f} s] " if self._verbose else ""
        soft = whole or not console.is_terminal
        console.print(stamp + text, style=style, soft_wrap=soft, highlight=False, markup=False)
        self._show_held()

    def _note(self, text: str) -> None:
        """Print a sentence; below it, on lines of their own, may stand commands to copy."""
        sentence, *commands = text.split("\n")
        self._say(sentence, style="yellow", aside=True)
        for command in commands:
            self._say(command, style="yellow", whole=True, aside=True)

    def _course(self, event: CourseEvent) -> None:
        if isinstance(event, events.CourseTaken):
            if event.course == self._course_told:
                return
            self._course_told = event.course
        sentence, lines = course_words(event)
        if sentence:
            aside = not isinstance(event, events.CourseSeen)
            self._say(sentence, aside=aside)
            for line in lines:
                self._say(line, whole=True, aside=aside)

    def _price(self, event: events.Priced) -> None:
        self._say(price_words(event), aside=True)
        if event.note and self._verbose:
            self._say(_capital(event.note), aside=True)
        if warning := price_warning(event):
            self._say(warning, style="yellow", aside=True)

    def _making(self, event: events.Building | events.ImageMade) -> None:
        if isinstance(event, events.Building):
            self._wait(building_words(event))
        else:
            for line in made_words(event):
                self._say(line, whole=True)

    def _waits(self, event: events.Waiting) -> None:
        if self._in_place:
            self._update(lambda: waiting_parts(event, _now()))
        elif is_news(event, self._told, _now()):
            self._told = event
            self._say(_capital("; ".join(waiting_parts(event, _now()))), aside=True)

    def _unanswered(self, event: events.Unanswered) -> None:
        text = f"the scheduler does not answer ({event.reason}); it is asked again, and job {event.job} goes on"
        if self._address_shown and self._status is None:
            self._say(_capital(text), style="yellow", aside=True)
        else:
            self._wait(text)

    def _wait(self, text: str) -> None:
        self._told = None
        if self._in_place:
            self._update(lambda: [text])
        elif not self._asking:
            self._say(_capital(text), aside=True)

    @property
    def _in_place(self) -> bool:
        return self._console.is_terminal and not self._verbose

    def _update(self, parts: Callable[[], list[str]]) -> None:
        if self._asking:
            return
        if self._status is None:
            self._stop_status()
            self._status = self._console.status("", spinner="dots")
            self._status.start()
        self._status.update(WaitingLine(parts))

    def _stop_status(self, *, keep_bar: bool = False) -> None:
        if not keep_bar:
            self._copies.stop()
        self._bench.stop()
        self._looks.pause()
        self._stop_waiting()

    def _stop_waiting(self) -> None:
        if self._status is not None:
            self._status.stop()
            self._status = None
        if self._held is not None:
            self._held.hide()


#: what says that the session is not held any more, or not by us
_NOT_HELD = (
    *(events.Running, events.Ending, events.Ended, events.Left),
    *(events.NotebookRan, events.ResultsFetched, events.Bill),
)


def _now() -> datetime:
    return datetime.now().astimezone()


def _at(ends: str) -> str:
    at = moment(ends)
    return clock(at, _now()) if at else ends


def _capital(text: str) -> str:
    return text[0].upper() + text[1:]


def make_view(
    *,
    as_json: bool,
    open_browser: bool = False,
    verbose: bool = False,
    notify: bool = False,
    notes_apart: bool = False,
    notes_are_results: bool = False,
) -> BaseView:
    """Return the view for this output. ``notes_apart``: all sentences go to standard error.

    Where standard output is no terminal, notes and what is said while something is waited for go there in any case,
    unless ``notes_are_results``.
    """
    if as_json:
        return JsonView(open_browser=open_browser, notify=notify)
    from rich.console import Console

    console = Console(stderr=notes_apart, emoji=False)
    return TextView(
        console,
        open_browser=open_browser,
        verbose=verbose,
        notify=notify,
        interactive=sys.stdin.isatty(),
        aside=console if console.is_terminal or notes_are_results else Console(stderr=True, emoji=False),
    )
