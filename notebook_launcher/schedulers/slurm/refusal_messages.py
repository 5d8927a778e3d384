"""Why ``sbatch`` did not take a job: its words, what they mean, and what to type.

The texts are those of Slurm's table of errors and of sbatch itself, 22.05 to 25.05. Where sbatch prints several, as
``CPU count per node can not be satisfied`` before ``Requested node configuration is not available``, the one that tells
more comes first in the table.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from notebook_launcher.core.command_result import Answer
from notebook_launcher.core.errors import (
    AccountRefused,
    ClusterRefused,
    ConstraintRefused,
    DependencyRefused,
    GresRefused,
    LauncherError,
    LicenceRefused,
    LimitRefused,
    NoRoom,
    PartitionRefused,
    QosRefused,
    ReservationRefused,
    SchedulerAway,
    SchedulerMissing,
    SizeRefused,
    SubmitRefused,
    WalltimeRefused,
)
from notebook_launcher.core.text import joined
from notebook_launcher.schedulers.slurm import limit_reasons as slurm_limit_reasons


@dataclass(frozen=True)
class _Refusal:
    """One row: what sbatch's words look like, the error for it, what they mean, and what to type."""

    said: str
    kind: type[SubmitRefused]
    meaning: str
    mend: str


_ACCOUNTS = "yours are listed by: sacctmgr show assoc user=$USER format=account,partition,qos"
_PARTITIONS = "the partitions are listed by: sinfo -s"
_OTHER_PARTITION = f"choose another with -p; {_PARTITIONS}"
_QOS = "yours are listed by: sacctmgr show assoc user=$USER format=account,qos"
_GRES = "the kinds there are listed by: sinfo -o '%P %G'"
_LESS = "ask for less, or another partition; the nodes are listed by: sinfo -o '%P %c %m %G'"
_LICENCES = "the licences are listed by: scontrol show lic"
_RESERVATIONS = "reservations are listed by: scontrol show reservation"
_FLAG = "how it is written: sbatch --help"
_AGAIN = "try again in a minute"
_SUPPORT = "ask the cluster's support"

