"""A stand-in for LSF's commands: runs jobs on this machine, which is its only host.

    LSF_STAND_IN=FOLDER python3 -m tests.lsf_stand_in bsub … COMMAND

Real: the command runs with the variables that LSF sets, and is ended with SIGINT by ``bkill``, and with SIGUSR2 at its
run limit; jobs wait for free slots; a job's output is written to its log at its end, after LSF's report. Messages and
codes are as recorded; tables without a recording are as in LSF's manual. Not real: only the queue's limit is enforced,
and there is one host, without GPUs.
"""

from __future__ import annotations

import getpass
import os
import re
import signal
import sys
import time
from pathlib import Path

from tests.stand_in_jobs import CORES, NODE, Job, Jobs, wrapped

LONGEST_WALLTIME = 24 * 3600
STATES = {"held": "PSUSP", "waiting": "PEND", "running": "RUN"}
WITHOUT_VALUE = ("-x", "-H", "-r", "-B", "-N")
SCHEDULING = "\n SCHEDULING PARAMETERS:\n           r15s   r1m  r15m   ut      pg    io   ls    it    tmp    swp    mem"


def jobs() -> Jobs:
    return Jobs(Path(os.environ["LSF_STAND_IN"]), "lsf")


def bsub(words: list[str]) -> int:
    if words == ["-V"]:
        print("IBM Spectrum LSF 10.1.0.0 (a stand-in)", file=sys.stderr)
        return 0
    flags, options = list(words), dict[str, str]()
    while flags and flags[0].startswith("-"):
        flag = flags.pop(0)
        options[flag] = "" if flag in WITHOUT_VALUE else flags.pop(0)
    queue = options.get("-q", "normal")
    if queue != "normal":
        return refused(f"{queue}: No such queue")
    hours, minutes = options["-W"].split(":")
    cores, seconds = int(options.get("-n", "1")), (int(hours) * 60 + int(minutes)) * 60
    if seconds > LONGEST_WALLTIME:
        return refused(f"{queue}: RUNLIMIT: Cannot exceed queue's hard limit(s)")
    if cores > CORES:
        return refused("Too many processors requested")
    if "-gpu" in options:
        return refused("Bad GPU requirement syntax")
    text = " ".join(flags)
    job = Job("", options["-J"], getpass.getuser(), queue, cores, seconds, options["-o"], ["/bin/sh", "-c", text], text)
    job.account, job.held = options.get("-P", "default"), "-H" in options
    jobs().add(job)
    print(f"Job <{job.number}> is submitted to queue <{queue}>.")
    return 0


def refused(why: str) -> int:
    print(f"{why}. Job not submitted.", file=sys.stderr)
    return 255


def run(words: list[str]) -> int:
    number = words[0]
    job = jobs().all()[number]
    own = {"LSB_JOBID": number, "LSB_JOBINDEX": "0", "LSB_JOBNAME": job.name, "LSB_QUEUE": job.queue}
    own |= {"LSB_HOSTS": " ".join([NODE] * job.cores), "LSB_MCPU_HOSTS": f"{NODE} {job.cores}"}
    own |= {"LSB_DJOB_NUMPROC": str(job.cores), "LS_SUBCWD": str(Path.cwd())}
    printed = Path(os.environ["LSF_STAND_IN"]) / f"{number}.out"
    ended = jobs().run(number, printed, own, signal.SIGUSR2)
    with Path(job.log.replace("%J", number)).open("a") as log:
        log.write(f"Sender: LSF System <lsf@{NODE}>\nSubject: Job {number}: <{job.name}> in cluster <stand-in> "
                  f"{'Exited' if ended.code else 'Done'}\n\nThe output (if any) follows:\n\n")  # fmt: skip
        log.write(f"{printed.read_text(errors='replace')}\n")
    return 0


def bkill(words: list[str]) -> int:
    code = 0
    for number in words:
        job = jobs().all().get(number)
        if job is None or job.state == "ended":
            why = "No matching job found" if job is None else "Job has already finished"
            print(f"Job <{number}>: {why}", file=sys.stderr)
            code = 255
            continue
        jobs().cancel(number, signal.SIGINT)
        print(f"Job <{number}> is being terminated")
    return code


