"""sbatch's messages when it refuses a job, as patterns, with what they mean and what to type.

The messages are those of Slurm's error table and of sbatch itself, 22.05 to 26.05. Of messages that sbatch prints
together, such as ``CPU count per node can not be satisfied`` and ``Requested node configuration is not available``, the
more specific one comes first here.
"""

from __future__ import annotations

from notebook_launcher.core.errors import (
    AccountRefused,
    ClusterRefused,
    ConstraintRefused,
    DependencyRefused,
    GresRefused,
    LicenceRefused,
    LimitRefused,
    NoRoom,
    PartitionRefused,
    QosRefused,
    ReservationRefused,
    SchedulerAway,
    SizeRefused,
    SubmitRefused,
    WalltimeRefused,
)
from notebook_launcher.schedulers.refusals import RefusalMessage

_ACCOUNTS = "on the login node, list yours with: sacctmgr show assoc user=$USER format=account,partition,qos"
_PARTITIONS = "on the login node, list the partitions with: sinfo -s"
_OTHER_PARTITION = f"choose another with -p; {_PARTITIONS}"
_QOS = "on the login node, list yours with: sacctmgr show assoc user=$USER format=account,qos"
_GRES = "on the login node, list the GPUs and other GRES with: sinfo -o '%P %G'"
_LESS = "ask for less, or another partition; on the login node, list the nodes with: sinfo -o '%P %D %c %m %G'"
_LICENCES = "on the login node, list the licences with: scontrol show lic"
_RESERVATIONS = "on the login node, list reservations with: scontrol show reservation"
_FLAG = "see how it is written: sbatch --help"
_AGAIN = "try again in a minute"
_SUPPORT = "ask the cluster's support"

