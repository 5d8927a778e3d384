"""Login nodes on which Slurm is not found: they have another scheduler, or only a module provides Slurm."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

import pytest

from notebook_launcher.core.errors import ChecksFailed, LoginSetupFailed, SchedulerMissing
from tests.cluster_tests import in_box
from tests.cluster_tests.situation import STAND_IN, assert_no_noise, root_does, together, venv
from tests.conftest import Session, assert_nothing_left, fetch, people_processes
from tests.practice_cluster import PracticeCluster

LAUNCH = in_box.launch

Start = Callable[..., Session]

VENV = ("--venv", "~/light")  # a stand-in for JupyterLab, see STAND_IN


@pytest.fixture(scope="module", autouse=True)
def _light(cluster: PracticeCluster) -> Iterator[None]:
    with together(*(venv("light", STAND_IN, user) for user in ("alice", "frank")))(cluster):
        yield


@pytest.fixture(autouse=True)
def _nothing_is_remembered_there(cluster: PracticeCluster) -> None:
    cluster.root("laptop", ["sh", "-c", "rm -rf /home/*/.local/state/notebook-launcher"], check=True)


WITH_ANOTHER_SCHEDULER = (
    ("alice", "--host", "login"),
    ("alice", "run", "hello", "--host", "login"),
    ("alice", "bench", "hello", "--matrix", "cores=1,2", "--output", "/tmp/bench-there", "--host", "login"),
    ("alice", "shell", "-t", "5", "--host", "login", "-c", "date"),
    ("alice", "env", "check", "--node", "--host", "login"),
    ("alice", "image", "build", "jupyterlab", "-o", "/tmp/there.sif", "--host", "login"),
    ("frank", "when", "--host", "login"),  # with a noisy tcsh
    ("alice", "queue", "--host", "login"),
    ("alice", "init", "login"),
)
HTCONDOR = """\
mv /usr/bin/sbatch /usr/bin/sbatch-away; mv /usr/bin/sinfo /usr/bin/sinfo-away
ln -s /bin/true /usr/local/bin/condor_submit
"""
NO_HTCONDOR = """\
mv /usr/bin/sbatch-away /usr/bin/sbatch; mv /usr/bin/sinfo-away /usr/bin/sinfo; rm -f /usr/local/bin/condor_submit
"""


def test_nothing_starts_on_a_login_node_with_another_scheduler(cluster: PracticeCluster) -> None:
    """JupyterLab would run there, on a node that everybody shares. ``when``, ``queue`` and ``init`` fail as well."""
    with root_does("login", HTCONDOR, NO_HTCONDOR)(cluster):
        for user, *words in WITH_ANOTHER_SCHEDULER:
            done = in_box.launcher(cluster, "laptop", user, *words)
            said = " ".join(f"{done.stdout}{done.stderr}".split())
            assert done.returncode == SchedulerMissing.exit_code, said
            assert "None of Slurm, LSF, PBS and Grid Engine was found on login" in said, said
            assert "Its scheduler is not supported: HTCondor (found: condor_submit)" in said, said
            assert "use a cluster with Slurm, LSF, PBS or Grid Engine: --cluster NAME" in said, said
        for words in ([], ["queue"], ["--gpu-mps=2"]):  # with a profile that says `slurm`
            done = in_box.launcher(cluster, "laptop", "alice", *words)
            said = " ".join(f"{done.stdout}{done.stderr}".split())
            assert done.returncode == SchedulerMissing.exit_code, said
            assert "Its scheduler is not supported: HTCondor (found: condor_submit)" in said, said
        done = in_box.launcher(cluster, "laptop", "alice", "doctor", "--host", "login")
        assert done.returncode == ChecksFailed.exit_code, done.stdout + done.stderr
        assert "(found: condor_submit)" in " ".join(done.stdout.split())
        assert "paramiko: the ssh configuration asks for nothing that only OpenSSH has" in done.stdout
        # a session that had been started there can still be found
        assert in_box.launcher(cluster, "laptop", "alice", "list", "--host", "login").returncode == 0
        there = people_processes(cluster, ("login",))
        assert not [process for process in there if "jupyter" in process], there
    assert_nothing_left(cluster)


# as at sites where a module provides Slurm: without it, no command of Slurm is on the PATH
HIDDEN_SLURM = """\
mkdir -p /opt/slurm/bin /etc/lmod/modules/slurm
for name in sbatch squeue scancel scontrol srun sacct sacctmgr sinfo; do
  mv /usr/bin/$name /opt/slurm/bin/$name
