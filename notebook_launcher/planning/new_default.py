"""Makes a cluster or course that the user has just chosen the default, once the request has been checked."""

from __future__ import annotations

from dataclasses import replace

from notebook_launcher.core import events
from notebook_launcher.core.sbatch_options import unlisted
from notebook_launcher.core.view import View
from notebook_launcher.planning.plan import Plan
from notebook_launcher.planning.target import THIS_MACHINE, LaunchTarget, leads_to
from notebook_launcher.profiles import load_configuration
from notebook_launcher.profiles.courses import choose_course


def with_default_saved(plan: Plan, view: View) -> Plan:
    """Make the plan's cluster or course the default if the user has just chosen it, and return the changed plan.

    If only the cluster can tell whether the request is valid, this is postponed until the cluster has accepted it.
    """
    if unlisted(plan.request.flags):
        return plan
    return replace(plan, target=save_new_default(plan.target, view))


def save_new_default(target: LaunchTarget, view: View) -> LaunchTarget:
    """Make the target the default if the user has just chosen it, and return the changed target.

    Raises ``ProfileError`` if it cannot be saved.
    """
    if not target.new_default:
        return target
    # a retired cluster is saved under its own name, so that its old flags are still translated
    name = target.instead_of or target.cluster or THIS_MACHINE
    if target.course:
        save_default_course(target.course.name, view)
    else:
        _save_cluster(name, view)
    return replace(target, new_default=False, is_default=leads_to(load_configuration(), target.course, name))


def save_default_course(name: str, view: View) -> None:
    """Make a saved course the default, and say so, unless it is already. Raises ``ProfileError``."""
    path = choose_course(name)
    if path:
        view.show(events.Saved(f"“{name}” is the default course", str(path)))
        view.show(
            events.Note(
                "To launch once without the course: --cluster NAME or --host you@login. To go without it from now on:\n"
                f"  launch-notebook course forget {name}"
            )
        )


def _save_cluster(name: str, view: View) -> None:
    from notebook_launcher.planning.profile_commands import save_as_default  # once in a user's life

    save_as_default(name, view)
    view.show(
        events.Note(
            "To make another one the default, or none, so that the next launch asks again:\n"
            "  launch-notebook clusters use NAME\n"
            "  launch-notebook clusters use --unset"
        )
    )