# The first match counts.
REFUSAL_MESSAGES = (
    # --- accounts
    RefusalMessage(
        r"Invalid account or account/partition",
        AccountRefused,
        "The account is not yours on this cluster, or may not use this partition.",
        f"name one of yours with -A; {_ACCOUNTS}",
    ),
    RefusalMessage(r"Invalid or unknown association", AccountRefused, "You have no account there.", _ACCOUNTS),
    RefusalMessage(
        r"Invalid (user|group) id|resolve (user|group) ID|Missing UNIX (user|group)",
        AccountRefused,
        "The scheduler's machine does not know you.",
        _SUPPORT,
    ),
    RefusalMessage(r"Invalid wckey", AccountRefused, "The key for --wckey is not yours.", "leave out --wckey"),
    RefusalMessage(
        r"Multiple partition job request not supported",
        PartitionRefused,
        "Your account may use one partition at a time.",
        "name one partition with -p",
    ),
    # --- partitions
    RefusalMessage(
        r"invalid partition specified|Invalid partition name",
        PartitionRefused,
        "There is no partition of that name.",
        _PARTITIONS,
    ),
    RefusalMessage(
        r"No partition specified or system default partition",
        PartitionRefused,
        "No partition was named, and there is none by default.",
        f"name one with -p; {_PARTITIONS}",
    ),
    RefusalMessage(
        r"User's group not permitted to use this partition",
        PartitionRefused,
        "You may not use this partition.",
        _OTHER_PARTITION,
    ),
    RefusalMessage(
        r"Required partition not available|Partition in DOWN state",
        PartitionRefused,
        "The partition is closed: it takes no jobs at the moment.",
        _OTHER_PARTITION,
    ),
    RefusalMessage(
        r"Requested partition configuration not available",
        PartitionRefused,
        "The partition does not take such a job: its size, its account or its QOS.",
        _OTHER_PARTITION,
    ),
    RefusalMessage(
        r"rebooting of nodes is only allowed for admins",
        SubmitRefused,
        "Only operators reboot nodes.",
        "leave out --reboot",
    ),
    RefusalMessage(
        r"Access/permission denied",
        PartitionRefused,
        "You may not use this partition, or not from this login node, or only in a reservation.",
        _OTHER_PARTITION,
    ),
    # --- QOS
    RefusalMessage(
        r"Invalid QOS specification, relative QOS",
        QosRefused,
        "The QOS is for one partition alone.",
        "name one with -p",
    ),
    RefusalMessage(
        r"Invalid qos", QosRefused, "The QOS does not exist or is not yours, or not for this partition.", _QOS
    ),
    RefusalMessage(
        r"breached requested QOS usage threshold",
        QosRefused,
        "The account has used more than its share, and the QOS is not for those who have.",
        f"try another QOS with -q; {_QOS}",
    ),
    # --- reservations
    RefusalMessage(
        r"Access denied to requested reservation",
        ReservationRefused,
        "The reservation is not for you or your account.",
        "ask the teacher, or leave out --reservation",
    ),
    RefusalMessage(
        r"Problem using reservation|Required nodes outside of the reservation",
        ReservationRefused,
        "The reservation does not have the nodes that are asked for.",
        f"leave out -w, or --reservation; {_RESERVATIONS}",
    ),
    RefusalMessage(
        r"Requested reservation (not usable|is in use)",
        ReservationRefused,
        "The reservation cannot be used now.",
        f"try again later, or leave out --reservation; {_RESERVATIONS}",
    ),
    RefusalMessage(
        r"maintenance reservation",
        ReservationRefused,
        "The nodes are reserved for maintenance, and it would not be done before.",
        f"ask for less with -t; {_RESERVATIONS}",
    ),
    RefusalMessage(
        r"reservation (is |requested )?(is )?invalid|Requested reservation is invalid",
        ReservationRefused,
        "There is no reservation of that name (or it is over).",
        "on the login node, list reservations with: scontrol show reservation",
    ),
    # --- times
    RefusalMessage(
        r"Incompatible begin and deadline|Invalid --deadline",
        WalltimeRefused,
        "The deadline is before the begin time, or is not a valid time.",
        "name another --deadline or -b, or leave them out",
    ),
    RefusalMessage(
        r"Invalid --begin", WalltimeRefused, "The begin time is not valid.", "for example: -b 15:00, or -b now+2hours"
    ),
    RefusalMessage(
        r"Invalid time-min specification|Invalid --time-min",
        WalltimeRefused,
        "The least walltime (--time-min) is longer than the walltime, or is not valid.",
        "leave out --time-min",
    ),
    RefusalMessage(
        r"Time limit specification required",
        WalltimeRefused,
        "A walltime has to be named there.",
        "for example: -t 1:00:00",
    ),
    RefusalMessage(
        r"Invalid --time specification", WalltimeRefused, "The walltime is not valid.", "for example: -t 2:00:00"
    ),
    RefusalMessage(
        r"Requested time limit is invalid|time limit.*(invalid|exceeds)|Invalid time specified",
        WalltimeRefused,
        "The walltime is longer than is allowed there, or ends after its deadline.",
        "ask for less with -t, or a later --deadline; on the login node, list the limits with: sinfo -o '%P %l'",
    ),
    # --- GPUs and other GRES
    RefusalMessage(
        r"did not request any GPU",
        GresRefused,
        "A flag counts by GPU, but the job asks for no GPU.",
        "ask for GPUs as well: --gpus 1",
    ),
    RefusalMessage(
        r"with and without type identification|Duplicate generic resource",
        GresRefused,
        "GPUs are asked for twice, with and without a type.",
        "ask once, for example: --gpus a100:1",
    ),
    RefusalMessage(
        r"Requested GRES option unsupported",
        GresRefused,
        "This cluster does not know this way to ask for GPUs.",
        "for example: --gres=gpu:1",
    ),
    RefusalMessage(
        r"RestrictedCoresPerGPU|Insufficient GRES",
        SizeRefused,
        "No node there has that many cores for each GPU.",
        _LESS,
    ),
    RefusalMessage(
        r"Invalid generic resource|gres.*(invalid|unsupported)",
        GresRefused,
        "The cluster has no such GPU (or other GRES).",
        _GRES,
    ),
    RefusalMessage(
        r"Invalid Trackable RESource|Invalid TRES for",
        GresRefused,
        "The cluster has no such resource.",
        f"on the login node, list the GPUs and other GRES with: sinfo -o '%P %G'; {_FLAG}",
    ),
    # --- features and names of nodes
    RefusalMessage(
        r"Invalid (preferred )?feature|Multiple KNL|Invalid KNL",
        ConstraintRefused,
        "No node has the feature asked for with --constraint.",
        "on the login node, list the features with: sinfo -o '%P %f'",
    ),
    RefusalMessage(
        r"Job --batch option is invalid",
        ConstraintRefused,
        "No node has the feature asked for with --batch.",
        "leave out --batch; on the login node, list the features with: sinfo -o '%P %f'",
    ),
    RefusalMessage(
        r"Node feature requirements can not be satisfied",
        ConstraintRefused,
        "No node of the partition has all features asked for with --constraint.",
        "on the login node, list the features with: sinfo -o '%P %f'",
    ),
    RefusalMessage(
        r"Invalid extra constraints", ConstraintRefused, "What --extra asks for is not understood.", "leave out --extra"
    ),
    RefusalMessage(
        r"Invalid node name|Invalid node list|Failure getting NodeNames|Invalid --nodefile",
        ConstraintRefused,
        "There is no node of that name.",
        "on the login node, list the nodes with: sinfo -N -o '%N %P'",
    ),
    RefusalMessage(
        r"Required node not available",
        ConstraintRefused,
        "A node that is asked for with -w is down, drained or reserved.",
        "on the login node, list the states of nodes with: sinfo -N -o '%N %P %T'",
    ),
    RefusalMessage(
        r"Required nodes (lack available resources|do not fit topology)",
        ConstraintRefused,
        "The nodes requested with -w lack what the job requests, or do not fit the cluster's topology.",
        "leave out -w, or ask for less",
    ),
    RefusalMessage(
        r"Requested nodes not in this partition",
        ConstraintRefused,
        "The nodes asked for with -w are not in this partition.",
        "on the login node, list the nodes with: sinfo -N -o '%N %P'",
    ),
    # --- licences
    RefusalMessage(
        r"Invalid license",
        LicenceRefused,
        "The cluster does not have the licence named with -L, or not that many.",
        _LICENCES,
    ),
    RefusalMessage(r"Licenses currently unavailable", LicenceRefused, "No licence of that kind is free.", _LICENCES),
    # --- sizes
    RefusalMessage(
        r"CPU count per node can ?not be satisfied|Invalid --cpus|CPU count specification invalid|"
        r"Socket, core and/or thread specification can ?not be satisfied|More processors requested than permitted|"
        r"Requested more tasks than available processors|Job size specification needs",
        SizeRefused,
        "No node there has that many cores.",
        _LESS,
    ),
    RefusalMessage(
        r"Memory specification can ?not be satisfied|Memory required by task is not available",
        SizeRefused,
        "No node there has that much memory.",
        _LESS,
    ),
    RefusalMessage(
        r"Temporary disk specification can ?not be satisfied",
        SizeRefused,
        "No node there has that much temporary disk.",
        "ask for less with --tmp",
    ),
    RefusalMessage(
        r"node count specification invalid|not a valid node count|Maximum node count .* is less than",
        SizeRefused,
        "The partition takes no jobs with that many (or that few) nodes.",
        f"ask for less (or more) with -N; {_PARTITIONS}",
    ),
    RefusalMessage(
        r"Invalid job array specification",
        SizeRefused,
        "The array is larger than is allowed, or is not valid.",
        "see the largest that is allowed with: scontrol show config | grep MaxArraySize",
    ),
    RefusalMessage(
        r"Requested (node|topology) configuration is not available|topology unit|No available nodes in topology|"
        r"Exceeded maximum node limit during topology allocation",
        SizeRefused,
        "The partition does not have that many nodes, or none with these cores, memory, GPUs and features.",
        _LESS,
    ),
    # --- limits
    RefusalMessage(
        r"Reached jobs per hour limit",
        LimitRefused,
        "You have queued as many jobs as you may in an hour.",
        "wait a while",
    ),
    RefusalMessage(
        r"Job violates accounting/QOS policy",
        LimitRefused,
        "A limit of your account or QOS does not allow this job now.",
        "ask for less, or end other jobs of yours: squeue --me",
    ),
    RefusalMessage(
        r"Burst Buffer resource limit exceeded",
        LimitRefused,
        "The burst buffer is not as large as asked for.",
        "ask for less with --bb",
    ),
    # --- dependencies
    RefusalMessage(
        r"Job dependency problem|Circular job dependency",
        DependencyRefused,
        "The job that it should wait for is not known or did not end as required, or there is no such dependency.",
        "list your jobs with: squeue --me; what --dependency takes is in sbatch's manual",
    ),
    # --- disk space
    RefusalMessage(
        r"Disk quota exceeded|No space left",
        NoRoom,
        "There is no room left on the cluster's disk for the job's files.",
        "make room in your home folder: quota -s",
    ),
    RefusalMessage(
        r"I/O error writing script/environment to file",
        NoRoom,
        "The scheduler could not write the job's files: its own disk may be full.",
        f"{_AGAIN}; if that does not help, {_SUPPORT}",
    ),
    # --- other clusters
    RefusalMessage(
        r"No cluster '|can't be reached now, or it is an invalid entry|Invalid cluster name",
        ClusterRefused,
        "There is no such cluster to send jobs to with -M.",
        "on the login node, list them with: sacctmgr show clusters format=cluster",
    ),
    RefusalMessage(
        r"problem talking to (the )?database|No clusters can be reached now",
        ClusterRefused,
        "Other clusters cannot be reached: the database that knows them does not answer.",
        f"leave out -M, or {_AGAIN}",
    ),
    RefusalMessage(
        r"No eligible clusters for federated|Job locked by another sibling",
        ClusterRefused,
        "None of the clusters that share their work takes the job.",
        "ask for less, or name a cluster with -M",
    ),
    RefusalMessage(
        r"Invalid cluster feature", ClusterRefused, "No cluster has that feature.", "leave out --cluster-constraint"
    ),
    # --- a scheduler that is down or busy
    RefusalMessage(
        r"Could not establish a configuration source|DNS SRV lookup failed|Unable to process configuration file",
        SchedulerAway,
        "sbatch does not find its cluster.",
        "check that this is the cluster's login node; name another one with --host or in a profile",
    ),
    RefusalMessage(
        r"Unable to contact slurm controller|Socket timed out|Zero Bytes were transmitted|"
        r"Message (send|receive) failure|Communication (connection|shutdown) failure|"
        r"Connection (refused|timed out|reset)|Transport endpoint|standby mode|No route to host|"
        r"Insane message length|Header lengths are longer|Unexpected (message received|missing socket)|"
        r"Unable to connect to database",
        SchedulerAway,
        "The scheduler does not answer at the moment.",
        _AGAIN,
    ),
    RefusalMessage(
        r"Rate limit exceeded|Unable to create job record|temporarily (unable|disabled)|job queue full|"
        r"MaxJobCount limit reached|"
        r"Resource temporarily unavailable",
        SchedulerAway,
        "The scheduler is too busy at the moment.",
        _AGAIN,
    ),
    RefusalMessage(
        r"authentication (error|credential|agent)|Token Generation|auth_munge|munge (encode|decode)|Munged|"
        r"generating job credential",
        SchedulerAway,
        "The login node cannot prove to the scheduler who you are.",
        f"{_AGAIN}; if that does not help, {_SUPPORT}",
    ),
    RefusalMessage(
        r"Incompatible versions of client and server",
        SchedulerAway,
        "sbatch and the scheduler have incompatible versions.",
        _SUPPORT,
    ),
    # --- all other messages of sbatch
    RefusalMessage(
        r"System submissions disabled|Requested operation is presently disabled",
        SubmitRefused,
        "The cluster takes no jobs at the moment.",
        "try again later; the message of the day, or the cluster's support, may tell until when",
    ),
    RefusalMessage(
        r"Unable to open file|Batch job script not specified|Job script not specified",
        SubmitRefused,
        "sbatch cannot read the job script.",
        "check that the session's folder exists; session_root in the profile names another place",
    ),
    RefusalMessage(
        r"Immediate execution impossible|Job can not start immediately|Requested nodes are busy",
        SubmitRefused,
        "It cannot start at once.",
        "leave out --immediate",
    ),
    RefusalMessage(
        r"Requested operation not supported|X11 forwarding not available|support is not configured|"
        r"not allowed by configuration|Burst Buffer (permission|request)|"
        r"does not permit arbitrary task|not available with current block layout|Preemption is required",
        SubmitRefused,
        "The cluster does not do what one of the flags asks for.",
        "leave it out",
    ),
    RefusalMessage(
        r"only permitted by root|must be root", SubmitRefused, "Only root may use one of the flags.", "leave it out"
    ),
    RefusalMessage(
        r"unrecognized option|invalid option|option .* is ambiguous",
        SubmitRefused,
        "sbatch does not know one of the flags.",
        _FLAG,
    ),
    RefusalMessage(
        r"mutually exclusive|Incompatible|is incompatible with|can not be bigger than",
        SubmitRefused,
        "Two of the flags do not go together.",
        "leave out one of them",
    ),
    RefusalMessage(
        r"Invalid (numeric value|--\S+|argument|-\w )|invalid number of|unrecognized --\S+ argument|is not valid|"
        r"Numeric argument|requires an argument|specification invalid|Pathname .* too long|"
        r"Invalid (mcs_label|container id)",
        SubmitRefused,
        "One of the flags has a value that it cannot have.",
        _FLAG,
    ),
    RefusalMessage(
        r"Unspecified error|cli_filter plugin terminated",
        SubmitRefused,
        "A rule of the site does not allow it.",
        f"if its message does not say which, {_SUPPORT}",
    ),
    RefusalMessage(
        r"Slurm internal error|plugin type not|find plugin",
        SubmitRefused,
        "Slurm itself failed.",
        _SUPPORT,
    ),
)
