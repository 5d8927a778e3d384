"""The folder or notebook that JupyterLab opens with: where it is there, and sending it first if it is here."""

from __future__ import annotations

import os
import posixpath
from pathlib import Path

from notebook_launcher.core.errors import UsageError
from notebook_launcher.notebook.deploy import Bundle, deploy, folder_of
from notebook_launcher.planning.plan import Plan
from notebook_launcher.session.context import Context

_MOST = 64 * 1024 * 1024  # bytes of a notebook that is sent along; larger ones are for `copy`


def place_to_open(context: Context, plan: Plan) -> str:
    """Return what JupyterLab opens with, as a path below its folder; "": its folder itself.

    A notebook that lies on this machine, and not on the login node, is copied to JupyterLab's folder first; what the
    user has changed there stays. Without ``plan.open_at``, a course's folder. Raises ``UsageError`` for a place that
    JupyterLab does not show.
    """
    root = _jupyter_folder(context, plan)
    if plan.open_at is None:
        course = plan.target.course
        folder = folder_of(course, context.site) if course and course.notebooks else root
        return posixpath.relpath(folder, root) if folder.startswith(f"{root}/") else ""
    here = Path(plan.open_at)
    if context.host.remote and here.suffix == ".ipynb" and here.is_file():
        _send(context, here, root)
        return here.name
    path = posixpath.normpath(posixpath.join(root, context.site.expand(plan.open_at)))
    if path != root and not path.startswith(f"{root}/"):
        raise UsageError(
            f"JupyterLab does not show {plan.open_at}.",
            why=f"It shows what is in {root} on {context.host.label}.",
            hint="name a folder or a notebook in there, or begin elsewhere with: --chdir FOLDER",
        )
    return posixpath.relpath(path, root) if path != root else ""


def _jupyter_folder(context: Context, plan: Plan) -> str:
    """Return the folder in which the job starts, and which JupyterLab shows."""
    chosen = plan.request.flags.get("chdir")
    begins = context.site.home if context.host.remote else os.getcwd()  # noqa: PTH109 - a path of the cluster
    return posixpath.normpath(posixpath.join(begins, context.site.expand(chosen))) if chosen else begins


def _send(context: Context, notebook: Path, folder: str) -> None:
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
    context.view.show(deploy(context.host, context.site, bundle, context.view))
