"""A round of checks: in order, each told as it is done; what builds on a failed one is skipped, and no fault."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from notebook_launcher.core.errors import ChecksFailed, ConnectionLost, HostCommandFailed, LauncherError
from notebook_launcher.core.events import launch as events
from notebook_launcher.doctor.findings import Finding, Result, of_error, unknown
from notebook_launcher.session.context import View


class Round:
    """What was found so far. A check is known by its name; ``needs`` are the names of checks that it builds on."""

    def __init__(self, view: View) -> None:
        self.view = view
        self._results: dict[str, Result] = {}
        self._faults: dict[str, Finding] = {}

    def check(
        self, name: str, look: Callable[[], Finding | None], *, needs: Sequence[str] = (), doing: str = ""
    ) -> bool:
        """Look, and tell what was found; return whether what builds on it can go on.

        ``look`` returns ``None`` where there is nothing to be said. What it raises is a fault, but for an answer that
        did not come in time. ``doing``: what is shown meanwhile. A check that was not made stands in nobody's way.
        """
        if self.is_skipped(name, needs):
            return False
        if doing:
            self.view.show(events.Asking(doing))
        try:
            finding = look()
        except ConnectionLost as error:
            finding = of_error(error)
            name = "connection"
        except HostCommandFailed as error:
            finding = unknown(error.what, error.mend)
        except LauncherError as error:
            finding = of_error(error)
        if finding is not None:
            self.tell(name, finding)
        return self.is_well(name)

    def tell(self, name: str, finding: Finding) -> None:
        """Tell what was found."""
        self._results[name] = finding.result
        if finding.result == "fault":
            self._faults[name] = finding
        self.view.show(events.Checked(name, finding.result, finding.found, finding.mend))

    def is_skipped(self, name: str, needs: Sequence[str]) -> bool:
        """Whether a check cannot be made, because of one before it; that is told."""
        missing = [need for need in (*needs, "connection") if not self.is_well(need)]
        if missing:
            self.skip(name, f"not checked: it needs {missing[0]}")
        return bool(missing)

    def skip(self, name: str, why: str) -> None:
        """Tell that a check is not made."""
        self.tell(name, Finding("skipped", why))

    def is_well(self, name: str) -> bool:
        """Whether a check found no fault, or was not made."""
        return self._results.get(name, "ok") not in ("fault", "skipped")

    def sum_up(self) -> None:
        """Tell how it went. Raises ``ChecksFailed``, which names the faults."""
        by: dict[Result, list[str]] = {}
        for name, result in self._results.items():
            by.setdefault(result, []).append(name)
        faults = tuple(by.get("fault", ()))
        self.view.show(
            events.CheckedAll(
                len(by.get("ok", ())), faults, tuple(by.get("warning", ())), tuple(by.get("unknown", ())),
                tuple(by.get("skipped", ())),
            )
        )  # fmt: skip
        if faults:
            what = f"{'A check' if len(faults) == 1 else f'{len(faults)} checks'} failed: {', '.join(faults)}."
            first, *others = dict.fromkeys(self._faults[name].who for name in faults)
            who = " and ".join([first, *(one[0].lower() + one[1:] for one in others)])
            raise ChecksFailed(what, why=f"{who} would stumble over that.", mend=self._faults[faults[0]].mend)
