"""Checks whether an environment with many files starts so slowly that a copy on the node's own disk is worth it."""

from __future__ import annotations

from notebook_launcher.core.check_runner import CheckRunner
from notebook_launcher.core.finding import Finding, ok, unknown, warning
from notebook_launcher.core.text import whole_number
from notebook_launcher.doctor.bounded_command import CommandTimeout, run_bounded
from notebook_launcher.hosts.base import Host
from notebook_launcher.planning.plan import Plan
from notebook_launcher.session.record import Site

COLD_START = "cold start"
WITHIN = 30.0  # seconds
OPENED = 3000  # about the number of files that JupyterLab opens when it starts
_IN_ONE_FILE = (".sif", ".simg", ".img", ".sqsh", ".sqfs", ".squashfs")
_WORTH_IT = 5.0  # seconds; if opening these takes longer, a copy is worth it

# Opens up to 200 files that are spread over the folder. A login node may have some of them cached, so it may be slower
# on a compute node.
_MEASURE = r"""
[[ -d $1 ]] || exit 0
mapfile -t files < <(timeout 10 find "$1/" -type f -name '*.py*' 2>/dev/null | head -n 4000 | awk 'NR % 20 == 1')
((${#files[@]})) || exit 0
before=$(date +%s%N) began=$(date +%s%N) # date takes a while itself
for file in "${files[@]}"; do { : <"$file"; } 2>/dev/null; done
took=$(($(date +%s%N) - began - (began - before)))
echo "opened ${#files[@]} $((took > 0 ? took / 1000 : 0))"
"""
_HINT = "copy it to the node's own disk: stage = true in the profile; or use an image in one file (.sif)"


def check_cold_start(checks: CheckRunner, host: Host, plan: Plan, site: Site) -> None:
    """Measure on the login node how long it takes to open files of the environment, if that is a folder."""
    folder = _folder(plan, site)
    if folder is None:
        return

    def measure() -> Finding:
        try:
            _, lines = run_bounded(host, ["bash", "-c", _MEASURE, "bash", folder], WITHIN)
        except CommandTimeout:
            return warning(
                f"In {folder}, 200 files could not be opened within {WITHIN:.0f} s on the login node.", _HINT
            )
        words = next((line.split() for line in lines if line.startswith("opened ")), [])
        count, micros = (whole_number(word) for word in words[1:]) if len(words) == 3 else (None, None)
        if not count or micros is None:
            return unknown(f"No files of Python were found in {folder} on the login node.")
        staged = plan.target.profile.stage if plan.environment.stage is None else plan.environment.stage
        return assess_cold_start(folder, micros / count / 1000, staged=staged)

    checks.check(COLD_START, measure, doing=f"opening files in {folder}")


def assess_cold_start(folder: str, milliseconds: float, *, staged: bool) -> Finding:
    """Assess the time that opening a file takes; ``staged``: whether the environment is already copied to the node."""
    seconds = OPENED * milliseconds / 1000
    found = f"opening a file in {folder} takes {milliseconds:.2g} ms on the login node, {OPENED} take {seconds:.2g} s"
    if staged:
        worth = "worth it" if seconds >= _WORTH_IT else "hardly worth it"
        return ok(f"{found}; a copy on the node (stage = true) is {worth}")
    if seconds < _WORTH_IT:
        return ok(f"{found}: a copy on the node (stage = true) would hardly be worth it")
    return warning(f"{found}, so JupyterLab starts slowly.".replace("opening", "Opening", 1), _HINT)


def _folder(plan: Plan, site: Site) -> str | None:
    """Return the folder of the environment; ``None`` if it is an image in one file, or known only on the node."""
    environment = plan.environment
    if plan.container:
        return None if ":" in plan.container or plan.container.endswith(_IN_ONE_FILE) else site.expand(plan.container)
    folder = environment.venv or (f"{environment.uv}/.venv" if environment.uv else None) or environment.conda
    return site.expand(folder) if folder and "/" in folder else None