# The first match counts.
_REFUSALS = (
    # --- accounts
    _Refusal(
        r"Invalid account or account/partition",
        AccountRefused,
        "The account is not yours on this cluster, or may not use this partition.",
        f"name one of yours with -A; {_ACCOUNTS}",
    ),
    _Refusal(r"Invalid or unknown association", AccountRefused, "You have no account there.", _ACCOUNTS),
    _Refusal(
        r"Invalid (user|group) id|resolve (user|group) ID|Missing UNIX (user|group)",
        AccountRefused,
        "The scheduler's machine does not know you.",
        _SUPPORT,
    ),
    _Refusal(r"Invalid wckey", AccountRefused, "The key for --wckey is not yours.", "leave out --wckey"),
    _Refusal(
        r"Multiple partition job request not supported",
        PartitionRefused,
        "Your account may use one partition at a time.",
        "name one partition with -p",
    ),
    # --- partitions
    _Refusal(
        r"invalid partition specified|Invalid partition name",
        PartitionRefused,
        "There is no partition of that name.",
        _PARTITIONS,
    ),
    _Refusal(
        r"No partition specified or system default partition",
        PartitionRefused,
        "No partition was named, and there is none by default.",
        f"name one with -p; {_PARTITIONS}",
    ),
    _Refusal(
        r"User's group not permitted to use this partition",
        PartitionRefused,
        "You may not use this partition.",
        _OTHER_PARTITION,
    ),
    _Refusal(
        r"Required partition not available|Partition in DOWN state",
        PartitionRefused,
        "The partition is closed: it takes no jobs at the moment.",
        _OTHER_PARTITION,
    ),
    _Refusal(
        r"Requested partition configuration not available",
        PartitionRefused,
        "The partition does not take such a job: its size, its account or its QOS.",
        _OTHER_PARTITION,
    ),
    _Refusal(
        r"rebooting of nodes is only allowed for admins",
        SubmitRefused,
        "Only operators reboot nodes.",
        "leave out --reboot",
    ),
    _Refusal(
        r"Access/permission denied",
        PartitionRefused,
        "You may not use this partition, or not from this login node, or only in a reservation.",
        _OTHER_PARTITION,
    ),
    # --- QOS
    _Refusal(
        r"Invalid QOS specification, relative QOS",
        QosRefused,
        "The QOS is for one partition alone.",
        "name one with -p",
    ),
    _Refusal(r"Invalid qos", QosRefused, "The QOS does not exist or is not yours, or not for this partition.", _QOS),
    _Refusal(
        r"breached requested QOS usage threshold",
        QosRefused,
        "The account has used more than its share, and the QOS is not for those who have.",
        f"another QOS: -q; {_QOS}",
    ),
    # --- reservations
    _Refusal(
        r"Access denied to requested reservation",
        ReservationRefused,
        "The reservation is not for you or your account.",
        "ask the teacher, or leave out --reservation",
    ),
    _Refusal(
        r"Problem using reservation|Required nodes outside of the reservation",
        ReservationRefused,
        "The reservation does not have the nodes that are asked for.",
        f"leave out -w, or --reservation; {_RESERVATIONS}",
    ),
    _Refusal(
        r"Requested reservation (not usable|is in use)",
        ReservationRefused,
        "The reservation cannot be used now.",
        f"try again later, or leave out --reservation; {_RESERVATIONS}",
    ),
    _Refusal(
        r"maintenance reservation",
        ReservationRefused,
        "The nodes are reserved for maintenance, and it would not be done before.",
        f"ask for less with -t; {_RESERVATIONS}",
    ),
    _Refusal(
        r"reservation (is |requested )?(is )?invalid|Requested reservation is invalid",
        ReservationRefused,
        "There is no reservation of that name (or it is over).",
        "see: scontrol show reservation",
    ),
    # --- times
    _Refusal(
        r"Incompatible begin and deadline|Invalid --deadline",
        WalltimeRefused,
        "The deadline is before the begin time, or no time at all.",
        "another --deadline or -b, or none",
    ),
    _Refusal(r"Invalid --begin", WalltimeRefused, "That is no begin time.", "for example: -b 15:00, or -b now+2hours"),
    _Refusal(
        r"Invalid time-min specification|Invalid --time-min",
        WalltimeRefused,
        "The least walltime (--time-min) is longer than the walltime, or no walltime at all.",
        "leave out --time-min",
    ),
    _Refusal(
        r"Time limit specification required",
        WalltimeRefused,
        "A walltime has to be named there.",
        "for example: -t 1:00:00",
    ),
    _Refusal(r"Invalid --time specification", WalltimeRefused, "That is no walltime.", "for example: -t 2:00:00"),
    _Refusal(
        r"Requested time limit is invalid|time limit.*(invalid|exceeds)|Invalid time specified",
        WalltimeRefused,
        "The walltime is longer than is allowed there, or ends after its deadline.",
        "ask for less with -t, or a later --deadline; the limits are listed by: sinfo -o '%P %l'",
    ),
    # --- GPUs and other GRES
    _Refusal(
        r"did not request any GPU",
        GresRefused,
        "Something is asked for each GPU, and no GPU.",
        "ask for GPUs as well: --gpus 1",
    ),
    _Refusal(
        r"with and without type identification|Duplicate generic resource",
        GresRefused,
        "GPUs are asked for twice, with and without a type.",
        "ask once, for example: --gpus a100:1",
    ),
    _Refusal(
        r"Requested GRES option unsupported",
        GresRefused,
        "This cluster does not know this way to ask for GPUs.",
        "for example: --gres=gpu:1",
    ),
    _Refusal(
        r"RestrictedCoresPerGPU|Insufficient GRES", SizeRefused, "No node there has as many cores for each GPU.", _LESS
    ),
    _Refusal(
        r"Invalid generic resource|gres.*(invalid|unsupported)",
        GresRefused,
        "The cluster has no such GPU (or other GRES).",
        _GRES,
    ),
    _Refusal(
        r"Invalid Trackable RESource|Invalid TRES for",
        GresRefused,
        "The cluster has no such resource.",
        f"see: sinfo -o '%P %G'; {_FLAG}",
    ),
    # --- features and names of nodes
    _Refusal(
        r"Invalid (preferred )?feature|Multiple KNL|Invalid KNL",
        ConstraintRefused,
        "No node has the feature asked for with --constraint.",
        "the features are listed by: sinfo -o '%P %f'",
    ),
    _Refusal(
        r"Job --batch option is invalid",
        ConstraintRefused,
        "No node has the feature asked for with --batch.",
        "leave out --batch; the features are listed by: sinfo -o '%P %f'",
    ),
    _Refusal(
        r"Node feature requirements can not be satisfied",
        ConstraintRefused,
        "No node of the partition has all features asked for with --constraint.",
        "the features are listed by: sinfo -o '%P %f'",
    ),
    _Refusal(
        r"Invalid extra constraints", ConstraintRefused, "What --extra asks for is not understood.", "leave out --extra"
    ),
    _Refusal(
        r"Invalid node name|Invalid node list|Failure getting NodeNames|Invalid --nodefile",
        ConstraintRefused,
        "There is no node of that name.",
        "the nodes are listed by: sinfo -N -o '%N %P'",
    ),
    _Refusal(
        r"Required node not available",
        ConstraintRefused,
        "A node that is asked for with -w is down, drained or reserved.",
        "the states of nodes are listed by: sinfo -N -o '%N %P %T'",
    ),
    _Refusal(
        r"Requested nodes not in this partition",
        ConstraintRefused,
        "The nodes asked for with -w are not in this partition.",
        "the nodes are listed by: sinfo -N -o '%N %P'",
    ),
    # --- licences
    _Refusal(
        r"Invalid license", LicenceRefused, "The licence asked for with -L is not known, or there are fewer.", _LICENCES
    ),
    _Refusal(r"Licenses currently unavailable", LicenceRefused, "No licence of that kind is free.", _LICENCES),
    # --- sizes
    _Refusal(
        r"CPU count per node can ?not be satisfied|Invalid --cpus|CPU count specification invalid|"
        r"Socket, core and/or thread specification can ?not be satisfied|More processors requested than permitted|"
        r"Requested more tasks than available processors|Job size specification needs",
        SizeRefused,
        "No node there can ever give as many cores.",
        _LESS,
    ),
    _Refusal(
        r"Memory specification can ?not be satisfied|Memory required by task is not available",
        SizeRefused,
        "No node there can ever give as much memory.",
        _LESS,
    ),
    _Refusal(
        r"Temporary disk specification can ?not be satisfied",
        SizeRefused,
        "No node there can ever give as much temporary disk.",
        "ask for less with --tmp",
    ),
    _Refusal(
        r"node count specification invalid|not a valid node count|Maximum node count .* is less than",
        SizeRefused,
        "The partition takes no jobs of as many (or as few) nodes.",
        f"ask for less (or more) with -N; {_PARTITIONS}",
    ),
    _Refusal(
        r"Invalid job array specification",
        SizeRefused,
        "The array is larger than is allowed, or no array at all.",
        "a notebook needs no --array",
    ),
    _Refusal(
        r"Requested (node|topology) configuration is not available",
        SizeRefused,
        "No node of this partition can ever give what is asked for: its cores, memory, GPUs and features together.",
        _LESS,
    ),
    # --- limits
    _Refusal(
        r"Reached jobs per hour limit",
        LimitRefused,
        "You have queued as many jobs as you may in an hour.",
        "wait a while",
    ),
    _Refusal(
        r"Job violates accounting/QOS policy",
        LimitRefused,
        "A limit of your account or QOS does not allow this job now.",
        "ask for less, or end other jobs of yours: squeue --me",
    ),
    _Refusal(
        r"Burst Buffer resource limit exceeded",
        LimitRefused,
        "The burst buffer is not as large as asked for.",
        "ask for less with --bb",
    ),
    # --- dependencies
    _Refusal(
        r"Job dependency problem|Circular job dependency",
        DependencyRefused,
        "The job that it should wait for is not known or did not end as asked for, or there is no such dependency.",
        "your jobs are listed by: squeue --me; what --dependency takes is in sbatch's manual",
    ),
    # --- room
    _Refusal(
        r"Disk quota exceeded|No space left",
        NoRoom,
        "There is no room left on the cluster's disk for the job's files.",
        "make room in your home folder: quota -s",
    ),
    _Refusal(
        r"I/O error writing script/environment to file",
        NoRoom,
        "The scheduler could not write the job's files: its own disk may be full.",
        f"{_AGAIN}; if that does not help, {_SUPPORT}",
    ),
    # --- other clusters
    _Refusal(
        r"No cluster '|can't be reached now, or it is an invalid entry|Invalid cluster name",
        ClusterRefused,
        "There is no such cluster to send jobs to with -M.",
        "they are listed by: sacctmgr show clusters format=cluster",
    ),
    _Refusal(
        r"problem talking to (the )?database|No clusters can be reached now",
        ClusterRefused,
        "Other clusters cannot be reached: the database that knows them does not answer.",
        f"leave out -M, or {_AGAIN}",
    ),
    _Refusal(
        r"No eligible clusters for federated|Job locked by another sibling",
        ClusterRefused,
        "None of the clusters that share their work takes the job.",
        "ask for less, or name a cluster with -M",
    ),
    _Refusal(
        r"Invalid cluster feature", ClusterRefused, "No cluster has that feature.", "leave out --cluster-constraint"
    ),
    # --- a scheduler that does not answer, or not now
    _Refusal(
        r"Could not establish a configuration source|DNS SRV lookup failed|Unable to process configuration file",
        SchedulerAway,
        "sbatch does not find its cluster.",
        "is this the cluster's login node? name it with --host or in a profile",
    ),
    _Refusal(
        r"Unable to contact slurm controller|Socket timed out|Zero Bytes were transmitted|"
        r"Message (send|receive) failure|Communication (connection|shutdown) failure|"
        r"Connection (refused|timed out|reset)|Transport endpoint|standby mode|No route to host|"
        r"Insane message length|Header lengths are longer|Unexpected (message received|missing socket)|"
        r"Unable to connect to database",
        SchedulerAway,
        "The scheduler does not answer at the moment.",
        _AGAIN,
    ),
    _Refusal(
        r"Rate limit exceeded|Unable to create job record|temporarily (unable|disabled)|job queue full|"
        r"Resource temporarily unavailable",
        SchedulerAway,
        "The scheduler has too much to do at the moment.",
        _AGAIN,
    ),
    _Refusal(
        r"authentication (error|credential|agent)|Token Generation|auth_munge|munge (encode|decode)|Munged|"
        r"generating job credential",
        SchedulerAway,
        "The login node cannot prove to the scheduler who you are.",
        f"{_AGAIN}; if that does not help, {_SUPPORT}",
    ),
    _Refusal(
        r"Incompatible versions of client and server",
        SchedulerAway,
        "sbatch and the scheduler are of versions that do not go together.",
        _SUPPORT,
    ),
    # --- the rest that sbatch knows
    _Refusal(
        r"System submissions disabled|Requested operation is presently disabled",
        SubmitRefused,
        "The cluster takes no jobs at the moment.",
        "try again later; the message of the day, or the cluster's support, may tell until when",
    ),
    _Refusal(
        r"Unable to open file|Batch job script not specified|Job script not specified",
        SubmitRefused,
        "sbatch cannot read the job script.",
        "is the session's folder there? another place is named by session_root in the profile",
    ),
    _Refusal(
        r"Immediate execution impossible|Job can not start immediately|Requested nodes are busy",
        SubmitRefused,
        "It cannot start at once.",
        "leave out --immediate",
    ),
    _Refusal(
        r"Requested operation not supported|X11 forwarding not available|support is not configured|"
        r"not allowed by configuration|Burst Buffer (permission|request)|"
        r"does not permit arbitrary task|not available with current block layout|Preemption is required",
        SubmitRefused,
        "The cluster does not do what one of the flags asks for.",
        "leave it out",
    ),
    _Refusal(
        r"only permitted by root|must be root", SubmitRefused, "Only root may use one of the flags.", "leave it out"
    ),
    _Refusal(
        r"unrecognized option|invalid option|option .* is ambiguous",
        SubmitRefused,
        "sbatch does not know one of the flags.",
        _FLAG,
    ),
    _Refusal(
        r"mutually exclusive|Incompatible|is incompatible with|can not be bigger than",
        SubmitRefused,
        "Two of the flags do not go together.",
        "leave out one of them",
    ),
    _Refusal(
        r"Invalid (numeric value|--\S+|argument|-\w )|invalid number of|unrecognized --\S+ argument|is not valid|"
        r"Numeric argument|requires an argument|specification invalid|Pathname .* too long|"
        r"Invalid (mcs_label|container id)",
        SubmitRefused,
        "One of the flags has a value that it cannot have.",
        _FLAG,
    ),
    _Refusal(
        r"Unspecified error|cli_filter plugin terminated",
        SubmitRefused,
        "A rule of the site does not allow it.",
        f"if its words do not tell which, {_SUPPORT}",
    ),
    _Refusal(
        r"Slurm internal error|plugin type not|find plugin",
        SubmitRefused,
        "Something in Slurm itself went wrong.",
        _SUPPORT,
    ),
)

