"""The commands for bundled notebooks: list them, and copy them for the user to work in."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from pathlib import Path

from notebook_launcher.core import events
from notebook_launcher.core.errors import HostCommandFailed, UsageError
from notebook_launcher.core.view import View
from notebook_launcher.hosts.base import Host, Prompts
from notebook_launcher.hosts.counted_prompts import CountedPrompts
from notebook_launcher.notebook.deploy import Bundle, deploy, in_home, shown_folder
from notebook_launcher.notebook.prepare import HELPER, bundled, data_of, named, sentence_of
from notebook_launcher.planning.target import LaunchTarget
from notebook_launcher.session.open_context import naming_contact, open_host
from notebook_launcher.session.record import Site, inspect_host

FOLDER = "~/notebooks"


def list_notebooks(view: View) -> None:
    """Show the bundled notebooks, each with its first sentence. No host is contacted."""
    view.show(events.BundledNotebooks(tuple((name, sentence_of(path)) for name, path in bundled().items())))


def copy_notebooks(target: LaunchTarget, names: Sequence[str], to: str, view: View, prompts: Prompts) -> None:
    """Copy bundled notebooks, with their imports, to a folder; files that the user has changed stay.

    ``names``: empty for all of them. ``to``: relative to the home on a cluster, or to the current folder on this
    machine. Raises ``NotebookInvalid`` for an unknown name, ``UsageError`` if ``to`` is not a folder, and
    ``HostCommandFailed`` if the files cannot be written.
    """
    files = files_of(names)
    _check(to)
    with naming_contact(target), open_host(target, view, CountedPrompts(prompts)) as host:
        site = inspect_host(host)
        folder = _folder(to, host, site)
        mark = hashlib.sha256(folder.encode()).hexdigest()[:16]  # one record for each folder
        bundle = Bundle("the notebooks", folder, files, f"notebooks/{mark}.json", f"{site.now:%Y-%m-%d}")
        try:
            copied = deploy(host, site, bundle, view)
        except HostCommandFailed as error:
            raise HostCommandFailed(
                f"The notebooks were not copied to {shown_folder(folder, site)} on {host.label}.",
                why=error.why or error.what,
                hint="name another folder: --to FOLDER",
            ) from None
        view.show(copied)
        if not copied.copied:
            view.show(events.Note(_nothing_new(copied, host)))


def files_of(names: Sequence[str]) -> dict[str, bytes]:
    """Return notebooks, and the Python and data files that they need. Raises ``NotebookInvalid`` as ``named`` does."""
    there = bundled()
    helpers = sorted(path for folder in {path.parent for path in there.values()} for path in folder.glob("*.py"))
    wanted = [named(name) for name in names if name != HELPER] if names else list(there.values())
    data = [file for path in wanted for file in data_of(path)]
    whole = {path for path in data if path.is_dir()}
    inside = {f"{folder.name}/{path.name}": path for folder in whole for path in sorted(folder.glob("*.py"))}
    beside = {path.name: path for path in (*wanted, *helpers, *data) if path not in whole}
    return {name: path.read_bytes() for name, path in (beside | inside).items()}


def _check(to: str) -> None:
    if not to or not to.isprintable():
        raise UsageError("--to names no folder.", hint="for example: --to ~/course")
    if re.match(r"~[^/]", to):
        raise UsageError(f"The home of “{to[1:].partition('/')[0]}” is not looked for.", hint="write the folder's path")


def _folder(to: str, host: Host, site: Site) -> str:
    if host.remote or re.match(r"~(/|$)", to):
        return in_home(to, site)
    return str(Path(to).resolve())


def _nothing_new(copied: events.NotebooksCopied, host: Host) -> str:
    if copied.kept:
        return (
            f"Nothing new for {copied.folder} on {host.label}. Left as you have changed them: {', '.join(copied.kept)}."
        )
    return f"The notebooks in {copied.folder} on {host.label} are the newest already."
