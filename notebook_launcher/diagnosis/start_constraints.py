"""What a scheduler ignores when it estimates a start: the rules of partitions, and limits. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from notebook_launcher.core.frozen import Frozen
from notebook_launcher.core.request import Request
from notebook_launcher.diagnosis import explain
from notebook_launcher.diagnosis.partition_fit import may_use
from notebook_launcher.diagnosis.requirements import amount_requested, amount_text, parse_amount
from notebook_launcher.schedulers.cluster_info import Evidence, Limit, Partition

_FOR = {"user": "for you", "account": "for your account", "group": "for all who share it"}


class StartConstraints(Frozen):
    """These rules, as far as they are known.

    ``limits``: returns the limits that apply to a request, ``None`` if they are not known. ``account``, ``qos``: the
    defaults of a request that names none.
    """

    partitions: Sequence[Partition] | None
    limits: Callable[[Request], Sequence[Limit] | None]
    account: str | None = None
    qos: str | None = None

    def never(self, request: Request, partition: str | None) -> explain.Explanation | None:
        """Return why a request can never start in a partition (``None``: the one it names); ``None`` if it may."""
        return explain.never_starts(request, Evidence(request, partition, self.partitions, self.limits(request)))

    def delays(self, request: Request, partition: str | None) -> str:
        """Return a sentence on what delays a request beyond the scheduler's estimate; empty if nothing does."""
        return self._closed(request, partition) or self._used_up(request)

    def may_be_preempted(self, partition: str | None) -> bool:
        """Return whether jobs in a partition may be preempted."""
        return any(known.preemptible for known in self.partitions or () if known.name == partition)

    def _closed(self, request: Request, partition: str | None) -> str:
        """Return a sentence if the partition is closed to all, or to this account or QOS; else an empty text.

        An account may inherit the permission from one above it (slurm.conf's manual).
        """
        name = partition or request.flags.get("partition")
        account, qos = request.flags.get("account") or self.account, request.flags.get("qos") or self.qos
        for place in (place for place in self.partitions or () if place.name == name):
            if place.is_up is False:
                return f"Partition {name} is closed at the moment: it waits until that is opened."
            if not may_use(account, place.accounts, place.denied_accounts):
                who = f"Account {account} may not use partition {name}"
                return f"{who}: unless an account above it may, it never starts."
            if not may_use(qos, place.qos, place.denied_qos):
                return f"QOS {qos} may not be used in partition {name}: it never starts so."
        return ""

    def _used_up(self, request: Request) -> str:
        for limit in self.limits(request) or ():
            wanted, allowed = amount_requested(request, limit.on), parse_amount(limit.on, limit.value)
            used = parse_amount(limit.on, limit.used) if limit.used is not None else None
            if limit.on == "walltime" or not wanted or allowed is None or used is None or used + wanted <= allowed:
                continue
            whose, are = _FOR.get(limit.per, ""), "is" if limit.used == "1" else "are"
            allows = f"{limit.of} allows {amount_text(limit.on, limit.value)} {whose}"
            return f"{allows[0].upper()}{allows[1:]}, and {limit.used} {are} in use: it waits until that is less."
        return ""
