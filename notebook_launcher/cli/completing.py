"""What a shell is offered on TAB: names that this machine remembers. Nothing is contacted."""

from __future__ import annotations

import click
from click.shell_completion import CompletionItem


def complete_session(_ctx: click.Context, _parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Offer the sessions that were seen last, the newest first."""
    from notebook_launcher.state import seen_sessions

    return [CompletionItem(name, help=about) for name, about in seen_sessions() if name.startswith(incomplete)]


def complete_cluster(_ctx: click.Context, _parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Offer the cluster profiles that there are."""
    from notebook_launcher.profiles.store import profile_names

    return [CompletionItem(name) for name in profile_names() if name.startswith(incomplete)]
