"""Attacks by bob, who has an account on alice's laptop, on the login node and on the compute node."""

from __future__ import annotations

from tests.cluster_tests.acts_by_users import (
    bound,
    counted_as_hers,
    digest_of_another_image,
    flooded,
    in_no_list,
    kernels_overheard,
    knocked,
    knocked_from_elsewhere,
    left_in_temporary_folders,
    page_of_a_killed_launcher,
    port_after_detaching,
    port_of_the_run_before,
    queued_under_her_name,
    shared_session_root,
    swapped_before_an_upload,
    waited_behind_a_forwarded_port,
    with_a_stolen_key,
    without_the_key,
)
from tests.cluster_tests.attack import NODE, SESSIONS, Attack, By, looked_for, refused

# Puts a link in the place of each folder and each file that appears here, of some at once and of others a bit later.
SWAPS = """\
import itertools, os, time
due, delays = {}, itertools.cycle([0.25, 0, 0.05, 0.15])
print("there", flush=True)
while True:
    for one in os.scandir("."):
        try:
            # A folder of hers cannot be moved into another one, so it stays here under another name.
            if one.is_symlink() or one.name.startswith("away-"):
                continue
            if one.name not in due:
                due[one.name] = time.monotonic() + next(delays)
            if due[one.name] <= time.monotonic():
                leads = "/home/alice/private" if one.is_dir(follow_symlinks=False) else "/home/alice/private/secret"
                os.rename(one.name, f"away-{one.name}")
                os.symlink(leads, one.name)
                print(one.name, flush=True)
        except OSError:
            pass
"""


def swapped_during_an_upload(scene: Scene) -> str:
    """Let bob swap all that appears in a shared folder while alice copies into it, several times over."""
    scene.must("login", "root", "mkdir -m 777 /tmp/shared")
    scene.must("login", "alice", "mkdir -m 700 ~/private; umask 077; echo hers >~/private/secret")
    look = "cd ~/private; stat -c '%a %n' . *; cat secret"
    before = scene.must("login", "alice", look)
    names = ["up0", "file0", "up1", "file1", "up2", "up3"]
    make = "for one; do case $one in up*) mkdir -p $one/inner; echo new >$one/inner/a;; *) echo new >$one;; esac; done"
    try:
        scene.must("laptop", "alice", make, *names)
        with scene.running("login", "bob", ["sh", "-c", 'cd /tmp/shared; exec python3 -c "$0"', SWAPS]) as swapper:
            assert swapper.stdout is not None and swapper.stdout.readline() == "there\n"
            came = [scene.launcher("copy", name, "login:/tmp/shared") for name in names]
            swapper.kill()
            swapped = swapper.stdout.read().split()
        assert any(one.startswith("up") for one in swapped) and any("file" in one for one in swapped), (swapped, came)
        assert scene.must("login", "alice", look) == before
    finally:
        scene.must("laptop", "alice", 'rm -rf "$@"', *names)
        scene.must("login", "root", "rm -rf /tmp/shared ~alice/private")
    return "alice's own folder and file keep their modes, and nothing is written there"


HOME = {"ls DIR": r"\btoken\b", "cat DIR/token": "TOKEN", "cat DIR/endpoint.json": '"port"',
        "cat DIR/session.env": "=", "cat DIR/ssh_host_key": "PRIVATE", "cat DIR/job.log": "JupyterLab",
        "cat DIR/runtime/*.json": "TOKEN"}  # fmt: skip
ARGUMENTS = "cat /proc/[0-9]*/cmdline 2>/dev/null | tr '\\0' ' '"
OF_PROCESSES = {"tr '\\0' '\\n' </proc/PROCESS/environ": "HOME=/home/alice", "ls -l /proc/PROCESS/fd": "->",
                "readlink -v /proc/PROCESS/cwd": "(?m)^/", "cat /proc/PROCESS/maps": "python"}  # fmt: skip


def processes(which: str) -> dict[str, str]:
    return {script.replace("PROCESS", which): found for script, found in OF_PROCESSES.items()}