# --- what is asked ---------------------------------------------------------------------------------------------------


def exit_code(job: Job) -> int:
    return 130 if job.code is None else 128 - job.code if job.code < 0 else job.code


def stat(job: Job) -> str:
    return STATES.get(job.state) or ("EXIT" if exit_code(job) else "DONE")


def fields(job: Job) -> dict[str, str]:
    began, ended = job.began, job.ended
    limit = None if began is None else began + job.seconds
    return {
        "jobid": job.number,
        "stat": stat(job),
        "user": job.user,
        "queue": job.queue,
        "job_name": job.name,
        "command": job.arguments,
        "proj_name": job.account,
        "nreq_slot": str(job.cores),
        "exec_host": "-" if began is None else NODE if job.cores == 1 else f"{job.cores}*{NODE}",
        "start_time": "-" if began is None else at_minute(began),
        "estimated_start_time": "-" if (start := jobs().estimate(job.number)) is None else at_minute(start),
        "finish_time": "-" if limit is None else f"{at_minute(limit)} L" if ended is None else at_minute(ended),
        "runtimelimit": f"{job.seconds / 60:.1f}",
        "exit_code": "-" if stat(job) != "EXIT" else str(exit_code(job)),
        "exit_reason": "-" if job.state != "ended" else why_ended(job) or "-",
        "pend_reason": reason(job),
    }


def why_ended(job: Job) -> str:
    if job.cancelled:
        return "TERM_OWNER: job killed by owner"
    return "TERM_RUNLIMIT: job killed after reaching LSF run time limit" if job.overran else ""


def reason(job: Job) -> str:
    if job.state == "held":
        return "The job was suspended by the user while pending;"
    return "Job slot limit reached: 1 host;" if job.state == "waiting" else "-"


def at_minute(at: float) -> str:
    return time.strftime("%b %e %H:%M", time.localtime(at))


def at_second(at: float) -> str:
    return time.strftime("%a %b %e %H:%M:%S %Y", time.localtime(at))


def bjobs(words: list[str]) -> int:
    """Answer ``bjobs [-noheader -o FORMAT] [-a] [-p] [-u all] [JOB...]``."""
    what = words[words.index("-o") + 1] if "-o" in words else ""
    apart = re.search(r'delimiter="(.)"', what)
    names = what.partition("delimiter")[0].split()
    wanted, there, code = [word for word in words if word.isdecimal()], jobs().all(), 0
    for number in wanted:
        if number not in there:
            print(f"Job <{number}> is not found", file=sys.stderr)
            code = 255
    shown = [there[number] for number in wanted if number in there]
    if not wanted:
        states = ("held", "waiting") if "-p" in words else ("held", "waiting", "running")
        shown = [job for job in there.values() if "-a" in words or job.state in states]
        if not shown:
            print("No unfinished job found", file=sys.stderr)
    for job in shown:
        print((apart[1] if apart else " ").join(fields(job)[name] for name in names))
    return code


def head(job: Job, more: str) -> str:
    who = f"Job <{job.number}>, Job Name <{job.name}>, User <{job.user}>, Project <{job.account}>"
    return folded(f"{who}, {more}Command <{job.arguments}>", 21)


def folded(line: str, indent: int) -> str:
    return wrapped(line, " " * indent, 80, 80 - indent)


def one(words: list[str]) -> Job | None:
    """Return the job of ``-l JOB``; if there is none, print that."""
    job = jobs().all().get(words[-1])
    if job is None:
        print(f"Job <{words[-1]}>: No matching job found", file=sys.stderr)
    return job


