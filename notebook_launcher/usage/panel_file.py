"""What the panel in JupyterLab's page cannot find out on the node: the request, its price, and commands to copy."""

from __future__ import annotations

import dataclasses
import json
import shlex

from notebook_launcher.diagnosis.requirements import cores_of_node, memory_of_node
from notebook_launcher.planning.plan import Plan
from notebook_launcher.schedulers.base import Scheduler
from notebook_launcher.session.record import Session
from notebook_launcher.usage.cost_estimate import estimate_price

#: its name in the session's directory; docs/job-script.md describes the content
PANEL_FILE = "panel.json"


def panel_file(plan: Plan, scheduler: Scheduler, session: Session) -> bytes:
    """Return the content of ``panel.json``, which is one line; values that are not known are left out.

    ``cores`` and ``memory_mib`` are those of one node; ``price_per_hour`` is that of the whole job, in ``unit``.
    """
    walltime = None if plan.request.walltime.is_unlimited else plan.request.walltime.total_seconds()
    named = shlex.join(dataclasses.replace(plan.target, is_default=False).arguments())  # for any machine and default
    values: dict[str, object] = {
        "version": 1,
        "walltime_seconds": walltime,
        "connect": " ".join(filter(None, ["launch-notebook connect", named, session.id])),
        "renew": " ".join(filter(None, ["launch-notebook renew", named, session.id])),
        "bill": " ".join(filter(None, ["launch-notebook bill", named, session.id])),
    }
    if not scheduler.same_machine:  # the local scheduler sets no limits
        values |= {"cores": cores_of_node(plan.request), "memory_mib": memory_of_node(plan.request)}
    price = estimate_price(plan, scheduler)
    if price is not None and walltime:
        values |= {"price_per_hour": price.cost * 3600 / walltime, "unit": price.unit}
    known = {name: value for name, value in values.items() if value is not None}
    return (json.dumps(known, ensure_ascii=False, separators=(",", ":")) + "\n").encode()
