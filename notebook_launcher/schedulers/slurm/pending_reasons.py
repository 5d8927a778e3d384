"""Slurm's reasons why a job is pending, in plain words: those of its guide to job reason codes and of squeue's manual.

They cover 22.05 to 26.05, in all spellings, and the sentences that squeue prints instead of a reason. A reason does not
contain numbers, such as the size of a limit.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Literal

from notebook_launcher.core.frozen import Frozen
from notebook_launcher.schedulers.slurm import limit_reasons as limits

#: what a reason is about, and so what has to be queried to explain it: the queue, the partition, or a limit of the
#: account or QOS; ``nodes``: the queue and the other partitions; ``later``: another reason may follow when this one no
#: longer applies
Topic = Literal["queue", "nodes", "partition", "limit", "later", ""]


class ReasonMeaning(Frozen):
    """The explanation of one reason.

    ``never``: whether the job can never start in that partition. ``action``: what helps, if anything. ``limit``: the
    limit that the reason names, if any. ``word``: the reason in lower case, if it is a single word.
    """

    summary: str
    action: str = ""
    never: bool = False
    topic: Topic = ""
    limit: limits.LimitReason | None = None
    word: str = ""


_OTHER_PARTITION = "try another partition with -p"
_RELEASE = "release it with: scontrol release JOB"
_SUPPORT = "ask the cluster's support"
_AGAIN = "cancel it and start again; if it happens twice, ask the cluster's support"
_WAS_PUT_BACK = "and it was put back into the queue"
_OR_PASSING = "or the accounting database is away for a moment"
_ACCOUNTS = "sacctmgr show assoc where user=$USER format=account,qos"
_SHORTER = "a shorter walltime (-t) may fit in before it"


def _ran_before(how: str) -> ReasonMeaning:
    return ReasonMeaning(f"its earlier run {how}, {_WAS_PUT_BACK}")


_NOT_LOOKED = ReasonMeaning("the scheduler has not looked at it yet", topic="queue")
_RESERVATION_GONE = ReasonMeaning("its reservation was removed", "leave out --reservation", never=True)
_LIMIT_REACHED = "it starts when other jobs have ended"
_ACCOUNT = ReasonMeaning(
    "the account may not use this partition", "try another account (-A) or partition (-p)", True, "partition"
)
_QOS = ReasonMeaning(
    "the QOS may not be used in this partition", "try another QOS (-q) or partition (-p)", True, "partition"
)

# The reasons that are one word, in lower case.
_WORDS: dict[str, ReasonMeaning] = {
    "none": _NOT_LOOKED,
    "waitingforscheduling": _NOT_LOOKED,
    "priority": ReasonMeaning("other jobs are ahead in the queue", topic="queue"),
    "resources": ReasonMeaning("waits until enough of what it asks for is free", topic="queue"),
    "scheddefer": ReasonMeaning("the scheduler will look at it shortly", topic="queue"),
    "begintime": ReasonMeaning("waits for its begin time", topic="later"),
    "dependency": ReasonMeaning("waits for another job", topic="later"),
    "dependencyneversatisfied": ReasonMeaning(
        "the job it depends on did not end as required", "leave out --dependency", never=True
    ),
    "jobarraytasklimit": ReasonMeaning("as many tasks of its array run as may at once"),
    "licenses": ReasonMeaning("waits until a licence is free", "list the licences with: scontrol show lic"),
    # held
    "jobhelduser": ReasonMeaning("is held", _RELEASE),
    "jobheldadmin": ReasonMeaning("is held by an operator", _SUPPORT),
    "jobholdmaxrequeue": ReasonMeaning("is held: its start has failed too often", _AGAIN),
    # partitions
    "partitiontimelimit": ReasonMeaning(
        "its walltime is longer than the partition allows",
        "ask for less with -t, or another partition with -p",
        never=True,
        topic="partition",
    ),
    # also if nodes are down or drained (squeue's manual)
    "partitionnodelimit": ReasonMeaning(
        "it asks for more or fewer nodes than the partition allows, or has in service",
        "ask for another number of nodes (-N), or another partition (-p)",
        topic="partition",
    ),
    # in 22.05 for too many cores, in 24.11 for an account that may not use it
    "partitionconfig": ReasonMeaning(
        "the partition does not allow it: its account, its QOS, its group or its size",
        "try another partition (-p) or account (-A), or ask for less",
        never=True,
        topic="partition",
    ),
    "partitiondown": ReasonMeaning("the partition is closed at the moment", _OTHER_PARTITION, topic="partition"),
    "partitioninactive": ReasonMeaning("the partition is inactive", _OTHER_PARTITION, topic="partition"),
    "maxmemperlimit": ReasonMeaning(
        "it asks for more memory than is allowed per core or node",
        "ask for less with --mem or --mem-per-cpu",
        never=True,
        topic="partition",
    ),
    # accounts and QOS
    "accountnotallowed": _ACCOUNT,
    "qosnotallowed": _QOS,
    # not ``never``: it also occurs while the accounting database is down
    "invalidaccount": ReasonMeaning(
        f"the account is not valid, {_OR_PASSING}",
        f"if it stays so, try another account (-A); list yours with: {_ACCOUNTS}",
    ),
    "invalidqos": ReasonMeaning(
        f"the QOS is not valid, {_OR_PASSING}", f"if it stays so, try another QOS (-q); list yours with: {_ACCOUNTS}"
    ),
    "accountingpolicy": ReasonMeaning("a limit of your account or QOS is reached", _LIMIT_REACHED, topic="limit"),
    "associationjoblimit": ReasonMeaning("your account runs as many jobs as it may", _LIMIT_REACHED, topic="limit"),
    "associationresourcelimit": ReasonMeaning("your account uses all that it may", _LIMIT_REACHED, topic="limit"),
    "associationtimelimit": ReasonMeaning(
        "your account has used up its time", "try another account with -A", topic="limit"
    ),
    "qosjoblimit": ReasonMeaning("as many jobs of the QOS run as may at once", _LIMIT_REACHED, topic="limit"),
    "qosresourcelimit": ReasonMeaning("the jobs of the QOS use all that they may", _LIMIT_REACHED, topic="limit"),
    "qostimelimit": ReasonMeaning("the QOS has used up its time", "try another QOS with -q", topic="limit"),
    "qosusagethreshold": ReasonMeaning(
        "your account has used more than its share, and the QOS is not for those who have", "try another QOS with -q"
    ),
    # nodes
    "reqnodenotavail": ReasonMeaning("a node that it needs is down, drained or reserved"),
    "nodedown": ReasonMeaning("a node that it needs is down"),
    "frontenddown": ReasonMeaning("the node that starts jobs is down"),
    "badconstraints": ReasonMeaning(
        "no node can fulfil its constraints, and it is held",
        "change --constraint or what it asks of a node",
        never=True,
    ),
    "constraints": ReasonMeaning("no node fulfils its constraints at the moment", "change --extra"),
    "maxpoweredupnodes": ReasonMeaning("as many nodes are switched on as may be at once"),
    "powernotavail": ReasonMeaning("there is not enough electrical power for it at the moment"),
    "powerreserved": ReasonMeaning("the electrical power that it needs is reserved"),
    "nvidiaimexchannels": ReasonMeaning("waits until a channel between GPUs (IMEX) is free"),
    "mpiportsbusy": ReasonMeaning("waits until ports for its communication are free"),
    "blockmaxerror": ReasonMeaning("too many blocks of nodes have errors", _SUPPORT),
    "blockfreeaction": ReasonMeaning("waits until a block of nodes is free"),
    # reservations
    "reservation": ReasonMeaning("waits for its reservation to begin, or for room in it"),
    "reservationdeleted": _RESERVATION_GONE,
    "reservationinvalid": ReasonMeaning("its reservation is not valid any more", "leave out --reservation", never=True),
    # being prepared, or cleaned up
    "prolog": ReasonMeaning("its node is being prepared"),
    "configuring": ReasonMeaning("its nodes are being prepared (switched on, or booted)"),  # from the job's state
    "cleaning": ReasonMeaning("is being tidied up after an earlier run"),
    "burstbufferresources": ReasonMeaning("waits until there is room in the burst buffer"),
    "burstbufferstagein": ReasonMeaning("its files are being copied into the burst buffer"),
    "burstbufferoperation": ReasonMeaning("the burst buffer could not do what it asks for, and it is held", _AGAIN),
    "fedjoblock": ReasonMeaning("waits until the clusters that compete for it have agreed"),
    # how an earlier run ended
    "systemfailure": _ran_before("failed because of Slurm, a file system or the network"),
    "joblaunchfailure": _ran_before("was killed, or could not be started"),  # 22.05 does not distinguish the two
    "nonzeroexitcode": _ran_before("failed"),
    "raisedsignal": _ran_before("was ended by a signal"),
    "timelimit": _ran_before("reached its walltime"),
    "inactivelimit": _ran_before("was ended because it did nothing for too long"),
    "outofmemory": _ran_before("needed more memory than it had asked for"),
    "deadline": ReasonMeaning("it cannot be done before its deadline", "leave out --deadline"),
}


# --- sentences instead of a reason ---------------------------------------------------------------------------------


def _unavailable(found: re.Match[str]) -> ReasonMeaning:
    nodes = (found["nodes"] or "").strip()
    if nodes:
        return ReasonMeaning(f"a node that it needs is down, drained or reserved ({nodes})")
    return _WORDS["reqnodenotavail"]


def _not_permitted(found: re.Match[str]) -> ReasonMeaning:
    """Explain ``Job's account not permitted to use this partition (urgent allows proj2 not proj1)``, also for a QOS."""
    is_account = found["what"].lower() == "account"
    about = _ACCOUNT if is_account else _QOS
    rule = re.match(r"(\S+) (allows|denies) (\S+)", found["rule"] or "", re.I)
    if rule is None:
        return about
    allows, denies = ("is only for", "is closed to") if is_account else ("takes only the QOS", "does not take the QOS")
    verb = allows if rule[2].lower() == "allows" else denies
    return replace(about, summary=f"partition {rule[1]} {verb} {rule[3]}")


