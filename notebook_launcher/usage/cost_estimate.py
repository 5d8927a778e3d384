"""The cost before a launch: what a request will cost at most, and the account's balance, queried on the login node.

The query runs in the background, and is not waited for longer than ``QUERY_TIMEOUT``.
"""

from __future__ import annotations

import dataclasses
import threading
import time

from notebook_launcher.core import events
from notebook_launcher.core.bash_options import PLAIN_BASH
from notebook_launcher.core.job_arrays import task_numbers
from notebook_launcher.core.quantities import duration
from notebook_launcher.core.request import Request
from notebook_launcher.planning.plan import Plan
from notebook_launcher.profiles.models import Budget
from notebook_launcher.schedulers.base import Scheduler
from notebook_launcher.session.context import Context
from notebook_launcher.session.record import Session, json_object
from notebook_launcher.usage.pricing import Estimate, estimate, left_of, missing

QUERY_TIMEOUT = 5.0  # seconds from the start of the query
_HIGHEST = 1e9  # the highest plausible price of an hour
SLOW_AFTER = 1.0  # seconds after which a note says what the command is waiting for
# A command that hangs is killed on the login node as well; of endless output, only the beginning is read. The command
# has no input, so that it cannot wait for an answer.
_BOUNDED = PLAIN_BASH + (
    'command -v timeout >/dev/null && set -- timeout -k 1 "$0" "$@"; '
    '"$@" </dev/null 2>&1 | head -c 65536; exit "${PIPESTATUS[0]}"'
)


def estimate_price(plan: Plan, scheduler: Scheduler) -> events.CostEstimate | None:
    """Return the most that a request can cost; ``None`` if it costs nothing, or its price is not known."""
    price = plan.target.profile.price
    found: Estimate | None = None
    if price is not None and not scheduler.same_machine:
        found = estimate(price, plan.request, plan.gpu_type)
    if price is None or found is None or not found.cost:
        return None
    cost, reckoning = found.cost, found.reckoning
    if "array" in plan.request.flags:
        tasks = len(task_numbers(plan.request.flags["array"]))
        cost, reckoning = cost * tasks, f"{tasks} tasks × {reckoning}"
    return events.CostEstimate(cost, price.unit, reckoning, plan.request.flags.get("account"))


def no_price_note(plan: Plan, scheduler: Scheduler) -> events.Note | None:
    """Return a note why a request's cost is not known, on a cluster that has prices; else ``None``."""
    price = plan.target.profile.price
    why = missing(price, plan.request, plan.gpu_type) if price is not None and not scheduler.same_machine else ""
    return events.Note(f"What it costs is not known: {why}.") if why else None


def next_price(context: Context, session: Session, request: Request) -> events.CostEstimate | None:
    """Return the most that the next job of a session can cost; ``None`` if that is not known.

    It is estimated from the profile or, if that is not possible, from the price per hour in ``panel.json``.
    """
    price, walltime = context.target.profile.price, request.walltime
    if price is None or context.scheduler.same_machine or walltime.is_unlimited:
        return None
    if found := estimate(price, request):
        return events.CostEstimate(found.cost, price.unit, found.reckoning, request.flags.get("account"))
    noted = json_object(context.host.read_file(f"{session.directory}/panel.json") or b"").get("price_per_hour")
    if not isinstance(noted, int | float) or not 0 < noted < _HIGHEST:
        return None
    cost = noted * walltime.total_seconds() / 3600
    calculation = f"{duration(walltime.total_seconds())} as before"
    return events.CostEstimate(cost, price.unit, calculation, request.flags.get("account"))


class Costing:
    """The cost of a launch; creating the object starts the query of the account's balance in the background."""

    def __init__(self, plan: Plan, context: Context) -> None:
        self._context, self._priced = context, estimate_price(plan, context.scheduler)
        self._unpriced = no_price_note(plan, context.scheduler)
        self._began = time.monotonic()
        self._answer: tuple[float | None, str] | None = None  # the balance, and why it is not known
        self._budget = plan.target.profile.budget if self._priced else None
        if self._budget:
            self._thread = threading.Thread(target=self._run_query, args=(self._budget,), name="budget", daemon=True)
            self._thread.start()

    def show_price(self) -> None:
        """Show the cost, with the balance if that arrives in time; nothing if the user interrupts."""
        priced = self._priced
        if priced is None:
            if self._unpriced:
                self._context.view.show(self._unpriced)
            return
        if self._budget:
            self._await()
        if not self._context.interrupts.inbox.empty():
            return
        left, note = self._answer or (None, "")
        self._context.view.show(dataclasses.replace(priced, balance=left, note=note))
        if self._budget and self._answer is None:
            self._context.view.show(
                events.Note(f"The account's balance was not reported within {QUERY_TIMEOUT:.0f} s.")
            )

    def _await(self) -> None:
        """Wait for the answer until the timeout, or until the user interrupts."""
        slow_at = time.monotonic() + SLOW_AFTER
        while self._answer is None and self._context.interrupts.inbox.empty():
            now = time.monotonic()
            if now >= self._began + QUERY_TIMEOUT:
                break
            if now >= slow_at:
                self._context.view.show(events.Querying("querying the account's balance"))
                slow_at = self._began + QUERY_TIMEOUT
            self._thread.join(0.05)

    def _run_query(self, budget: Budget) -> None:
        try:
            self._answer = self._query(budget)
        except Exception as error:  # no price is worth a failed launch
            self._answer = None, f"the balance could not be queried: {error}"

    def _query(self, budget: Budget) -> tuple[float | None, str]:
        account = self._priced.account if self._priced else None
        command = [word.replace("{account}", account or "") for word in budget.command]
        answer = self._context.host.run(
            ["bash", "-c", _BOUNDED, f"{QUERY_TIMEOUT:.0f}", *command], login_shell=True, timeout=QUERY_TIMEOUT + 2
        )
        left = left_of(budget, account, answer.stdout)
        if left is not None:
            return left, ""
        output = (answer.stdout.strip().splitlines() or ["nothing"])[-1][:200]
        return None, f"the balance was not reported; {command[0]} exited with {answer.exit_code} and said: {output}"