LAPTOP = (
    Attack(By.LAPTOP, "use JupyterLab through the tunnel's port",
           "open a terminal and its websocket by the port of 127.0.0.1: without a token, with a wrong one, and with "
           "alice's own token and cookies",
           lambda scene: knocked(scene, "laptop", scene.port_here), "“no answer”",
           "the launcher looks up whose a connection is, and closes those of other users (on Linux)"),
    Attack(By.LAPTOP, "reach the tunnel from another machine", "from the login node, the laptop's own address",
           knocked_from_elsewhere("login", "10.50.0.2", "HERE"), "no answer", "the port is one of 127.0.0.1"),
    Attack(By.LAPTOP, "share the tunnel's port", "bind it, with `SO_REUSEADDR` and `SO_REUSEPORT` too",
           bound("laptop", "HERE", ("AF_INET", "127.0.0.1"), ("AF_INET", "0.0.0.0")), "“Address already in use”",
           "the launcher keeps the port open as long as it is attached"),
    Attack(By.LAPTOP, "use the launcher's connections to the cluster",
           "`ls /tmp/nl-ssh-…`, `ssh -S /tmp/nl-ssh-…/ctl -O check`, and read the session's key there",
           looked_for("laptop", {"ls FOLDER": "ctl", "ssh -F none -S FOLDER/ctl -O check login": "Master running",
                                 "cat FOLDER/key": "PRIVATE KEY"}),
           "“Permission denied”.*", "the folder of the sockets has mode 0700"),
    Attack(By.LAPTOP, "put a folder of theirs in the place of the sockets' folder",
           "`mv /tmp/nl-ssh-… /tmp/mine`, `rm`, `ln -s`",
           refused("laptop", "mv FOLDER /tmp/mine", "rm -rf FOLDER", "ln -sfT /home/bob FOLDER",
                   unharmed="test -S FOLDER/ctl"),
           ".*(not permitted|denied|directory).*", "the folder is new, has a random name, and `/tmp` its sticky bit"),
    Attack(By.LAPTOP, "read the launcher's memory and environment",
           "`/proc/PID/environ`, `fd`, `cwd`, `maps` of `launch-notebook`", looked_for("laptop", processes("LAUNCHER")),
           "“Permission denied”.*", "the kernel: processes belong to their user"),
    Attack(By.LAPTOP, "get a core dump of the launcher", "`kill -QUIT`, `-SEGV` and `-ABRT` of `launch-notebook`",
           refused("laptop", *(f"/bin/kill -{name} LAUNCHER" for name in ("QUIT", "SEGV", "ABRT")),
                   unharmed="kill -0 LAUNCHER"), ".*not permitted.*", "the kernel"),
    Attack(By.LAPTOP, "read the token in a list of processes", "`ps axww`, `/proc/*/cmdline`",
           in_no_list("laptop", "ps axww; echo SESSION", f"{ARGUMENTS}; echo SESSION"),
           "the session is there, the token is not", "no argument ever holds the token"),
    Attack(By.LAPTOP, "read what the launcher remembers", "`~/.local/state/notebook-launcher`",
           looked_for("laptop", {"ls /home/alice/.local/state/notebook-launcher": "ports.json",
                                 "cat /home/alice/.local/state/notebook-launcher/ports.json": "HERE"}),
           "“Permission denied”", "mode 0700; there is no secret in it"),
    Attack(By.LAPTOP, "find something in the folders for temporary files",
           "`find /tmp /var/tmp /dev/shm /run -user alice -readable`", left_in_temporary_folders("laptop"),
           "nothing that bob may read or enter", "modes 0600 and 0700, whatever the umask is"),
    Attack(By.LAPTOP, "read the page with the token that a killed launcher has left",
           "`kill -KILL` of `launch-notebook open`; `cat ~alice/.cache/notebook-launcher/…`", page_of_a_killed_launcher,
           "“Permission denied”; the next `--open` removes it", "mode 0700; pages older than two minutes are removed"),
)  # fmt: skip

