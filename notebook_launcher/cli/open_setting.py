"""Decides whether to open the browser: by the option if typed, otherwise by the user's setting ``open``."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from notebook_launcher.cli.views.base import BaseView
    from notebook_launcher.core.view import View
    from notebook_launcher.planning.profile_commands import ConfirmPrompts


def open_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command ``--open`` and ``--no-open`` as the parameter ``open_browser``; ``None``: neither was typed."""
    return click.option(
        "--open/--no-open", "open_browser", default=None, help="Open the browser, or not, when JupyterLab is ready."
    )(command)


def local_lab_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command ``--local-lab`` as ``local_lab``: the command of the JupyterLab on this machine; or nothing.

    Raises ``UsageError`` if this machine has none, before any host is contacted.
    """

    def found(_ctx: click.Context, _parameter: click.Parameter, is_wanted: bool) -> tuple[str, ...]:
        if not is_wanted:
            return ()
        from notebook_launcher.supervision.local_lab_process import local_lab_command

        return local_lab_command()

    return click.option(
        "--local-lab",
        is_flag=True,
        callback=found,
        help="Start your own JupyterLab on this machine, with this machine's files and the session's kernels.",
    )(command)


def show_in_browser(view: BaseView, *, is_wanted: bool, local_lab: tuple[str, ...]) -> None:
    """Let the view open the browser if wanted: with the JupyterLab of this machine if ``local_lab`` is given."""
    from notebook_launcher.core import events

    view.open_browser = is_wanted
    if local_lab:
        view.opens = (events.LocalLabReady,)


def wants_browser(
    typed: bool | None, view: View, questions: ConfirmPrompts | None = None, *, as_json: bool = False
) -> bool:
    """Return whether to open the browser; the setting applies only with a display, and never with ``--json``.

    ``questions``: ask if the setting is ``ask``, and save the answer. Raises ``ProfileError``.
    """
    from notebook_launcher.cli.views.browser import has_display
    from notebook_launcher.core import events
    from notebook_launcher.profiles import load_configuration
    from notebook_launcher.profiles.edit import save_setting

    if typed is not None or as_json or not has_display():
        return bool(typed)
    setting = load_configuration().open
    if setting != "ask" or questions is None or not questions.asks:
        return setting == "always"
    answer = questions.confirm("From now on, open JupyterLab in the browser as soon as it is ready?")
    if answer is not None:
        value = "always" if answer else "never"
        view.show(events.Saved(f"open = {value}", str(save_setting("open", value))))
    return bool(answer)
