"""A stand-in for PBS's commands: runs jobs on this machine, which is its only host.

    PBS_STAND_IN=FOLDER python3 -m tests.pbs_stand_in qsub … -- COMMAND...

Real: the command runs with the variables that PBS sets, and is ended with SIGTERM by ``qdel`` or at its walltime; jobs
wait for free cores; states, exit codes, messages and the tables of jobs, queues and hosts are as recorded from OpenPBS.
Not real: only the queue's limit is enforced, and there is one host, without GPUs.
"""

from __future__ import annotations

import getpass
import os
import re
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

from tests.stand_in_jobs import CORES, NODE, Job, Jobs, hours, wrapped

SERVER = "stand-in"
LONGEST_WALLTIME = 24 * 3600
LETTERS = {"held": "H", "waiting": "Q", "running": "R", "ended": "F"}


def jobs() -> Jobs:
    return Jobs(Path(os.environ["PBS_STAND_IN"]), "pbs")


def qsub(words: list[str]) -> int:
    flags, command = words[: words.index("--")], words[words.index("--") + 1 :]
    options: dict[str, list[str]] = {}
    while flags:
        flag = flags.pop(0)
        options.setdefault(flag, []).append("" if flag in ("-h", "-z") else flags.pop(0))
    if options.get("-q", ["workq"])[0] != "workq":
        print("qsub: Unknown queue", file=sys.stderr)
        return 170
    resources = dict(one.split("=", 1) for one in options.get("-l", []))
    if "ngpus" in (chunk := resources.get("select", "1:ncpus=1")):
        print("qsub: Unknown resource: ngpus", file=sys.stderr)
        return 187
    span = [int(part) for part in resources["walltime"].split(":")]
    seconds = sum(part * unit for part, unit in zip(reversed(span), (1, 60, 3600), strict=False))
    if seconds > LONGEST_WALLTIME:
        print("qsub: Job violates queue and/or server resource limits", file=sys.stderr)
        return 188
    cores = int(re.findall(r"ncpus=(\d+)", chunk)[0])
    log = options["-o"][0]
    job = Job("", options["-N"][0], getpass.getuser(), "workq", cores, seconds, log, command, " ".join(words))
    job.account, job.held = options.get("-A", [""])[0], "-h" in options
    jobs().add(job)
    print(f"{job.number}.{SERVER}")
    return 0


def run(words: list[str]) -> int:
    number = words[0]
    own = {"PBS_JOBID": f"{number}.{SERVER}", "PBS_ENVIRONMENT": "PBS_BATCH", "PBS_QUEUE": "workq"}
    own["NCPUS"] = str(jobs().all()[number].cores)
    jobs().run(number, Path(jobs().all()[number].log), own, signal.SIGTERM)
    return 0


def qstat(words: list[str]) -> int:
    if "--version" in words:
        print("pbs_version = 23.06.06")
        return 0
    if "-Q" in words:
        return queues()
    if "-B" in words:
        print(f"Server: {SERVER}\n    server_state = Active\n    default_queue = workq\n    query_other_jobs = True\n")
        return 0
    if "-i" in words:
        return waiting()
    code, past, there = 0, "-x" in words, jobs().all()
    for name in [word for word in words if not word.startswith("-")]:
        number = name.partition(".")[0]
        job = there.get(number)
        if job is None:
            print(f"qstat: Unknown Job Id {number}.{SERVER}", file=sys.stderr)
            code = 153
        elif job.state == "ended" and not past:
            text = f"qstat: {number}.{SERVER} Job has finished, use -x or -H to obtain historical job information"
            print(text, file=sys.stderr)
            code = 35
        else:
            lines = [wrapped(f"    {key} = {value}", "\t", 79, 70) for key, value in attributes(job).items()]
            print(f"Job Id: {number}.{SERVER}", *lines, f"    Submit_Host = {SERVER}\n", sep="\n")
    return code


def attributes(job: Job) -> dict[str, str]:
    found = {
        "Job_Name": job.name,
        "Job_Owner": f"{job.user}@{SERVER}",
        "job_state": LETTERS[job.state],
        "queue": job.queue,
        "server": SERVER,
        "Hold_Types": "u" if job.held else "n",
        "Output_Path": f"{SERVER}:{job.log}",
        "qtime": moment(job.submitted),
        "Resource_List.ncpus": str(job.cores),
        "Resource_List.nodect": "1",
        "Resource_List.select": f"1:ncpus={job.cores}",
        "Resource_List.walltime": hours(job.seconds),
        "Submit_arguments": job.arguments,
    }
    if job.account:
        found["Account_Name"] = job.account
    if job.began is not None:
        found |= {"exec_host": f"{NODE}/0*{job.cores}", "stime": moment(job.began)}
    if job.pid is not None:
        found["session_id"] = str(job.pid)
    if job.state == "waiting":
        free = CORES - sum(one.cores for one in jobs().all().values() if one.state == "running")
        short = f"ncpus (R: {job.cores} A: {free} T: {CORES})"
        why = "Not Running" if job.cores <= CORES else "Can Never Run"
        found["comment"] = f"{why}: Insufficient amount of resource: {short}"
        if (start := jobs().estimate(job.number)) is not None:
            found |= {"estimated.exec_vnode": f"({NODE}:ncpus={job.cores})", "estimated.start_time": moment(start)}
    return found | (ending(job) if job.state == "ended" else {})


