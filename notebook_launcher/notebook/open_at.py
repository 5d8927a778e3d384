"""Finds the folder or notebook that JupyterLab opens with on the cluster; a notebook on this machine is sent first."""

from __future__ import annotations

import contextlib
import os
import posixpath
from pathlib import Path

from notebook_launcher.core.errors import HostCommandFailed, UsageError
from notebook_launcher.notebook.deploy import Bundle, deploy_version, folder_of
from notebook_launcher.planning.plan import Plan
from notebook_launcher.session.context import Context

_MOST = 64 * 1024 * 1024  # bytes of a notebook that is sent; for larger ones there is `copy`


def place_to_open(context: Context, plan: Plan) -> str:
    """Return what JupyterLab opens with, as a path below its root folder; "": the root folder itself.

    A notebook on this machine is copied to the root folder first, if commands run on a login node. If the copy there
    was changed, it stays, the new version is put beside it, and the user is asked which of the two to open. Without
    ``plan.open_at``, the course's notebook or folder is opened. Raises ``UsageError`` for a path that does not exist,
    or that JupyterLab does not show.
    """
    root = _jupyter_folder(context, plan)
    if plan.open_at is None:
        return _course_place(context, plan, root)
    here = Path(plan.open_at)
    if context.host.remote and here.suffix == ".ipynb" and here.is_file():
        return _sent(context, here, root)
    path = posixpath.normpath(posixpath.join(root, context.site.expand(plan.open_at)))
    if not _is_below(path, root):
        raise UsageError(
            f"JupyterLab does not show {plan.open_at}.",
            why=f"It shows what is in {root} on {context.host.label}.",
            hint="name a folder or a notebook in there, or begin elsewhere with: --chdir FOLDER",
        )
    if not _may_be_there(context, path, root):
        raise UsageError(
            f"There is no {plan.open_at} in {root} on {context.host.label}"
            + (f", and no notebook {plan.open_at} here." if context.host.remote and here.suffix == ".ipynb" else "."),
            why="Nothing was submitted.",
            hint="name a folder or a notebook that is there, or a notebook on this machine"
            if context.host.remote
            else "name a folder or a notebook that is there",
        )
    return _below(path, root)


def _course_place(context: Context, plan: Plan, root: str) -> str:
    """Return a course's notebook, or its folder if the notebook does not exist."""
    course = plan.target.course
    if not course or not course.notebooks:
        return ""
    folder = posixpath.normpath(folder_of(course, context.site))
    places = [posixpath.join(folder, plan.course_notebook)] if plan.course_notebook else []
    shown = (place for place in (*places, folder) if _is_below(place, root))
    return _below(next((place for place in shown if _may_be_there(context, place, root)), root), root)


def _is_below(path: str, root: str) -> bool:
    return posixpath.commonpath([path, root]) == root


def _below(path: str, root: str) -> str:
    return posixpath.relpath(path, root) if path != root else ""


def _may_be_there(context: Context, path: str, root: str) -> bool:
    """Whether a path exists on the login node; also true if only the compute node can see JupyterLab's folder."""
    words = ["sh", "-c", '[ -e "$2" ] || [ ! -d "$1" ] || echo missing', "look", root, path]
    with contextlib.suppress(HostCommandFailed):
        return "missing" not in context.host.run(words).stdout.split()
    return True


def _jupyter_folder(context: Context, plan: Plan) -> str:
    """Return the folder in which the job starts, which is JupyterLab's root folder."""
    chosen = plan.request.flags.get("chdir")
    begins = context.site.home if context.host.remote else os.getcwd()  # noqa: PTH109 - a path of the cluster
    return posixpath.normpath(posixpath.join(begins, context.site.expand(chosen))) if chosen else begins


def _sent(context: Context, notebook: Path, folder: str) -> str:
    """Copy a notebook to JupyterLab's folder, and return the name of the version to open."""
    if notebook.stat().st_size > _MOST:
        raise UsageError(
            f"{notebook} is larger than 64 MiB.", hint=f"copy it first: launch-notebook copy {notebook} login:"
        )
    bundle = Bundle(
        str(notebook),
        folder,
        {notebook.name: notebook.read_bytes()},
        f"opened/{notebook.name}.json",
        f"{context.clock():%Y-%m-%d}",
    )
    copied, ours = deploy_version(context.host, context.site, bundle, context.view)
    context.view.show(copied)
    if ours != notebook.name and context.prompts.asks:
        where = context.host.label
        question = f"{notebook.name} on {where} is another version, and is kept. Open yours instead ({ours})?"
        return ours if context.prompts.confirm(question) else notebook.name
    return notebook.name
