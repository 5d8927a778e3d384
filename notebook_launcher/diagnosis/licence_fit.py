"""Whether a cluster has the licences that a request names, and enough of them. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence

from notebook_launcher.core.finding import Finding, fault
from notebook_launcher.core.text import whole_number
from notebook_launcher.diagnosis.name_suggestions import name_one, names_for, nearest
from notebook_launcher.schedulers.cluster_info import Licence

# matlab, matlab:2, matlab=2, matlab@server:2; separated by commas, or by ; or | for alternatives
_ITEM = re.compile(r"\s*(?P<name>[^:=\s]+)(?:[:=](?P<count>\d+))?\s*", re.A)


def assess_licences(typed: str | None, licences: Sequence[Licence] | None) -> Finding | None:
    """Return the fault if ``-L`` names a licence that does not exist, or more than there are; else ``None``."""
    if not typed or licences is None:
        return None
    totals = {one.name: one.total for one in licences}
    for item in map(_ITEM.fullmatch, re.split(r"[,;|]", typed)):
        if item is None:  # a notation that is not known here: sbatch's own message has to do
            return None
        name, count = item["name"], whole_number(item["count"]) or 1
        if name not in totals:
            return _unknown(name, list(totals))
        total = totals[name]
        if total is not None and count > total:
            return fault(
                f"It asks for {count} of the licence {name}, and the cluster has {total}.", _fewer(name, total)
            )
    return None


def _unknown(name: str, there: Sequence[str]) -> Finding:
    if not there:
        return fault(f"There is no licence {name}: the cluster has none.", "leave out -L")
    found = f"There is no licence {name}. The licences are: {names_for(name, there)}."
    return fault(found, name_one("-L", nearest(name, there)))


def _fewer(name: str, total: int) -> str:
    return f"ask for at most -L {name}:{total}" if total else "leave it out of -L"
