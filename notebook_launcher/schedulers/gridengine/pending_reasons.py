"""Why a job is pending in Grid Engine: the lines of ``qstat -j`` under *scheduling info*, in plain words.

There is a line for every queue and host where the job cannot run, including those that it did not request. Sites may
turn these lines off (``schedd_job_info`` in the manual sched_conf).
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from notebook_launcher.schedulers.base import Meaning

_FORBIDDEN = re.compile(r"\(Collecting of scheduler job information is turned off\)", re.I)
_NOTHING = re.compile(r"There are no messages available", re.I)
# lines about queues and hosts that the job did not request, or that only repeat another line
_OF_OTHERS = re.compile(r"not contained in its hard (?:queue|host) list|PE \"[^\"]*\" is not in pe list|error state$")
_REQUEST = re.compile(r"^\(-l [^)]*\) ")
_OFFERS = re.compile(r"cannot run at host \"([^\"]+)\" because it offers only ..:([\w.-]+)=(-?[\d.]+[KMGT]?)", re.A)
_PE = re.compile(r"cannot run in PE \"([^\"]+)\" because it only offers (-?\d+) slots", re.A)
_FULL = re.compile(
    r"queue instance \"([^\"]+)\" dropped because it is (full|overloaded|disabled|temporarily not available)"
)
_ASKED_FOR_ERROR = re.compile(r"exit_status of job start = 100$")
_STAYS = "it stays in the queue in an error state"
_MOST = 3


def read_reason(state: str, info: Sequence[str], errors: Sequence[str]) -> tuple[str | None, Meaning | None]:
    """Return why a job in this state (qstat's letters) is pending: in Grid Engine's words, and what they mean.

    A begin time is reported as ``BeginTime``, as with all schedulers.
    """
    if "E" in state:
        why = re.sub(r"^.*?\]:? (?:error: )?", "", errors[0]) if errors else ""
        if _ASKED_FOR_ERROR.search(why):
            summary = f"its script ended with exit code 100, and {_STAYS}"
            return why, Meaning(
                summary, "let the script end with another exit code than 100, and start again", never=True
            )
        summary = f"Grid Engine could not start it{f': {why}' if why else ''}; {_STAYS}"
        return why or "error state", Meaning(summary, "correct the cause, and start again", never=True)
    if "h" in state:
        return "hold", Meaning("is held, or waits for another job", "if you hold it, release it with: qrls JOB")
    lines = [_REQUEST.sub("", line) for line in info if line and not _NOTHING.search(line)]
    if any(map(_FORBIDDEN.search, lines)):
        return lines[0].strip("()"), Meaning("this cluster does not report why jobs wait")
    lines = list(dict.fromkeys(line for line in lines if not _OF_OTHERS.search(line)))
    if lines == ["execution time not reached"]:
        return "BeginTime", None
    if not lines:
        return None, None
    return "; ".join(lines[:_MOST]), Meaning(_summary(lines), _action(lines))


def _summary(lines: Sequence[str]) -> str:
    parts = list(dict.fromkeys(map(_sentence, lines)))
    more = f"; and {len(parts) - _MOST} more" if len(parts) > _MOST else ""
    return "; ".join(parts[:_MOST]) + more


def _sentence(line: str) -> str:
    if found := _OFFERS.search(line):
        number = re.sub(r"\.0+$", "", found[3])
        return f"{found[1]} offers only {found[2]}={number}"
    if found := _PE.search(line):
        return f"only {found[2]} cores are free in the parallel environment {found[1]}"
    if found := _FULL.search(line):
        return f"{found[1]} is {found[2]}"
    return f"the scheduler says “{line}”"


def _action(lines: Sequence[str]) -> str:
    text = " ".join(lines)
    if "unknown resource" in text:
        return "if it stays so, ask for less, or for another queue with -p"
    return ""