LOGIN = (
    Attack(By.LOGIN, "read the session's files", "`cat` of `token`, `endpoint.json`, `ssh_host_key`, `job.log` …",
           looked_for("login", HOME), "“Permission denied”", "the session directory has mode 0700, the files 0600"),
    Attack(By.LOGIN, "let their own key in", "append to `authorized_keys`; write another `jupyterlab.sh`, `watch.sh`",
           refused("login", *(f"echo x >>DIR/{name}" for name in ("authorized_keys", "jupyterlab.sh", "watch.sh"))),
           "“Permission denied”", "the same"),
    Attack(By.LOGIN, "put a folder or a link in the place of the session directory",
           "`mv`, `rm -rf` and `ln -sfT` of it and of each folder above it",
           refused("login", *(f"{way} {path}{to}" for path in ("DIR", SESSIONS, "/home/alice/.notebook-launcher")
                              for way, to in (("mv", " /tmp/taken"), ("rm -rf", ""), ("ln -sfT /home/bob", ""))),
                   unharmed="test -d DIR -a ! -L DIR"),
           ".*(denied|directory).*", "nobody else may write in any folder on the way"),
    Attack(By.LOGIN, "rename the session directory where a project shares the folder",
           '`session_root = "/home/shared/sessions"` in alice\'s profile, below a folder of mode 0777',
           shared_session_root, ".*would not be safe.*", "each folder on the way is looked at; nothing is written"),
    Attack(By.LOGIN, "read the token in a list of processes", "`ps axww`, `/proc/*/cmdline`",
           in_no_list("login", "ps axww", ARGUMENTS),
           "the session is there, the token is not", "it goes over standard input into a file"),
    Attack(By.LOGIN, "read the token in the scheduler's records",
           "`scontrol show job`, `squeue -O ALL`, `sacct -P -o ALL`",
           in_no_list("login", "scontrol show job -dd JOB", "squeue -j JOB -O jobid,name:50,command:200,comment:200",
                      "sacct -j JOB -P -o ALL"),
           "the session is there, the token is not", "the job has the session's path as its only argument"),
    Attack(By.LOGIN, "read the job script", "`scontrol write batch_script JOB -`",
           looked_for("login", {"scontrol write batch_script JOB -": "#SBATCH"}), "“Invalid user id”",
           "Slurm; and no secret is in it"),
    Attack(By.LOGIN, "get into the job", "`srun --jobid=JOB --overlap id`",
           refused("login", "srun --jobid=JOB --overlap id"), ".*denied.*", "Slurm"),
    Attack(By.LOGIN, "end, hold or change the job", "`scancel`, `scontrol requeue`, `hold`, `update timelimit=1`",
           refused("login", "scancel JOB", "scontrol requeue JOB", "scontrol hold JOB",
                   "scontrol update jobid=JOB timelimit=1", unharmed="squeue -h -j JOB -t R | grep -q ."),
           ".*(denied|Invalid user id).*", "Slurm"),
    Attack(By.LOGIN, "be taken for the session", "queue a job with the session's name; `launch-notebook status`",
           queued_under_her_name, "alice's commands find her own job", "only the user's own jobs are asked for"),
    Attack(By.LOGIN, "have an upload written elsewhere",
           "in a shared folder, links to alice's home in the place of a folder and of a file, before `copy --force`",
           swapped_before_an_upload, ".*no link is followed.*; the file: the link itself is replaced",
           "nothing is written through a link, also one that is put there meanwhile"),
    Attack(By.LOGIN, "have an upload change the modes of alice's own files, or go there",
           "in a shared folder, a program that swaps each folder and each file for a link as soon as `copy` creates it",
           swapped_during_an_upload, "alice's own folder and file keep their modes, and nothing is written there",
           "modes are set on an open file, or on a folder that was entered, and only if it is the one that `copy` has "
           "created"),
    Attack(By.LOGIN, "find something in the folders for temporary files",
           "`find /tmp /var/tmp /dev/shm /run -user alice -readable`", left_in_temporary_folders("login"),
           "nothing that bob may read or enter", "nothing is written there"),
    Attack(By.LOGIN, "reach JupyterLab from the login node", "JupyterLab's port at the node's address",
           knocked_from_elsewhere("login", "10.60.0.11", "PORT"), "no answer", "JupyterLab listens on 127.0.0.1 alone"),
    Attack(By.LOGIN, "log in to the session's SSH server",
           "as alice with bob's keys, and with alice's own key for the cluster",
           without_the_key, "“.*Permission denied.*”|.*denied.*", "only keys made for this session count"),
    Attack(By.LOGIN, "do more with a stolen key of the session than reach JupyterLab",
           "a command, a shell, `sftp`, `-W login:22`, `-W node1:22`, `-R` to a port and to a socket",
           with_a_stolen_key, "all refused: .*", "it allows connections to 127.0.0.1 of the node, nothing else"),
    Attack(By.LOGIN, "cut alice off by a flood of connections",
           "150 open connections to the session's SSH server, never logged in",
           flooded, "the open tunnel works as before.*",
           "a tunnel is one connection, made before. A new one over the same route may have to wait until the server "
           "gives the others up, after 60 s; the other routes do not use that port"),
)  # fmt: skip

