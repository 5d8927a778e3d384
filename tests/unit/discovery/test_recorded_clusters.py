"""What recorded clusters of each release report becomes a profile that can be read."""

from __future__ import annotations

import re

from notebook_launcher.discovery.cluster_survey import read_node
from notebook_launcher.discovery.findings import findings, probe_findings
from notebook_launcher.discovery.profile_draft import (
    ProbeResult,
)
from notebook_launcher.discovery.profile_text import next_step, profile_text
from tests import paths
from tests.unit.discovery.surveys import draft_of, each, profile_of, recorded

DOCS = paths.DOCS / "clusters.md"


@each
def test_a_cluster_that_tells_everything(release: str) -> None:
    draft = draft_of(recorded("lmod", release))
    profile = profile_of(draft)
    assert (profile.host, profile.user, profile.login_nodes) == ("login.uni.example", "alice", ())
    assert profile.defaults == {"account": "proj1"}
    assert profile.cpu.flags == {"partition": "core"}
    assert profile.gpu.flags == {"partition": "gpu", "gpus-per-node": "{count}"}
    assert {kind: dict(rule.flags) for kind, rule in profile.gpu.types.items()} == {
        "t4": {"gpus-per-node": "t4:{count}"},
        "a100": {"gpus-per-node": "a100:{count}"},
    }
    assert isinstance(profile.max_time, dict)
    assert profile.max_time["gpu"] == "2-00:00:00"
    text = profile_text(draft)
    assert '# account = "proj2"' in text
    assert "urgent" not in text.partition("[gpu.flags]")[2], "it is open to another account only"
    assert "snowy" in text
    assert f"Slurm {release}" in text


@each
def test_another_cluster_of_the_same_slurm(release: str) -> None:
    profile = profile_of(draft_of(recorded("snowy", release), other="snowy"))
    assert profile.defaults == {"account": "proj1", "clusters": "snowy"}
    assert profile.cpu.flags == {"partition": "core"}, "every node has a GPU, and jobs without one still go there"
    assert profile.gpu.flags["partition"] == "core"
    assert list(profile.gpu.types) == ["t4"]


@each
def test_what_could_not_be_read_stands_there_as_a_comment(release: str) -> None:
    draft = draft_of(recorded("no-accounting", release))
    assert profile_of(draft).defaults == {}
    told = "not read: sacctmgr show assoc said: You are not running a supported accounting_storage plugin"
    assert f"# account: {told}" in profile_text(draft)
    checks = {check.check: check for check in findings(draft)}
    assert checks["account"].result == "unknown"
    assert told in checks["account"].found
    assert checks["partitions"].result == "ok"


def test_a_controller_that_does_not_answer() -> None:
    draft = draft_of(recorded("no-slurmctld", "24.11"))
    profile = profile_of(draft)
    assert profile.defaults == {"account": "proj1"}
    assert (profile.cpu.flags, profile.gpu.flags, profile.max_time) == ({}, {}, None)
    assert "GPUs: not known; not read: sinfo said:" in profile_text(draft)
    assert {check.check for check in findings(draft) if check.result == "unknown"} >= {
        "partitions",
        "partition",
        "GPUs",
    }


@each
def test_environment_modules_are_read_as_well(release: str) -> None:
    draft = draft_of(recorded("environment-modules", release))
    assert draft.survey.software.module_system is not None
    assert draft.survey.software.module_system.startswith("Modules Release")
    assert "jupyterlab/4" in draft.survey.software.modules
    assert '# modules = ["jupyterlab/4"]' in profile_text(draft)


def test_no_container_command_is_said() -> None:
    draft = draft_of(recorded("no-container", "24.11"))
    checks = {check.check: check for check in findings(draft)}
    assert (checks["container command"].result, "--probe" in checks["container command"].hint) == ("unknown", True)
    assert "No command for images was found on the login node" in profile_text(draft)


@each
def test_what_a_job_found_out_is_filled_in(release: str) -> None:
    software = read_node(recorded("node", release))
    assert software is not None
    draft = draft_of(recorded("lmod", release), probed=ProbeResult("gpu1", "step", ("node-ssh",), software))
    profile = profile_of(draft)
    assert (profile.route, profile.container.command) == ("step", "apptainer")
    assert "not open: node-ssh" in profile_text(draft)
    assert [check.result for check in probe_findings(draft.probed, draft) if draft.probed] == [
        *("ok", "ok", "ok"),
        "warning",
    ]


def test_the_next_step_is_an_environment_where_there_is_no_jupyterlab() -> None:
    text = recorded("lmod", "24.11")
    without = draft_of(text.replace("|jupyterlab/", "|other/"))
    assert "--set environments.mine.container=" in next_step(without)
    assert "--cluster uni --dry-run -- mine" in next_step(without)
    assert """--set environments.mine.modules='["jupyterlab/4"]'""" in next_step(draft_of(text))
    there = text.replace("part jupyter\ncode 1", "part jupyter\n|/usr/bin/jupyter-lab\ncode 0")
    assert next_step(draft_of(there)) == "Read it, and use it with:\n  launch-notebook --cluster uni --dry-run"


def test_a_node_of_another_kind_than_the_login_node() -> None:
    text = recorded("node", "24.11").replace("|x86_64", "|aarch64")
    told = "part gpus\n|GPU 0: NVIDIA GH200 120GB (UUID: GPU-1)\ncode 0\nend"
    draft = draft_of(
        recorded("lmod", "24.11"), probed=ProbeResult("gn1", None, (), read_node(text.replace("end", told)))
    )
    assert profile_of(draft).node_arch == "aarch64"
    assert draft.probed is not None
    checks = {check.check: check for check in probe_findings(draft.probed, draft)}
    assert checks["route to the node"].result == "fault"
    assert "aarch64" in checks["node"].hint
    assert checks["node: GPUs"].found == "NVIDIA GH200 120GB"


def test_the_example_in_the_documentation_is_what_is_written() -> None:
    software = read_node(recorded("node", "24.11"))
    written = profile_text(draft_of(recorded("lmod", "24.11"), probed=ProbeResult("gpu1", "node-ssh", (), software)))
    shown = re.search(r"```toml\n(# Read on.*?)```", DOCS.read_text(), re.S)
    assert shown is not None
    assert shown[1] == written
