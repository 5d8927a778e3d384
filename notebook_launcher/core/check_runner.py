"""Runs checks in order and reports each result; a check that needs a failed one is skipped, not failed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from notebook_launcher.core import events
from notebook_launcher.core.errors import (
    ChecksFailed,
    ConnectionLost,
    HostCommandFailed,
    LauncherError,
    LoginShellSilent,
)
from notebook_launcher.core.finding import Finding, Result, of_error, unknown
from notebook_launcher.core.support_contact import with_contact
from notebook_launcher.core.text import listed
from notebook_launcher.core.view import View

_MOST_NAMED = 8


class CheckRunner:
    """Runs checks and keeps their results, by name. ``needs``: the names of the checks that a check depends on.

    ``contact``: the address that is added to hints to ask the cluster's support.
    """

    def __init__(self, view: View) -> None:
        self.view = view
        self.contact: str | None = None
        self._results: dict[str, Result] = {}
        self._faults: dict[str, Finding] = {}

    def check(
        self, name: str, inspect: Callable[[], Finding | None], *, needs: Sequence[str] = (), doing: str = ""
    ) -> bool:
        """Run a check and report its finding; return whether checks that depend on it can run.

        ``inspect`` returns ``None`` if there is nothing to report. An error that it raises is a fault; but a
        ``HostCommandFailed``, such as a timeout, means that the result is unknown. ``doing``: the activity to show
        meanwhile. A check that was not run counts as passed.
        """
        if self.skip_unless_passed(name, needs):
            return False
        if doing:
            self.view.show(events.Querying(doing))
        try:
            finding = inspect()
        except ConnectionLost as error:
            finding = of_error(error)
            name = "connection"
        except LoginShellSilent as error:
            finding = of_error(error)
        except HostCommandFailed as error:
            finding = unknown(error.what, error.hint)
        except LauncherError as error:
            finding = of_error(error)
        if finding is not None:
            self.report(name, finding)
        return self.passed(name)

    def report(self, name: str, finding: Finding) -> None:
        """Report a finding."""
        if finding.result == "fault":
            finding = replace(finding, hint=with_contact(finding.hint, self.contact))
        self._results[name] = finding.result
        if finding.result == "fault":
            self._faults[name] = finding
        self.view.show(events.CheckResult(name, finding.result, finding.found, finding.hint))

    def skip_unless_passed(self, name: str, needs: Sequence[str]) -> bool:
        """Whether a check must be skipped because one that it needs failed; if so, report that."""
        missing = [need for need in (*needs, "connection") if not self.passed(need)]
        if missing:
            self.skip(name, f"not checked: it needs {missing[0]}")
        return bool(missing)

    def skip(self, name: str, why: str) -> None:
        """Report that a check is skipped."""
        self.report(name, Finding("skipped", why))

    def passed(self, name: str) -> bool:
        """Whether a check found no fault, or was not run."""
        return self._results.get(name, "ok") not in ("fault", "skipped")

    def summarise(self) -> None:
        """Report the totals. Raises ``ChecksFailed``, which names the faults."""
        by: dict[Result, list[str]] = {}
        for name, result in self._results.items():
            by.setdefault(result, []).append(name)
        faults = tuple(by.get("fault", ()))
        self.view.show(
            events.ChecksDone(
                len(by.get("ok", ())),
                faults,
                tuple(by.get("warning", ())),
                tuple(by.get("unknown", ())),
                tuple(by.get("skipped", ())),
            )
        )
        if faults:
            what = f"{'A check' if len(faults) == 1 else f'{len(faults)} checks'} failed: {', '.join(faults)}."
            found = [self._faults[name] for name in faults]
            hints = dict.fromkeys(one.hint for one in found if one.hint)
            raise ChecksFailed(what, why=_what_follows(found), hint="\n→ ".join(hints))


def _what_follows(faults: Sequence[Finding]) -> str:
    """Return sentences that say who would be affected by the faults."""
    sentences = []
    if affected := dict.fromkeys(one.who for one in faults if not one.students):
        first, *others = affected
        who = " and ".join([first, *(one[0].lower() + one[1:] for one in others)])
        sentences.append(f"{who} would fail because of this.")
    if students := list(dict.fromkeys(user for one in faults for user in one.students)):
        sentences.append(f"These students could not launch: {listed(students, _MOST_NAMED)}.")
    return " ".join(sentences)
