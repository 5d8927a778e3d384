"""Attacks by bob, a student in alice's class, on her heartbeats, her session and the teacher's commands."""

from __future__ import annotations

import json
import re
import shlex
import subprocess

from notebook_launcher.core.package_data import job_script
from tests.cluster_tests import in_box
from tests.cluster_tests.attack import ESCAPES, Act, Attack, By, Scene, assert_no_escapes, complaint, each_once, fill
from tests.cluster_tests.class_of_students import FOLDER, TEACHER, give
from tests.unit.bench.recorded import record

HERS = f"{FOLDER}/alice"
MINE = f"{FOLDER}/bob"
BEAT = '{"version":1,"job":"%s","state":"%s","since":"2026-11-21T00:00:00Z","written":"%s","interval":30}'
#: lets alice's session write one heartbeat; with a class folder in her course it would do so every 30 seconds
_REPORT = (
    "NBL_HEARTBEAT_SECONDS=5 SLURM_JOB_ID=JOB timeout -s TERM 1 bash DIR/heartbeat.sh DIR {} /home/alice/lab $$ $$"
)


def as_member(scene: Scene, user: str, script: str) -> subprocess.CompletedProcess[str]:
    """Run a shell script on the login node as a member of the class's group."""
    words = ["setpriv", f"--reuid={user}", f"--regid={user}", "--init-groups", "--", "sh", "-c", script]
    return in_box.run(scene.cluster, "login", "root", ["env", f"HOME=/home/{user}", *words])


def must(scene: Scene, user: str, script: str) -> str:
    done = as_member(scene, user, script)
    assert done.returncode == 0, f"{script}\n{done.stdout}{done.stderr}"
    return done.stdout


def report(scene: Scene) -> None:
    """Let alice's session write a heartbeat."""
    as_member(scene, "alice", fill(scene, _REPORT.format(FOLDER)))


def members_may_not(*tries: str, unharmed: str = f"grep -q running {HERS}/heartbeat.json") -> Act:
    """Return an attack in which bob runs commands that must all fail; then ``unharmed``, run by alice, must succeed."""

    def act(scene: Scene) -> str:
        report(scene)
        seen = []
        for script in tries:
            done = as_member(scene, "bob", fill(scene, script))
            assert done.returncode != 0, f"this was not refused: {script}\n{done.stdout}"
            seen.append(complaint(done))
        must(scene, "alice", unharmed)
        return each_once(seen)

    return act