def bhist(words: list[str]) -> int:
    if (job := one(words)) is None:
        return 255
    lines = ["", head(job, "")]
    lines.append(folded(f"{at_second(job.submitted)}: Submitted from host <{NODE}>, to Queue <{job.queue}>;", 21))
    if job.began is not None:
        lines.append(f"{at_second(job.began)}: Dispatched {job.cores} Task(s) on Host(s) <{NODE}>;")
    if job.ended is not None:
        code = exit_code(job)
        how = f"Exited with exit code {code}. {why_ended(job)}".strip() if code else "Done successfully"
        lines.append(folded(f"{at_second(job.ended)}: {how}. The CPU time used is {job.cpu:.1f} seconds;", 21))
    print(*lines, "", sep="\n")
    return 0


def bacct(words: list[str]) -> int:
    job = one(words)
    if job is None or job.ended is None:
        return 255
    lines = ["", "Accounting information about jobs that are:", "  - submitted by all users.", "-" * 78, ""]
    lines.append(head(job, f"Status <{stat(job)}>, Queue <{job.queue}>, "))
    lines.append(f"{at_second(job.submitted)}: Submitted from host <{NODE}>, CWD <$HOME>;")
    lines += ["", " RUNLIMIT", f" {job.seconds / 60:.1f} min of {NODE}"]
    if job.began is not None:
        where = f"<{job.cores}*{NODE}>"
        text = f"{at_second(job.began)}: Dispatched {job.cores} Task(s) on Host(s) {where}, Allocated {job.cores} Slot(s) on Host(s) {where}, Effective RES_REQ <select[type == any] >;"  # fmt: skip # noqa: E501
        lines.append(folded(text, 26))
    how = "exit" if exit_code(job) else "done"
    lines.append(folded(f"{at_second(job.ended)}: Completed <{how}>; {why_ended(job)}.", 26))
    waited, whole = int((job.began or job.ended) - job.submitted), int(job.ended - job.submitted)
    lines += ["", "Accounting information about this job:", "     Share group charged </all>",
              "     CPU_T     WAIT     TURNAROUND   STATUS     HOG_FACTOR    MEM    SWAP",
              f"{job.cpu:10.2f} {waited:8d} {whole:14d} {how:>8}         0.0100 {job.memory // 1024:5d}M      0M",
              "-" * 78, "", "SUMMARY:      ( time unit: second )"]  # fmt: skip
    print(*lines, sep="\n")
    return 0


def bqueues(_words: list[str]) -> int:
    there = jobs().all().values()
    waits, runs = (sum(job.cores for job in there if job.state in states) for states in (("waiting",), ("running",)))
    print(f"""
QUEUE: normal
  -- For normal jobs. This is the default queue.

PARAMETERS/STATISTICS
PRIO NICE STATUS          MAX JL/U JL/P JL/H NJOBS  PEND   RUN SSUSP USUSP  RSV PJOBS
 30    0  Open:Active       -    -    -    - {waits + runs:5} {waits:5} {runs:5}     0     0    0     0
Interval for a host to accept two jobs is 0 seconds

 RUNLIMIT
 {LONGEST_WALLTIME / 60:.1f} min of {NODE}
{SCHEDULING}

USERS:  all users
HOSTS:  all
""")
    return 0


def bhosts(words: list[str]) -> int:
    if "-gpu" in words:
        print("No GPU hosts found", file=sys.stderr)
        return 255
    runs = [job.cores for job in jobs().all().values() if job.state == "running"]
    status = "closed_Full" if sum(runs) >= CORES else "ok"
    print("HOST_NAME          STATUS       JL/U    MAX  NJOBS    RUN  SSUSP  USUSP    RSV")
    print(f"{NODE:18} {status:14} - {CORES:6} {sum(runs):6} {sum(runs):6}      0      0      0")
    return 0


def bmgroup(_words: list[str]) -> int:
    print("No host group found", file=sys.stderr)
    return 255


COMMANDS = {"bsub": bsub, "bjobs": bjobs, "bkill": bkill, "bhist": bhist, "bacct": bacct, "bqueues": bqueues,
            "bhosts": bhosts, "bmgroup": bmgroup}  # fmt: skip

if __name__ == "__main__":
    sys.exit((COMMANDS | {"run": run})[sys.argv[1]](sys.argv[2:]))
