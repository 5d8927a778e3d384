"""The base of every view: shows events and reads the keyboard."""

from __future__ import annotations

import contextlib
import io
import queue
import sys
import threading
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from notebook_launcher.cli.views import notifications
from notebook_launcher.cli.views.terminal import Terminal, question_output
from notebook_launcher.core import events
from notebook_launcher.core.interrupts import Interrupts
from notebook_launcher.core.text import printable
from notebook_launcher.core.view import Typed

if TYPE_CHECKING:
    from notebook_launcher.cli.views.browser import Browser


class BaseView:
    """Shows events; a context manager that always restores the terminal.

    ``open_browser``: whether to open the browser as soon as JupyterLab is ready. ``opens``: the kinds of events whose
    address is opened.
    """

    exit_code = 0
    opens: tuple[type[events.Ready] | type[events.BrowserOpened] | type[events.LocalLabReady], ...] = (
        events.Ready,
        events.BrowserOpened,
    )

    def __init__(self, *, open_browser: bool = False, notify: bool = False) -> None:
        self.interrupts = Interrupts()
        self.listening = False
        self._inbox: queue.SimpleQueue[object] = queue.SimpleQueue()
        self.open_browser = open_browser
        self._notifier = notifications.Notifier(self._say_of_notifying, self._terminal_writer()) if notify else None
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
            if self._has_session and (text := notifications.notification_of_error(error)):
                self._notifier.send(text)
            self._notifier.close()
        if self._browser:
            self._browser.close_when_read() if self._opened and error is None else self._browser.close()

    def show(self, event: events.Event) -> None:
        """Show one event, and open the browser if the event calls for it."""
        if not self._silent:
            try:
                self._show(event)
            except BrokenPipeError:  # the reader of our output is gone: nobody would learn of the session
                self.silence()
                sys.stdout = io.StringIO()  # otherwise the interpreter would try again at exit, and print an error
                self.interrupts.arrive("end", at_once=True)
            except OSError:  # the terminal is gone; a signal reports that as well
                self.silence()
        if isinstance(event, self.opens) and self.open_browser and self._browser is None:
            self._open(event.url)
        self._opened = self._opened or isinstance(event, events.BrowserOpened)
        self._has_session = self._has_session or isinstance(event, events.Submitted | events.Ready)
        if self._notifier is not None and (text := notifications.notification_of_event(event)):
            self._notifier.send(text)

    def _say_of_notifying(self, text: str) -> None:
        self.show(events.Note(text))

    def _terminal_writer(self) -> Callable[[str], None] | None:
        """Return a function that writes escape sequences to the terminal; ``None`` if the output is not a terminal."""
        return None

    def _open(self, url: str) -> None:
        from notebook_launcher.cli.views.browser import Browser

        try:
            self._browser = Browser(url, on_failure=lambda: self._say_not_opened("there is none here, or no display"))
        except OSError as error:
            self._say_not_opened(str(error))

    def _say_not_opened(self, why: str) -> None:
        self.show(events.Note(f"No browser was opened: {why}. The address works in any browser on this machine."))

    def _show(self, event: events.Event) -> None:
        raise NotImplementedError

    def listen(self, inbox: queue.SimpleQueue[object]) -> None:
        """Pass each line that the user types to ``inbox``."""
        self._inbox = inbox
        if not self.listening:
            self.listening = True
            threading.Thread(target=self._read_keyboard, name="keyboard", daemon=True).start()

    def _read_keyboard(self) -> None:
        ends = 0
        with contextlib.suppress(OSError, ValueError):
            # Ctrl-D is a single end of input; a pipe or a closed terminal stays at its end
            while ends < (_CTRL_DS if sys.stdin.isatty() else 1):
                line = sys.stdin.readline()
                if line:
                    self._pass_on(line.rstrip("\n"))
                else:
                    ends += 1

    def _pass_on(self, line: str) -> None:
        answers = self._answers
        if answers is not None:
            answers.put(line)
        else:
            self._line_typed()
            self._inbox.put(Typed(line))

    def _line_typed(self) -> None:
        """Redraw what is below the cursor, which has moved because the user has typed a line."""

    def next_line(self, question: str, *, echo: bool) -> str | None:
        """Ask a question while listening; the next line is the answer.

        ``None`` if echo could not be disabled, the question could not be shown, or it was dismissed.
        """
        if not echo and not self._terminal.echo(False):
            return None
        self._answers = queue.SimpleQueue()
        try:
            with question_output(sys.stderr) as output:
                output.write(printable(question))
                output.flush()
                answer = self._answers.get()
                output.write("" if echo else "\n")
            return answer
        except OSError:
            return None
        finally:
            self._answers = None
            if not echo:
                self._terminal.echo(True)

    def dismiss(self) -> None:
        """Close an open prompt, if any, without an answer; may be called by a signal handler."""
        answers = self._answers
        if answers is not None:
            answers.put(None)

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """Write nothing to the terminal while the block runs."""
        yield

    def silence(self) -> None:
        """Show nothing from now on."""
        self._silent = True


_CTRL_DS = 100