def ending(job: Job) -> dict[str, str]:
    if job.began is None or job.code is None or job.ended is None:
        return {"substate": "91", "comment": "Not Running: held and terminated"}
    code = -29 if job.overran else 256 - job.code if job.code < 0 else job.code
    how = f"terminated by {job.user}@{SERVER}" if job.cancelled else "failed" if code else "finished"
    return {
        "Exit_status": str(code),
        "substate": "91" if job.cancelled else "93" if code else "92",
        "comment": f"Job run at Fri Nov 20 at 23:30 on ({NODE}:ncpus={job.cores}) and {how}",
        "resources_used.cput": hours(job.cpu),
        "resources_used.mem": f"{job.memory}kb",
        "resources_used.walltime": hours(job.ended - job.began),
        "resources_used.ncpus": str(job.cores),
    }


def moment(at: float) -> str:
    return time.strftime("%a %b %d %H:%M:%S %Y", time.localtime(at))


def queues() -> int:
    there = jobs().all().values()
    counts = {letter: sum(1 for job in there if LETTERS[job.state] == letter) for letter in "QHR"}
    counted = "Transit:0 Queued:{Q} Held:{H} Waiting:0 Running:{R} Exiting:0 Begun:0 ".format(**counts)
    print("Queue: workq\n    queue_type = Execution")
    print(f"    total_jobs = {sum(counts.values())}")
    print(wrapped(f"    state_count = {counted}", "\t", 79, 70))
    print(f"    resources_max.walltime = {hours(LONGEST_WALLTIME)}\n    enabled = True\n    started = True\n")
    return 0


def waiting() -> int:
    shown = [job for job in jobs().all().values() if job.state in ("held", "waiting")]
    if shown:
        print(f"\n{SERVER}: ")
        print(f"{'':95}    Req'd  Req'd   Elap".rstrip())
        print("Job ID                         Username        Queue           Jobname         SessID   NDS  TSK   "
              "Memory Time  S Time")  # fmt: skip
        print("-" * 30, *["-" * 15] * 3, "-" * 8, "----", "-----", "-" * 6, "-----", "-", "-----")
    for job in shown:
        print(f"{f'{job.number}.{SERVER}':30} {job.user:15.15} {job.queue:15} {job.name:15.15} {'--':>8} {1:4} "
              f"{job.cores:5} {'--':>6} {hours(job.seconds)[:5]} {LETTERS[job.state]}   -- ")  # fmt: skip
    return 0


def pbsnodes(_words: list[str]) -> int:
    runs = [job for job in jobs().all().values() if job.state == "running"]
    used = sum(job.cores for job in runs)
    lines = ["Mom = " + NODE, "ntype = PBS", f"state = {'job-busy' if used >= CORES else 'free'}", f"pcpus = {CORES}"]
    if runs:
        cores = [f"{job.number}.{SERVER}/{core}" for job in runs for core in range(job.cores)]
        lines.append(f"jobs = {', '.join(cores)}")
    lines += ["resources_available.arch = linux", f"resources_available.host = {NODE}",
              "resources_available.mem = 24684100kb", f"resources_available.ncpus = {CORES}",
              f"resources_available.vnode = {NODE}", f"resources_assigned.ncpus = {used}",
              "resv_enable = True", "sharing = default_shared", "license = l"]  # fmt: skip
    print(NODE, *(f"     {line}" for line in lines), "", sep="\n")
    return 0


def qdel(words: list[str]) -> int:
    for number in (word.partition(".")[0] for word in words):
        job = jobs().all().get(number)
        if job is None or job.state == "ended":
            what = "Unknown Job Id" if job is None else "Job has finished"
            print(f"qdel: {what} {number}.{SERVER}", file=sys.stderr)
            return 153 if job is None else 35
        jobs().cancel(number, signal.SIGTERM)
    return 0


def qselect(_words: list[str]) -> int:
    print(*(f"{number}.{SERVER}" for number, job in jobs().all().items() if job.state != "ended"), sep="\n")
    return 0


#: ``init`` recognizes PBS by the last one
COMMANDS: dict[str, Callable[[list[str]], int]] = {
    **{"qsub": qsub, "qstat": qstat, "qdel": qdel, "qselect": qselect, "pbsnodes": pbsnodes},
    "pbs_rsub": lambda _words: 1,
}

if __name__ == "__main__":
    sys.exit((COMMANDS | {"run": run})[sys.argv[1]](sys.argv[2:]))