def read_by_teacher(scene: Scene, file: str = "heartbeat.json", most: int = 2048) -> dict[str, dict[str, str]]:
    """Return what the teacher's commands read from a file of each student in the class folder, by user.

    ``most``: in bytes; a larger file is not read.
    """
    done = in_box.run(
        scene.cluster, "login", "root",
        ["setpriv", f"--reuid={TEACHER}", f"--regid={TEACHER}", "--init-groups", "--",
         "timeout", "10", "python3", "-I", "-", FOLDER, file, str(most)],
        input=job_script("class_folder.py").read_text(),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return {line["user"]: line for line in map(json.loads, done.stdout.splitlines()) if "user" in line}


def not_read(script: str) -> Act:
    """Return an attack in which bob prepares his own folder; the teacher's commands do not read it, and say why."""

    def act(scene: Scene) -> str:
        report(scene)
        must(scene, "bob", f"mkdir -m 750 -p {MINE}; cd {MINE}; rm -rf heartbeat.json")
        done = as_member(scene, "bob", f"cd {MINE}; {script}")
        try:
            if done.returncode != 0:
                return f"“{complaint(done)}”"
            found = read_by_teacher(scene)
            assert "text" in found["alice"]
            assert "text" not in found.get("bob", {}), found
            return f"“{found['bob']['problem']}”" if "bob" in found else "not read"
        finally:
            must(scene, "bob", f"chmod -R u+rwx,g-w,o-w {MINE} 2>/dev/null; rm -rf {MINE}")

    return act


def seen_by_teacher(scene: Scene, *words: str) -> str:
    """Return what ``classroom watch`` prints for a class of alice, bob and carol."""
    give(scene.cluster, TEACHER, "three.csv", "alice\nbob\ncarol\n")
    done = in_box.launcher(
        scene.cluster, "laptop", TEACHER, "classroom", "watch", "three.csv", "--once", "--course", "course.toml", *words
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def lied_about_her(scene: Scene) -> str:
    report(scene)
    now = must(scene, "bob", "date -u +%Y-%m-%dT%H:%M:%SZ").strip()
    beat = shlex.quote(BEAT % (scene.session.job_id, "idle", now))
    must(scene, "bob", f"umask 027; mkdir -p {MINE}; printf '%s\\n' {beat} >{MINE}/heartbeat.json")
    try:
        event = json.loads(seen_by_teacher(scene, "--json").splitlines()[-1])
        states = {one["user"]: one["state"] for one in event["students"]}
        assert states["alice"] == "running" and states["bob"] in ("not_started", "ended"), states
    finally:
        must(scene, "bob", f"rm -rf {MINE}")
    return "alice's session runs, bob has none"


def wrote_nonsense(scene: Scene) -> str:
    report(scene)
    beat = json.dumps({"version": 1, "job": scene.session.job_id, "state": f"<b>{ESCAPES}", "written": ESCAPES})
    must(scene, "bob", f"umask 027; mkdir -p {MINE}; printf '%s\\n' {shlex.quote(beat)} >{MINE}/heartbeat.json")
    try:
        printed = seen_by_teacher(scene)
        assert_no_escapes(printed)
        assert "<b>" not in printed
    finally:
        must(scene, "bob", f"rm -rf {MINE}")
    return "it is no report; nothing of it is shown"


def forged_a_row(scene: Scene) -> str:
    """Let bob queue a job whose name contains a line end and a forged line of squeue."""
    fields = ["99", "x", "carol", "RUNNING", "core", "node1", "2026-11-21T00:00:00", "2036-11-21T00:00:00", "1:00:00",
              "proj1", "lab1", "cpu=1", "N/A", "N/A", "N/A", "1", "1", "0:0", "None",
              "<b>20261121-014455-k3f2"]  # fmt: skip
    name = shlex.quote("x\n" + "|".join(fields) + "|" + ESCAPES)
    job = scene.must("login", "bob", f"sbatch --parsable -H -J {name} -o /dev/null --wrap true").strip()
    try:
        printed = seen_by_teacher(scene)
        assert re.search(r"^carol +(has not started|ended)", printed, re.M), printed  # she may have had an earlier job
        assert_no_escapes(printed)
        assert "<b>" not in printed
    finally:
        scene.must("login", "bob", f"scancel {job}")
    return "carol does not run; the name is not shown"


def came_before_her(scene: Scene) -> str:
    """Let bob create a folder with carol's name in the class folder before her session does."""
    must(scene, "bob", f"mkdir -m 777 {FOLDER}/carol; echo '{{}}' >{FOLDER}/carol/heartbeat.json")
    try:
        folder, session = f"{FOLDER}/carol", "/tmp/carols-session"
        copies = fill(scene, "cp DIR/*.sh")
        in_box.run(
            scene.cluster,
            "login",
            "root",
            ["sh", "-c", f"mkdir -p {session}; {copies} {session}; chmod -R a+rX {session}"],
        )
        done = as_member(scene, "carol", f"timeout 30 bash {session}/heartbeat.sh {session} {FOLDER} /home/carol $$ $$")
        assert "is not a folder of this user" in done.stderr, done
        [problem] = {read_by_teacher(scene)["carol"]["problem"]}
        assert as_member(scene, "carol", f"grep -q version {folder}/heartbeat.json").returncode != 0
    finally:
        as_member(scene, "bob", f"rm -rf {FOLDER}/carol")
        in_box.run(scene.cluster, "login", "root", ["rm", "-rf", "/tmp/carols-session"])
    return f"carol's session writes nothing there; the teacher reads “{problem}”"


def ended_the_class(scene: Scene) -> str:
    """Let bob write the notice that ends the class, as only the teacher may; alice's session ignores it."""
    soon = must(scene, "bob", "date +%s").strip()
    text = f"version=1\\nends={soon}\\njobs={scene.session.job_id}\\nmessage=Go home.\\n"
    must(scene, "bob", f"printf '{text}' >{FOLDER}/end; chmod 644 {FOLDER}/end")
    try:
        as_member(scene, "alice", fill(scene, _REPORT.replace(" 1 bash", " 3 bash").format(FOLDER)))
        assert scene.must("login", "alice", fill(scene, "ls DIR")).split().count("notice.json") == 0
    finally:
        must(scene, "bob", f"rm -f {FOLDER}/end")
    return "it is not the folder's owner's, and is not heeded"


def changed_the_notice(scene: Scene) -> str:
    must(scene, TEACHER, f"printf 'version=1\\nends=1\\njobs=0\\n' >{FOLDER}/end")
    try:
        seen = []
        for script in (f"echo x >{FOLDER}/end", f"mv {FOLDER}/end {FOLDER}/taken", f"rm -f {FOLDER}/end",
                       f"ln -sfT /home/bob {FOLDER}/end"):  # fmt: skip
            done = as_member(scene, "bob", script)
            assert done.returncode != 0, script
            seen.append(complaint(done))
    finally:
        must(scene, TEACHER, f"rm -f {FOLDER}/end")
    return each_once(seen)


def looked_for_secrets(scene: Scene) -> str:
    """Let bob, who may read alice's heartbeat, look for anything that gives access to her session."""
    report(scene)
    text = must(scene, "bob", f"cat {HERS}/*; ls -la {HERS}")
    for secret in (scene.token, str(scene.port), str(scene.ssh_port), "/home/alice", scene.session.session_id):
        assert secret not in text.replace(scene.session.job_id, ""), secret
    return "the job's number, its state and times"


def from_outside(scene: Scene) -> str:
    report(scene)
    seen = []
    for script in (f"ls {FOLDER}", f"cat {HERS}/heartbeat.json"):
        done = scene.run("login", "frank", script)
        assert done.returncode != 0
        seen.append(complaint(done))
    return each_once(seen)


def spoilt_results(scene: Scene) -> str:
    """Let bob's results contain HTML, then be a link to alice's, then a file of a gigabyte."""
    evil = record(f"<script>alert(1)</script>{ESCAPES}", 1.0)
    must(scene, "alice", f"umask 027; printf '%s\\n' {shlex.quote(record('fit', 1.0))} >{HERS}/results.jsonl")
    must(scene, "bob", f"umask 027; mkdir -p {MINE}; printf '%s\\n{{half\\n' {shlex.quote(evil)} >{MINE}/results.jsonl")
    try:
        code = in_box.launcher(
            scene.cluster, "laptop", TEACHER, "classroom", "collect", "--force", "--course", "course.toml"
        )
        assert code.returncode == 0, code.stderr
        assert_no_escapes(code.stdout)
        page = scene.must("laptop", TEACHER, "cat ~/lab-results.html")
        assert "<script>" not in page and "&lt;script&gt;" in page and "\x1b" not in page
        must(scene, "bob", f"cd {MINE}; rm results.jsonl; ln -s {HERS}/results.jsonl .")
        assert "problem" in read_by_teacher(scene, "results.jsonl", 100000)["bob"]
        must(scene, "bob", f"cd {MINE}; rm results.jsonl; truncate -s 1G results.jsonl; chmod 640 results.jsonl")
        problem = read_by_teacher(scene, "results.jsonl", 100000)["bob"]["problem"]
    finally:
        must(scene, "bob", f"rm -rf {MINE}")
        must(scene, "alice", f"rm -f {HERS}/results.jsonl")
    return f"escaped; the link and the gigabyte are not read: “{problem}”"


def knocked_at_the_page(scene: Scene) -> str:
    """Let bob, on the teacher's machine, request the page by its secret address, and look for that in all processes."""
    give(scene.cluster, TEACHER, "three.csv", "alice\nbob\ncarol\n")
    page = scene.terminal("classroom", "watch", "--page", "--course", "course.toml", "three.csv", user=TEACHER)
    url = page.expect(r"http://127\.0\.0\.1:(\d+)/([\w-]+)/").group(0)
    try:
        ask = f"curl -s -o /dev/null -m 20 -w '%{{http_code}}' {url}"
        assert scene.run("laptop", TEACHER, ask).stdout == "200"
        assert scene.run("laptop", "bob", ask).stdout == "000"
        other = f"curl -s -o /dev/null -m 20 -w '%{{http_code}}' -H 'Host: evil.example' {url}"
        assert scene.run("laptop", TEACHER, other).stdout == "404"
        guess = f"curl -s -o /dev/null -m 20 -w '%{{http_code}}' {url.rsplit('/', 2)[0]}/"
        assert scene.run("laptop", TEACHER, guess).stdout == "404"
        cookies = scene.run("laptop", TEACHER, f"curl -s -D - -o /dev/null {url} | grep -ic set-cookie").stdout.strip()
        listed = scene.run("laptop", "bob", "cat /proc/[0-9]*/cmdline 2>/dev/null | tr '\\0' ' '").stdout
        assert url.rstrip("/").rpartition("/")[2] not in listed and cookies == "0"
    finally:
        page.send("\x03")
        page.end()
    return "bob: no answer; another host or path: “404”; no cookie is set, and no process names the address"


STUDENT = (
    Attack(By.STUDENT, "write into alice's report", "`>`, `>>`, `cp`, `touch` of her `heartbeat.json`",
           members_may_not(*(f"{way}{HERS}/heartbeat.json" for way in
                             ("echo x >", "echo x >>", "cp /etc/hostname ", "touch "))),
           "“Permission denied”", "the file has mode 0640, its folder 0750"),
    Attack(By.STUDENT, "put a file or a link beside it", "`touch`, `ln -s`, `mkfifo` in her folder",
           members_may_not(f"touch {HERS}/end", f"ln -s /etc/passwd {HERS}/x", f"mkfifo {HERS}/results.jsonl"),
           "“Permission denied”", "nobody else may write in her folder"),
    Attack(By.STUDENT, "remove or rename her folder", "`mv`, `rm -rf`, `ln -sfT` of it",
           members_may_not(f"mv {HERS} {FOLDER}/taken", f"rm -rf {HERS}", f"ln -sfT /home/bob {HERS}"),
           ".*(not permitted|denied|directory).*", "the class folder has the sticky bit"),
    Attack(By.STUDENT, "open her folder to all", "`chmod 777`, `chown`, `setfacl`",
           members_may_not(f"chmod 777 {HERS}", f"chown bob {HERS}", f"chmod 666 {HERS}/heartbeat.json"),
           "“Operation not permitted”", "the kernel: it is hers"),
    Attack(By.STUDENT, "have her report taken for his", "a hard link to it in his folder",
           not_read(f"ln {HERS}/heartbeat.json heartbeat.json"), ".*(not permitted|belongs to alice).*",
           "the owner of the opened file is checked"),
    Attack(By.STUDENT, "have her folder taken for his", "a link to it in the place of his",
           not_read(f"cd ..; rmdir {MINE}; ln -s {HERS} {MINE}"), "not read|“Not a directory”",
           "no link is followed (`O_NOFOLLOW`)"),
    Attack(By.STUDENT, "have the teacher's private file read", "a link to it in the place of his report",
           not_read(f"ln -s /home/{TEACHER}/.ssh/id_ed25519 heartbeat.json"), ".*symbolic links.*", "the same"),
    Attack(By.STUDENT, "hold the teacher's commands up", "a pipe that nobody writes to, in its place",
           not_read("mkfifo -m 640 heartbeat.json"), "“it is not a regular file”", "it is opened without waiting"),
    Attack(By.STUDENT, "fill the teacher's memory", "a report of a gigabyte",
           not_read("truncate -s 1G heartbeat.json; chmod 640 heartbeat.json"), "“it is larger than 2048 bytes”",
           "no more than 2 KiB are read"),
    Attack(By.STUDENT, "let others change his report, and deny it", "a folder of mode 0777",
           not_read("echo '{}' >heartbeat.json; chmod 777 ."), "“others may write the folder”",
           "the modes of the opened folder and file are checked"),
    Attack(By.STUDENT, "report in carol's name before she comes", "a folder with her name", came_before_her,
           "carol's session writes nothing there; the teacher reads “.*(belongs to bob|others may write).*”",
           "folder, file and name have to be one user's"),
    Attack(By.STUDENT, "report that alice's session is idle", "a report with her job's number in his folder",
           lied_about_her, "alice's session runs, bob has none",
           "a report counts for the user whose folder it is in, and for their own jobs"),
    Attack(By.STUDENT, "write on the teacher's terminal", "control characters and HTML in a report", wrote_nonsense,
           "it is no report; nothing of it is shown", "only known words, numbers and times are taken from it"),
    Attack(By.STUDENT, "let carol seem to run", "a job whose name ends a line of `squeue`, and begins one about her",
           forged_a_row, "carol does not run; the name is not shown",
           "each line has to carry a random word that nobody knows before"),
    Attack(By.STUDENT, "end alice's session as the teacher would", "write the notice `end` into the class folder",
           ended_the_class, "it is not the folder's owner's, and is not heeded", "its owner is checked"),
    Attack(By.STUDENT, "change or remove the teacher's notice", "`>`, `mv`, `rm`, `ln -sfT`", changed_the_notice,
           ".*(denied|not permitted).*", "mode 0644, and the sticky bit"),
    Attack(By.STUDENT, "find a token, a port or a path in her report", "read all in her folder, as members may",
           looked_for_secrets, "the job's number, its state and times", "there is none in it"),
    Attack(By.STUDENT, "read the reports without being in the class", "`ls`, `cat` by somebody else", from_outside,
           "“Permission denied”", "the class folder has mode 3770"),
    Attack(By.STUDENT, "spoil the report of all timings", "results that are HTML, a link, a gigabyte", spoilt_results,
           "escaped; the link and the gigabyte are not read: “it is larger than 100000 bytes”",
           "as with reports; a template escapes all names"),
    Attack(By.STUDENT, "read the class's page on the teacher's machine",
           "its own address as another user; another host; a guess; the list of processes; cookies",
           knocked_at_the_page, "bob: no answer; .*",
           "whose a connection is, is looked up; the Host header and the secret in the address are checked"),
)  # fmt: skip
