"""Desktop notifications (``--notify``), by the means that this machine has, and notifications of the terminal.

Texts reach those programs as data, never as an option or part of a script; and never contain an address with a token.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping

from notebook_launcher.core import events
from notebook_launcher.core.errors import CancelFailed, Interrupted, LauncherError
from notebook_launcher.core.quantities import time_left_of_warning
from notebook_launcher.core.text import listed, one_line

TITLE = "launch-notebook"
GONE_WITHIN = 3.0  # seconds that a notification program may still run when the launcher wants to exit
_LONGEST_TEXT = 300  # characters of a text

_OSASCRIPT = (
    "on run argv",
    "display notification (item 2 of argv) with title (item 1 of argv)",
    "end run",
)
# uses PowerShell's application id, because only installed programs have one; the texts are passed in the environment
_POWERSHELL = """
$null = [Windows.UI.Notifications.ToastNotificationManager, Windows.UI.Notifications, ContentType = WindowsRuntime]
$kind = [Windows.UI.Notifications.ToastTemplateType]::ToastText02
$toast = [Windows.UI.Notifications.ToastNotificationManager]::GetTemplateContent($kind)
$lines = $toast.GetElementsByTagName('text')
$null = $lines.Item(0).AppendChild($toast.CreateTextNode($env:NBL_TITLE))
$null = $lines.Item(1).AppendChild($toast.CreateTextNode($env:NBL_TEXT))
$id = '{1AC14E77-02E7-4E5D-B744-2EB1AE5198B7}\\WindowsPowerShell\\v1.0\\powershell.exe'
$notification = [Windows.UI.Notifications.ToastNotification]::new($toast)
[Windows.UI.Notifications.ToastNotificationManager]::CreateToastNotifier($id).Show($notification)
"""


def notification_of_event(event: events.Event) -> str | None:
    """Return the text of the notification for an event; ``None`` if it needs none."""
    if isinstance(event, events.Ready):
        return f"JupyterLab is ready on {event.node}."
    if isinstance(event, events.TimeLeft):
        return f"{time_left_of_warning(event.seconds_left)} left: job {event.job} ends then."
    if isinstance(event, events.Idle):
        return event.text
    if isinstance(event, events.NotSaved):
        return f"JupyterLab could not save {listed(event.paths)}."
    if isinstance(event, events.Ended) and event.by_itself:
        return event.text
    return None


def notification_of_error(error: BaseException | None) -> str | None:
    """Return the text of the notification for an error that ends the command; ``None`` if the user caused it."""
    if isinstance(error, LauncherError) and not isinstance(error, Interrupted | CancelFailed):
        return error.what
    return None


class Notifier:
    """Notifies the desktop. ``say``: called once, with a sentence, if this machine cannot show notifications.

    ``write``: writes to the terminal, ``None`` if there is none. Many terminals show a notification if asked to by an
    escape sequence.
    """

    def __init__(self, say: Callable[[str], None], write: Callable[[str], None] | None) -> None:
        self._say, self._write = say, write
        self._running: list[subprocess.Popen[bytes]] = []
        self._is_noted = False

    def send(self, text: str) -> None:
        """Send a notification without waiting for it."""
        text = one_line(text, _LONGEST_TEXT)
        command = command_for(sys.platform, text)
        if command is None or not self._run(*command):
            self._send_to_terminal(text)

    def close(self) -> None:
        """Wait a short time for notifications that are being sent."""
        while self._running:
            program = self._running.pop()
            try:
                program.wait(GONE_WITHIN)
            except subprocess.TimeoutExpired:
                program.kill()
                program.wait()

    def _run(self, argv: list[str], env: Mapping[str, str]) -> bool:
        self._running = [program for program in self._running if program.poll() is None]
        nothing = subprocess.DEVNULL
        with contextlib.suppress(OSError):
            self._running.append(
                subprocess.Popen(
                    argv,
                    env={**os.environ, **env},
                    stdin=nothing,
                    stdout=nothing,
                    stderr=nothing,
                    start_new_session=True,  # Ctrl-C must not reach it
                )
            )
            return True
        return False

    def _send_to_terminal(self, text: str) -> None:
        if self._write is not None:
            self._write(f"\x1b]9;{TITLE}: {text}\x07")
        if not self._is_noted:
            self._is_noted = True
            instead = "; the terminal is notified instead" if self._write is not None else ""
            self._say(f"This machine has no {_NAMES.get(sys.platform, 'notify-send')} for notifications{instead}.")


_NAMES = {"darwin": "osascript", "win32": "powershell"}


def command_for(platform: str, text: str) -> tuple[list[str], dict[str, str]] | None:
    """Return the command that shows a notification, and additions to its environment; ``None``: there is none."""
    program = shutil.which(_NAMES.get(platform, "notify-send"))
    if program is None:
        return None
    if platform == "darwin":
        lines = [word for line in _OSASCRIPT for word in ("-e", line)]
        return [program, *lines, TITLE, text], {}
    if platform == "win32":
        arguments = ["-NoProfile", "-NonInteractive", "-WindowStyle", "Hidden", "-Command", _POWERSHELL]
        return [program, *arguments], {"NBL_TITLE": TITLE, "NBL_TEXT": text}
    import html

    # many notification servers interpret the text as markup
    return [program, f"--app-name={TITLE}", "--", TITLE, html.escape(text, quote=False)], {}