# After these it is not known whether the scheduler has taken the job: it was reached, and its answer was not heard.
_UNHEARD = re.compile(
    r"timed out|receive failure|\(shutdown failure\)|Zero Bytes were transmitted|Insane message|Header lengths", re.I
)
_NOT_REFUSED = (SchedulerAway, NoRoom, ClusterRefused)  # nobody has looked at the request


def explain(answer: Answer) -> LauncherError:
    """Return the error for what sbatch answered, with its words and what they mean.

    ``SubmitRefused`` itself for what is not known, ``SchedulerMissing`` where there is no sbatch.
    """
    if answer.exit_code == 127 or re.search(r"\bsbatch: command not found", answer.stderr):
        return SchedulerMissing(
            "sbatch is not found there.",
            why=answer.stderr.strip(),
            mend="is this the cluster's login node? name it with --host or in a profile",
        )
    said = _without_prefix(answer.stderr) or answer.stdout.strip() or f"exit code {answer.exit_code}, no message"
    why = f"sbatch: {said}"
    row = next((row for row in _REFUSALS if re.search(row.said, answer.stderr, re.I)), None)
    if row is None:
        return SubmitRefused("Slurm refused the job.", why=why, mend="the flags of sbatch: sbatch --help")
    meaning, mend = (_limit(answer.stderr) if row.kind is LimitRefused else None) or (row.meaning, row.mend)
    if row.kind is SchedulerAway and _UNHEARD.search(answer.stderr):
        return _unheard(meaning, why)
    opening = "The job was not queued." if row.kind in _NOT_REFUSED else "Slurm refused the job."
    return row.kind(f"{opening} {meaning}", why=why, mend=mend)


