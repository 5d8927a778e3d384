"""A job that starts Ray, of which a stand-in notes how it was started: keys, folder, variables, and what is left.

The real one computes on two nodes of the practice cluster: ``tests/cluster_tests/test_many_nodes.py``.
"""

from __future__ import annotations

import json
import os
import runpy
import signal
import socket
import subprocess
from pathlib import Path
from typing import Any

import pytest

from notebook_launcher.core.package_data import job_script
from notebook_launcher.session.credentials import new_ray_keys
from tests.doubles import wait_until
from tests.unit.jobscripts.job import Job, permissions

pytestmark = pytest.mark.real_time
NODE: dict[str, Any] = runpy.run_path(str(job_script("ray_node.py")))

RAY = """
import json, os, pathlib, sys, time
def main():
    told = {"argv": sys.argv[1:], "env": dict(os.environ)}
    note = pathlib.Path(os.environ["HOME"], "ray-" + sys.argv[2].strip("-"))
    note.with_suffix(".new").write_text(json.dumps(told))
    note.with_suffix(".new").rename(note)
    if os.environ.get("BREAKS"):
        sys.exit("no head of that name")
    late = pathlib.Path(os.environ["HOME"], "is-late")
    if late.exists():
        late.unlink()
        sys.exit("The current node timed out during startup.")
    pathlib.Path(os.environ["NBL_RAY_FOLDER"], "session").mkdir()
    print("Ray runtime started.", flush=True)
    time.sleep(100)
"""


@pytest.fixture
def job(quick: Job) -> Job:
    """A job that asks for Ray, in an environment that has the stand-in for it."""
    folder = quick.root / "packages"
    for name, text in {
        "ray/__init__.py": "",
        "ray/scripts/__init__.py": "",
        "ray/scripts/scripts.py": RAY,
        "ray-2.60.0.dist-info/METADATA": "Name: ray\nVersion: 2.60.0\n",
    }.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    quick.env |= {"PYTHONPATH": str(folder), "RAY_AUTH_TOKEN": "of another cluster", "RAY_TMPDIR": "/nowhere"}
    quick.ask("with=ray", "setenv=RAY_TMPDIR=/" + "x" * 60)
    for name, content in new_ray_keys("session").items():
        (quick.dir / name).write_bytes(content)
        (quick.dir / name).chmod(0o600)
    return quick


def noted(job: Job, name: str) -> tuple[dict[str, str], dict[str, str]]:
    """Return the options and the environment with which ``ray start`` was called."""
    note = job.home / f"ray-{name}"
    wait_until(note.exists, 20, "Ray was started")
    told = json.loads(note.read_text())
    options = dict(word.removeprefix("--").partition("=")[::2] for word in told["argv"][1:])
    return options, told["env"]