done
echo 'prepend_path("PATH", "/opt/slurm/bin")' >/etc/lmod/modules/slurm/24.11.lua
"""
SLURM_AGAIN = "mv /opt/slurm/bin/* /usr/bin/; rm -r /opt/slurm /etc/lmod/modules/slurm"


@contextlib.contextmanager
def hidden_slurm(cluster: PracticeCluster) -> Iterator[None]:
    cluster.root("login", ["sh", "-ec", HIDDEN_SLURM], check=True)
    try:
        yield
    finally:
        cluster.root("login", ["sh", "-c", SLURM_AGAIN], check=True)


SETTING = "--set 'login_setup=[\"module load slurm\"]'"


def test_slurm_that_a_module_brings_is_named_with_the_command_that_lets_the_profile_load_it(
    cluster: PracticeCluster,
) -> None:
    with hidden_slurm(cluster):
        for words in (["--venv", "~/light"], ["run", "hello"], ["when"], ["queue"], ["init"]):
            where = ["login"] if words == ["init"] else ["--host", "login"]
            done = in_box.launcher(cluster, "laptop", "alice", *words, *where)
            said = " ".join(f"{done.stdout}{done.stderr}".split())
            assert done.returncode == SchedulerMissing.exit_code, said
            assert said.count("A module may provide the commands: slurm/24.11.") == 1, said
            edit = f"launch-notebook clusters edit login --host login {SETTING}"
            assert (edit if words == ["init"] else "launch-notebook init login") in said, said
        for words in (["--venv", "~/light"], ["when"], ["doctor"]):  # with the usual profile
            done = in_box.launcher(cluster, "laptop", "alice", *words)
            said = " ".join(f"{done.stdout}{done.stderr}".split())
            assert done.returncode == (ChecksFailed if words == ["doctor"] else SchedulerMissing).exit_code, said
            assert f"launch-notebook clusters edit practice {SETTING}" in said, said
    assert_nothing_left(cluster)


@pytest.fixture
def _no_profile_stays(cluster: PracticeCluster) -> Iterator[None]:
    yield
    for user in ("alice", "frank"):
        cluster.run("laptop", user, ["sh", "-c", "rm -f ~/.config/notebook-launcher/clusters/hidden.toml*"])


@pytest.mark.usefixtures("_no_profile_stays")
@pytest.mark.parametrize(("user", "engine", "route"), [("alice", "paramiko", "node-ssh"), ("frank", "openssh", "step")])
def test_slurm_that_only_a_module_brings_works_from_init_to_stop(
    cluster: PracticeCluster, start: Start, user: str, engine: str, route: str
) -> None:
    """With both engines; frank's login shell is a tcsh that prints noise, and the route ``step`` needs srun."""

    def told(*words: str) -> str:
        done = in_box.launcher(cluster, "laptop", user, *words, "--cluster", "hidden")
        assert done.returncode == 0, done.stdout + done.stderr
        return " ".join(f"{done.stdout}{done.stderr}".split())

    with hidden_slurm(cluster):
        asked = start("init", f"{user}@login", "--name", "hidden", "--engine", engine, user=user, columns=200)
        asked.expect(r"slurm/24\.11\. Run module load slurm before each command there.*\[yes/no\] ")
        asked.send("yes\n")
        asked.expect(r"Submit a job.*\[yes/no\] ")
        asked.send("yes\n")
        assert asked.end() == 0, asked.printed
        shown = in_box.launcher(cluster, "laptop", user, "clusters", "show", "hidden", "--merged").stdout
        assert 'login_setup = ["module load slurm"] # ' in shown and "hidden.toml:" in shown
        assert "login_setup included" in told("doctor", *VENV)
        assert "core" in told("queue")
        told("when", "-n", "1", "-t", "5")

        session = start("--cluster", "hidden", "-n", "1", "-t", "30", "--route", route, *VENV, user=user, columns=200)
        session.ready()
        assert fetch(cluster, "laptop", session.api, session.token, user=user)[0] == 200
        session.send("d\n")
        assert session.end() == 0, session.printed
        assert session.session_id in told("list") and "running" in told("list")
        again = start("connect", session.session_id, "--cluster", "hidden", user=user, columns=200)
        again.ready(started_here=False)
        words = ("shell", session.session_id, "--cluster", "hidden", "-c", "echo in $SLURM_JOB_ID; exit 3")
        inside = in_box.launcher(cluster, "laptop", user, *words)
        assert (inside.returncode, inside.stdout) == (3, f"in {session.job_id}\n"), inside.stderr
        told("stop", session.session_id, "--yes")
        again.end()
        assert_no_noise(session)
    assert_nothing_left(cluster)


@pytest.mark.usefixtures("_no_profile_stays")
def test_a_line_of_login_setup_that_fails_is_named_by_every_command(cluster: PracticeCluster) -> None:
    setting = 'login_setup=["module load slurm", "module load nope"]'
    edit = ("clusters", "edit", "hidden", "--host", "alice@login", "--set", setting)
    with hidden_slurm(cluster):
        assert in_box.launcher(cluster, "laptop", "alice", *edit).returncode == 0
        for words in (["-t", "5", *VENV], ["queue"], ["when"]):
            done = in_box.launcher(cluster, "laptop", "alice", *words, "--cluster", "hidden")
            said = " ".join(f"{done.stdout}{done.stderr}".split())
            assert done.returncode == LoginSetupFailed.exit_code, said
            assert "A line of login_setup failed with exit code 1 on alice@login: module load nope" in said, said
            assert "clusters/hidden.toml:2. It printed: Lmod has detected the following error" in said, said
    assert_nothing_left(cluster)