def _unheard(meaning: str, why: str) -> SchedulerAway:
    error = SchedulerAway(meaning, why=why, mend="look with: squeue --me   and try again if the job is not there soon")
    error.may_have_heard = True
    return error


def _limit(stderr: str) -> tuple[str, str] | None:
    """Return what the limit means that sbatch names in a line before (``AssocMaxSubmitJobLimit``), if it does."""
    for word in re.findall(r"^sbatch: error: (\w+)\s*$", stderr, re.M):
        limit = slurm_limit_reasons.read(word)
        if limit is not None:
            meaning = slurm_limit_reasons.summary(limit)
            shown = f"the limit is shown by: {slurm_limit_reasons.command(limit)}"
            return f"{meaning[0].upper()}{meaning[1:]}.", f"{_what_helps(limit)}; {shown}"
    return None


def _what_helps(limit: slurm_limit_reasons.LimitReason) -> str:
    if limit.resource in ("jobs", "submit"):
        return "end other jobs of yours: squeue --me" if limit.per == "user" else "wait until other jobs have ended"
    if slurm_limit_reasons.is_for_one_job(limit) or limit.per == "node":
        return slurm_limit_reasons.action(limit)
    return "ask for less, or another QOS: -q"  # it would be queued, and wait, were it only in use


def _without_prefix(stderr: str) -> str:
    return joined(*(re.sub(r"^sbatch: (error: |fatal: )?", "", line) for line in stderr.splitlines()), stop=";")