def _group(found: re.Match[str]) -> ReasonMeaning:
    return ReasonMeaning(
        f"partition {found['partition']} is only for members of {found['groups']}", _OTHER_PARTITION, True, "partition"
    )


def _sentence(found: re.Match[str]) -> ReasonMeaning:
    return ReasonMeaning(f"the burst buffer says “{found['said'].strip()}”", _SUPPORT)


_SENTENCES: tuple[tuple[str, ReasonMeaning | Callable[[re.Match[str]], ReasonMeaning]], ...] = (
    (
        r"ReqNodeNotAvail, *Reserved for maintenance",
        ReasonMeaning("the nodes that it could use are reserved for maintenance", _SHORTER),
    ),
    (
        r"ReqNodeNotAvail, *May be reserved for other job",
        ReasonMeaning("a node that it needs may be reserved for another job"),
    ),
    (r"ReqNodeNotAvail, *UnavailableNodes:(?P<nodes>[^|]*)", _unavailable),
    (
        r"Nodes required for job are DOWN, DRAINED or reserved",
        ReasonMeaning(
            "the nodes that it could use are kept for jobs with a higher priority, or are down or drained",
            _OTHER_PARTITION,
            topic="nodes",
        ),
    ),
    (r"Job's (?P<what>account|QOS) (?:not permitted|not known).*?(?:\((?P<rule>[^)]*)\)|$)", _not_permitted),
    (
        r"uid \d+ not in group permitted to use this partition \((?P<partition>\S*)\)\."
        r" *groups allowed: *(?P<groups>.*)",
        _group,
    ),
    (r"Reservation \S+ was deleted|RESERVATION DELETED", _RESERVATION_GONE),
    (r"Reservation \S+ is invalid", _WORDS["reservationinvalid"]),
    (r"Reservation \S+,.* has ended", _ran_before("was in a reservation that has ended")),
    (r"launch failure limit exceeded requeued held", _WORDS["jobholdmaxrequeue"]),
    (
        r"launch failed requeued held",
        ReasonMeaning(f"is held: it could not be started on its node, {_WAS_PUT_BACK}", _RELEASE),
    ),
    (
        r"user env retrieval failed requeued held",
        ReasonMeaning(f"is held: your start-up files did not run on its node, {_WAS_PUT_BACK}", _RELEASE),
    ),
    (
        r"job requeued in special exit state",
        ReasonMeaning("was put back into the queue in a special state, and is held", _RELEASE),
    ),
    (r"job requeued in held state", ReasonMeaning("was put back into the queue, and is held", _RELEASE)),
    (r"RaisedSignal:", _WORDS["raisedsignal"]),
    (
        r"Job is at or exceeds (?:QOS|association)",
        ReasonMeaning(
            "the time that your account or QOS may use is used up",
            "try another account (-A) or QOS (-q)",
            topic="limit",
        ),
    ),
    (r"(?:burst[_ ]buffer/\w+|Burst buffer)[: ]+(?P<said>.+)", _sentence),
)


# --- all of them ---------------------------------------------------------------------------------------------------


def parse_reason(reason: str) -> ReasonMeaning | None:
    """Return the explanation of a reason as squeue prints it; ``None`` for an unknown one."""
    text = reason.strip()
    if text.startswith("("):  # as in squeue's column NODELIST(REASON), which may be truncated
        text = text[1:].removesuffix(")").strip()
    for pattern, meaning in _SENTENCES:
        if found := re.match(pattern, text, re.I | re.S):
            return meaning if isinstance(meaning, ReasonMeaning) else meaning(found)
    word = re.split(r"[,:]", text)[0].strip()
    if word.lower() in _WORDS:
        return replace(_WORDS[word.lower()], word=word.lower())
    limit = limits.parse_limit_reason(word)
    if limit is None:
        return None
    return ReasonMeaning(limits.summary(limit), limits.action(limit), limits.is_for_one_job(limit), "limit", limit)
