"""A stand-in for PBS's ``qsub``, ``qstat``, ``qdel`` and ``qselect``: runs a job on this machine, at once.

    PBS_STAND_IN=FOLDER python3 pbs_stand_in.py qsub … -- COMMAND...

What is real: the command runs with the variables that PBS sets, and ends by SIGTERM at ``qdel`` or when its walltime is
over; states, exit codes and messages are as they were recorded of OpenPBS. What is not: nothing waits but held jobs, no
other limit is enforced, and there is one host.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

FOLDER = Path(os.environ["PBS_STAND_IN"])
SERVER = "stand-in"


def jobs() -> dict[str, dict[str, str]]:
    return {path.stem: json.loads(path.read_text()) for path in sorted(FOLDER.glob("*.json"))}


def keep(number: str, job: dict[str, str]) -> None:
    new = FOLDER / f"{number}.new"
    new.write_text(json.dumps(job))
    new.replace(FOLDER / f"{number}.json")


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
    number = str(len(jobs()) + 1)
    job = {
        "Job_Name": options["-N"][0],
        "Job_Owner": f"{os.environ.get('USER', 'me')}@{SERVER}",
        "job_state": "H" if "-h" in options else "R",
        "queue": "workq",
        "server": SERVER,
        "Hold_Types": "u" if "-h" in options else "n",
        "Output_Path": f"{SERVER}:{options['-o'][0]}",
        "Resource_List.ncpus": re.findall(r"ncpus=(\d+)", chunk)[0],
        "Resource_List.nodect": "1",
        "Resource_List.select": chunk,
        "Resource_List.walltime": resources["walltime"],
        "Submit_arguments": " ".join(words),
    }
    keep(number, job)
    if "-h" not in options:
        subprocess.Popen(
            [sys.executable, __file__, "run", number, options["-o"][0], *command],
            start_new_session=True,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        while "exec_host" not in jobs()[number]:
            time.sleep(0.01)
    print(f"{number}.{SERVER}")
    return 0


def run(number: str, log: str, *command: str) -> int:
    job = jobs()[number]
    own = {"PBS_JOBID": f"{number}.{SERVER}", "PBS_ENVIRONMENT": "PBS_BATCH", "PBS_QUEUE": "workq"}
    with Path(log).open("w") as file:
        child = subprocess.Popen(
            command, env=os.environ | own, stdout=file, stderr=file, stdin=subprocess.DEVNULL, start_new_session=True
        )
    job |= {"exec_host": f"{SERVER}/0", "stime": time.strftime("%a %b %d %H:%M:%S %Y"), "session_id": str(child.pid)}
    keep(number, job)
    hours, minutes, seconds = map(int, job["Resource_List.walltime"].split(":"))
    began, over = time.monotonic(), False
    while child.poll() is None:
        time.sleep(0.02)
        if not over and time.monotonic() - began > hours * 3600 + minutes * 60 + seconds:
            over = True
            os.killpg(child.pid, signal.SIGTERM)
    deleted = (FOLDER / f"{number}.deleted").exists()
    code = -29 if over else 256 - child.returncode if child.returncode < 0 else child.returncode
    used = int(time.monotonic() - began)
    job |= {"job_state": "F", "Exit_status": str(code), "substate": "91" if deleted else "93" if code else "92"}
    job["comment"] = f"Job run at Fri Nov 20 at 23:30 on ({SERVER}:ncpus=1) and " + (
        f"terminated by {job['Job_Owner']}" if deleted else "failed" if code else "finished"
    )
    job["resources_used.walltime"] = f"{used // 3600:02d}:{used % 3600 // 60:02d}:{used % 60:02d}"
    keep(number, job)
    return 0


def qstat(words: list[str]) -> int:
    code, past = 0, "-x" in words
    for name in [word for word in words if not word.startswith("-")]:
        number = name.partition(".")[0]
        job = jobs().get(number)
        if job is None:
            print(f"qstat: Unknown Job Id {number}.{SERVER}", file=sys.stderr)
            code = 153
        elif job["job_state"] == "F" and not past:
            text = f"qstat: {number}.{SERVER} Job has finished, use -x or -H to obtain historical job information"
            print(text, file=sys.stderr)
            code = 35
        else:
            lines = [wrapped(f"    {key} = {value}") for key, value in job.items()]
            print(f"Job Id: {number}.{SERVER}", *lines, f"    Submit_Host = {SERVER}\n", sep="\n")
    return code


def wrapped(line: str) -> str:
    return "\n\t".join([line[:79], *(line[at : at + 70] for at in range(79, len(line), 70))])


def qdel(words: list[str]) -> int:
    for number in (word.partition(".")[0] for word in words):
        job = jobs().get(number)
        if job is None or job["job_state"] == "F":
            what = "Unknown Job Id" if job is None else "Job has finished"
            print(f"qdel: {what} {number}.{SERVER}", file=sys.stderr)
            return 153 if job is None else 35
        (FOLDER / f"{number}.deleted").touch()
        if "session_id" in job:
            os.killpg(int(job["session_id"]), signal.SIGTERM)
        else:
            keep(number, job | {"job_state": "F", "substate": "91", "comment": "Not Running: held and terminated"})
    return 0


def qselect(_words: list[str]) -> int:
    print(*(f"{number}.{SERVER}" for number, job in jobs().items() if job["job_state"] != "F"), sep="\n")
    return 0


if __name__ == "__main__":
    name, *arguments = sys.argv[1:]
    if name == "run":
        sys.exit(run(*arguments))
    sys.exit({"qsub": qsub, "qstat": qstat, "qdel": qdel, "qselect": qselect}[name](arguments))