def test_ray_is_started_with_what_the_job_has_and_for_its_user_alone(job: Job) -> None:
    job.start()
    endpoint = job.endpoint()["ray"]
    options, env = noted(job, "head")
    assert options["node-ip-address"] == options["dashboard-host"] == "127.0.0.1"
    assert endpoint["scheduler"] == f"127.0.0.1:{options['port']}" and endpoint["dashboard"] == 0
    assert (endpoint["nodes"], endpoint["workers"], endpoint["threads"]) == (1, 1, int(options["num-cpus"]))
    memory = (int(options["memory"]) + int(options["object-store-memory"])) // 2**20
    assert abs(endpoint["memory_mib"] - memory) <= 1
    assert options["include-dashboard"] == "false" and "block" in options
    assert env["RAY_USAGE_STATS_ENABLED"] == "0" and "RAY_AUTH_TOKEN" not in env
    assert (env["RAY_USE_TLS"], env["RAY_AUTH_MODE"], env["RAY_AUTH_TOKEN_PATH"]) == (
        "1",
        "token",
        f"{job.dir}/ray-token",
    )
    assert env["DASHBOARD_METRIC_PORT"] == env["AUTOSCALER_METRIC_PORT"] == "-1"
    folder = Path(options["temp-dir"]).parent
    assert folder.parent == Path("/tmp") and permissions(folder) == 0o700, "Ray opens what is in it to everybody"
    assert "RAY_TMPDIR='/xxx" in job.log.read_text()

    server = job.process_with("/jupyter-lab").environ()
    assert server["RAY_ADDRESS"] == endpoint["scheduler"]
    assert server["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] == "0", "the notebook, too, takes 127.0.0.1 for the address"
    for name in ("RAY_USE_TLS", "RAY_TLS_CA_CERT", "RAY_TLS_SERVER_CERT", "RAY_TLS_SERVER_KEY", "RAY_AUTH_TOKEN_PATH"):
        assert server[name] == env[name]
    assert permissions(Path(env["RAY_TLS_SERVER_KEY"])) == 0o600
    verify = ["openssl", "verify", "-x509_strict", "-verify_ip", "127.0.0.1", "-CAfile", env["RAY_TLS_CA_CERT"]]
    subprocess.run([*verify, env["RAY_TLS_SERVER_CERT"]], check=True, capture_output=True)

    job.send(signal.SIGTERM)
    assert job.exit()["cause"] == "stopped"
    assert job.processes() == [] and not folder.exists()


def test_what_ray_says_of_a_failed_start_is_in_the_log(job: Job) -> None:
    job.env["BREAKS"] = "yes"
    report = job.run()
    assert report["cause"] == "workers-failed" and "Ray's scheduler" in report["message"]
    assert "no head of that name" in job.log.read_text()
    assert job.processes() == []


def test_a_ray_that_gave_up_late_is_started_again(job: Job) -> None:
    job.env["NBL_RAY_SLOW_SECONDS"] = "0.001"
    (job.home / "is-late").touch()
    job.start()
    assert job.endpoint()["ray"]["nodes"] == 1
    assert "Ray was slow to start on" in job.log.read_text()


def test_a_ray_that_cannot_keep_others_out_is_not_started(job: Job) -> None:
    package = job.root / "packages" / "ray-2.60.0.dist-info"
    (package / "METADATA").write_text("Name: ray\nVersion: 2.51.2\n")
    for name in ("python", "python3"):
        job.tool(name, "#!/bin/sh\nexit 1\n")
    report = job.run()
    assert report["cause"] == "workers-missing"
    assert report["message"].startswith(
        "There is no Ray 2.52 or newer, which --with ray starts, in the plain environment"
    )
    assert not (job.home / "ray-head").exists()


def test_a_node_joins_once_the_first_one_is_there_and_is_started_again(job: Job) -> None:
    runtime = job.dir / "runtime"
    runtime.mkdir()
    for name, path in {name: job_script(name) for name in RAY_FILES}.items():
        (job.dir / name).write_bytes(path.read_bytes())
    name = os.uname().nodename
    shared = Path("/tmp") / f"nl-ray-{os.urandom(4).hex()}"
    (runtime / "ray-folder").write_text(f"{shared}\n")
    port = NODE["free_port"]("127.0.0.1")
    env = {**job.env, "NBL_NODES": "2", "NBL_FIRST_NODE": "first", "RAY_ADDRESS": "10.0.0.1:7"}
    env["NBL_DASHBOARD_PORT"] = str(port)
    with job.log.open("wb") as log:
        part = subprocess.Popen(
            ["bash", str(job.dir / "worker_node.sh"), str(job.dir), "workers"], env=env, stdout=log, stderr=log
        )
    try:
        wait_until(shared.exists, 20, "the folder")
        assert permissions(shared) == 0o700
        wait_until(lambda: any("ray_node.py" in command for command in job.commands()), 20, "it waits")
        assert not (job.home / "ray-address=10.0.0.1:7").exists()
        (runtime / "ray-joined-first").write_text("1 1\n")
        options, env = noted(job, "address=10.0.0.1:7")
        assert options["node-ip-address"] not in ("127.0.0.1", "")
        assert env["RAY_TLS_SERVER_CERT"] == f"{runtime}/ray-{name}-cert.pem"
        with socket.socket() as others, pytest.raises(OSError, match="in use"):
            others.bind(("", port))  # or they would get the token
        joined = runtime / f"ray-joined-{name}"
        wait_until(joined.exists, 20, "it has joined")
        assert joined.read_text().split()[0] == options["num-cpus"]
        (job.home / "ray-address=10.0.0.1:7").unlink()
        job.process_with(" start --address").kill()
        noted(job, "address=10.0.0.1:7")
        assert "starting them again" in job.log.read_text()
    finally:
        part.send_signal(signal.SIGUSR2)
        part.wait(20)
    assert not shared.exists() and not (runtime / f"ray-joined-{name}").exists()


@pytest.mark.parametrize(
    ("image", "folder", "binds"), [("x.sif", "/scratch/nl-ray-1", "/scratch/nl-ray-1"), ("x.sif", "/tmp/nl-ray-1", "")]
)
def test_a_container_sees_the_folder_wherever_it_is(image: str, folder: str, binds: str) -> None:
    shown = 'source "$0"; want_container=$1 want_binds=(); show_ray_folder "$2"; echo "${want_binds[*]}"'
    command = ["bash", "-c", shown, str(job_script("workers_ray.sh")), image, folder]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == f"{binds}\n"


RAY_FILES = (
    "worker_node.sh",
    "lib.sh",
    "containers.sh",
    "activate.sh",
    "enter.sh",
    "workers_ray.sh",
    "node_resources.py",
    "ray_node.py",
)


@pytest.mark.parametrize(
    ("memory", "shared", "expected"),
    [
        (10 * 2**30, 2**40, (3 * 2**30, 7 * 2**30)),
        (10 * 2**30, 2**30, (int(2**30 * 0.95), 10 * 2**30 - int(2**30 * 0.95))),
        (2**28, 0, (100 * 2**20, 156 * 2**20)),
    ],
)
def test_a_part_of_the_memory_is_for_objects(memory: int, shared: int, expected: tuple[int, int]) -> None:
    assert NODE["store_and_memory"](memory, shared) == expected


def test_the_memory_is_no_more_than_the_machine_has() -> None:
    assert 2**20 < NODE["memory_limit"]() <= os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
