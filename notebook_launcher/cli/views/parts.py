"""The parts of the view that show the events of single commands, each imported with the first such event."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console

    from notebook_launcher.cli.views.bench import BenchView
    from notebook_launcher.cli.views.classroom import ClassroomView
    from notebook_launcher.cli.views.copy_progress import CopyView
    from notebook_launcher.cli.views.forecast import ForecastView
    from notebook_launcher.cli.views.session_list import SessionListView
    from notebook_launcher.cli.views.status_and_usage import UsageView


class Parts:
    """The parts that remember what they have shown. ``aside``: the console for messages that are not results."""

    def __init__(self, console: Console, aside: Console) -> None:
        self._console, self._aside = console, aside

    @functools.cached_property
    def bench(self) -> BenchView:
        """For ``bench``."""
        from notebook_launcher.cli.views.bench import BenchView

        return BenchView(self._console, self._aside)

    @functools.cached_property
    def classroom(self) -> ClassroomView:
        """For a teacher's commands."""
        from notebook_launcher.cli.views.classroom import ClassroomView

        return ClassroomView(self._console)

    @functools.cached_property
    def copies(self) -> CopyView:
        """For copied files."""
        from notebook_launcher.cli.views.copy_progress import CopyView

        return CopyView(self._console)

    @functools.cached_property
    def forecast(self) -> ForecastView:
        """For ``when`` and ``queue``."""
        from notebook_launcher.cli.views.forecast import ForecastView

        return ForecastView(self._console)

    @functools.cached_property
    def session_list(self) -> SessionListView:
        """For ``list``."""
        from notebook_launcher.cli.views.session_list import SessionListView

        return SessionListView(self._console)

    @functools.cached_property
    def usage(self) -> UsageView:
        """For ``status``, ``usage`` and ``logs``."""
        from notebook_launcher.cli.views.status_and_usage import UsageView

        return UsageView(self._console)

    def stop(self, *, keep_bar: bool = False) -> None:
        """Remove what the parts update in place. ``keep_bar``: except the progress of a copy."""
        shown = vars(self)
        if "copies" in shown and not keep_bar:
            self.copies.stop()
        if "bench" in shown:
            self.bench.stop()
        if "usage" in shown:
            self.usage.pause()
        if "classroom" in shown:
            self.classroom.pause()