ON_NODE = (
    Attack(By.NODE, "use JupyterLab on its own port",
           "the same requests as on the laptop, at 127.0.0.1 of the node",
           lambda scene: knocked(scene, NODE, scene.port), "“no answer”",
           "JupyterLab looks up whose a connection is, and closes those of other users"),
    Attack(By.NODE, "wait behind a port that alice forwards", "bob's program has port 6006; alice types `f 6006`",
           waited_behind_a_forwarded_port, ".*belongs to another user's program.*",
           "JupyterLab reports whose program it is; another host name keeps the cookies away in any case"),
    Attack(By.NODE, "share JupyterLab's port", "bind it, with `SO_REUSEADDR` and `SO_REUSEPORT` too",
           bound(NODE, "PORT", ("AF_INET", "127.0.0.1"), ("AF_INET", "0.0.0.0")),
           "“Address already in use”", "the kernel"),
    Attack(By.NODE, "share the port of the session's SSH server",
           "the same, at all of the node's addresses, IPv6 too",
           bound(NODE, "SSHPORT", ("AF_INET", "127.0.0.1"), ("AF_INET", "0.0.0.0"), ("AF_INET", "10.60.0.11"),
                 ("AF_INET6", "::")),
           "“Address already in use”", "the server listens on all of them, and ends where it cannot"),
    Attack(By.NODE, "take over the port of a run that has ended",
           "the job is requeued, bob binds the port that its JupyterLab used, and alice uses her open tab",
           port_of_the_run_before, "the next run answers the tab, and bob receives nothing",
           "the tunnel closes when the run ends, and goes to the next run's port once that run has reported it"),
    Attack(By.NODE, "pass another image off as alice's",
           "several users keep sessions in one folder; bob creates `image-digests/` there, with a false digest for "
           "alice's image",
           digest_of_another_image, "bob's file is not read; the digest is calculated",
           "a saved digest is used only if its folder (mode 0700) and its file belong to alice"),
    Attack(By.NODE, "read JupyterLab's memory and environment", "`/proc/PID/environ`, `fd`, `cwd`, `maps`",
           looked_for(NODE, processes("JUPYTER")), "“Permission denied”.*",
           "the kernel: processes belong to their user"),
    Attack(By.NODE, "get a core dump of JupyterLab", "`kill -QUIT`, `-SEGV` and `-ABRT`",
           refused(NODE, *(f"/bin/kill -{name} JUPYTER" for name in ("QUIT", "SEGV", "ABRT")),
                   unharmed="kill -0 JUPYTER"), ".*not permitted.*", "the kernel"),
    Attack(By.NODE, "read the token in a list of processes", "`ps axww`, `/proc/*/cmdline`",
           in_no_list(NODE, "ps axww", ARGUMENTS),
           "the session is there, the token is not", "JupyterLab reads it from a file"),
    Attack(By.NODE, "read the script that the scheduler keeps", "`cat /var/lib/slurm/slurmd/job…/slurm_script`",
           looked_for(NODE, {"cat /var/lib/slurm/slurmd/job$(printf %05d JOB)/slurm_script": "notebook"}),
           "“Permission denied”",
           "Slurm; and no secret is in it"),
    Attack(By.NODE, "find something in the folders for temporary files",
           "`find /tmp /var/tmp /dev/shm /run -user alice -readable`", left_in_temporary_folders(NODE),
           "nothing that bob may read or enter", "modes 0600 and 0700"),
    Attack(By.NODE, "read what alice's cells run and print", "subscribe to each port of alice's while a cell prints",
           kernels_overheard, "nothing is heard; the sockets: “Permission denied”",
           "kernels listen on sockets in a folder of mode 0700 instead of Jupyter's ports"),
    Attack(By.NODE, "have their memory counted as alice's",
           "a process of 700 MiB with the name `a) S 1 1 PID `, as which it would seem a child of alice's job",
           counted_as_hers, "bob's 700 MiB are not in alice's usage", "the sampler reads behind the last `)`"),
)  # fmt: skip

DETACHED = (
    Attack(By.LAPTOP, "get the token from a tab that was left open", "after `d`, bind the port that led to the session",
           port_after_detaching, "another port, and a warning: .*",
           "the next connection warns; and the token gets bob nowhere, as above"),
)  # fmt: skip
