"""What ``init`` writes of clusters with another scheduler than Slurm: their queues, and what they call resources."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

import pytest
from hypothesis import given

from notebook_launcher.core.command_result import CommandResult
from notebook_launcher.discovery import init
from notebook_launcher.discovery.cluster_survey import read_survey
from notebook_launcher.discovery.findings import findings
from notebook_launcher.discovery.profile_draft import (
    Draft,
    Login,
    choose_account,
    choose_gpu_partition,
    choose_partition,
)
from notebook_launcher.discovery.profile_text import profile_text
from notebook_launcher.schedulers.gridengine.commands import GridEngine
from notebook_launcher.schedulers.kinds import KINDS
from notebook_launcher.schedulers.pbs.commands import Pbs
from notebook_launcher.session.context import Context
from tests import paths
from tests.doubles import FakeHost
from tests.unit.discovery.surveys import DAY, profile_of
from tests.unit.schedulers import recordings
from tests.unit.schedulers.test_lsf_cluster_info import GPUS, GROUPS, HOSTS, PART, QUEUES
from tests.unit.schedulers.test_pbs_cluster_info import SERVER, TWO_QUEUES, VNODES


def recorded(name: str) -> str:
    return recordings.recorded(paths.RECORDED / "gridengine", name).stdout


SITE = f"{recorded('qconf-complexes')}\n{recorded('qconf-pe')}"
KIND = {kind.name: kind for kind in KINDS}
ANSWERS = {  # of the queries for options, queues and hosts
    "lsf": ("", QUEUES.replace("Inact_Adm ", "Active    "), PART.join([HOSTS, QUEUES, GROUPS, GPUS])),
    "pbs": ("gpus\n", TWO_QUEUES + SERVER, VNODES.replace("ngpus", "gpus") + TWO_QUEUES),
    "gridengine": (SITE, recorded("qconf-queue"), f"{recorded('qhost-xml')}--- jobs that run ---\n"),
}


def drafted(name: str, answers: tuple[str, str, str], code: int = 0) -> Draft:
    """Return the draft for a login node of this kind, whose commands answer so."""
    options, queues, hosts = answers
    together = "".join(f"{one}\n--answered-- {code}\n" for one in (queues, hosts))
    host = FakeHost(lambda argv: CommandResult(0, together if argv[0] == "sh" else options))
    context = cast(Context, SimpleNamespace(host=host, site=SimpleNamespace(user="alice")))
    kind = KIND[name]
    report = (
        f"survey 1\npart groups\n|users phys\ncode 0\npart version\ncode 127\npart others\n|{kind.command}\ncode 1\n"
    )
    survey = init._with_queues(context, read_survey(report, DAY), kind)
    return Draft(
        "uni",
        Login("login.uni.example", "alice"),
        "launch-notebook init alice@login.uni.example",
        survey,
        choose_account(survey),
        choose_partition(survey, None),
        choose_gpu_partition(survey, None),
    )


def test_queues_of_lsf() -> None:
    draft = drafted("lsf", ANSWERS["lsf"])
    profile, text = profile_of(draft), profile_text(draft)
    assert profile.scheduler == "lsf"
    assert profile.max_time == {"hpc": "3-00:00:00", "gpuv100": "1-00:00:00"}
    assert 'hpc = "3-00:00:00" # without -t: 0:15:00' in text and "(bqueues -l)" in text
    assert (profile.cpu.flags["partition"], profile.gpu.flags["partition"]) == ("hpc", "gpuv100")
    of_type = dict(profile.gpu.types["TeslaV100_PCIE_32GB"].flags)
    assert of_type == {"partition": "gpuv100"}, "bsub is asked for no type by its name"
    assert "sinfo" not in text.replace("and no sinfo", "") and "sbatch" not in text


def test_queues_of_pbs_that_are_open_to_the_user() -> None:
    draft = drafted("pbs", ANSWERS["pbs"])
    profile = profile_of(draft)
    assert profile.scheduler_options == {"gpu": "gpus"}
    assert draft.gpu_partition.candidates == ("cpu", "gpu", "own"), "the group phys is the user's"
    assert "PBS does not report which accounts are yours" in profile_text(draft)
    closed = drafted("pbs", (*ANSWERS["pbs"][:1], TWO_QUEUES.replace("acl_groups = phys", "acl_groups = maths"), ""))
    assert "cpu" not in (closed.partition.value, *closed.partition.candidates)


def test_queues_of_grid_engine() -> None:
    draft = drafted("gridengine", ANSWERS["gridengine"])
    profile = profile_of(draft)
    assert profile.max_time == {"gpu.q": "2-00:00:00"}
    assert (profile.cpu.flags["partition"], profile.gpu.flags["partition"]) == ("all.q", "gpu.q")
    assert profile.scheduler_options == {}, "they are the defaults"


@pytest.mark.parametrize("name", ANSWERS)
def test_a_scheduler_that_does_not_answer(name: str) -> None:
    draft = drafted(name, ("", "", ""), code=255)
    assert not profile_of(draft).max_time
    results = {one.check: one.result for one in findings(draft)}
    assert results["scheduler"] == "ok" and results["partitions"] == "unknown"
    assert draft.survey.source in profile_text(draft)


def test_what_a_site_of_grid_engine_calls_its_resources() -> None:
    text = """\
mem                 mem        MEMORY    <=    YES         YES        0        0
gpus                g          INT       <=    YES         YES        0        0
h_vmem              h_vmem     MEMORY    <=    YES         NO         0        0
whole               w          BOOL      EXCL  YES         YES        0        1000

pe_name            mpi
allocation_rule    $fill_up

pe_name            threads
slots              999
allocation_rule    $pe_slots
"""
    expected = {"parallel_environment": "threads", "gpu": "gpus", "memory": "mem", "exclusive": "whole"}
    assert GridEngine().read_site_options(CommandResult(0, text)) == expected
    text = text.replace("mem        MEMORY    <=    YES         YES", "mem        MEMORY    <=    YES         JOB")
    assert GridEngine().read_site_options(CommandResult(0, text))["memory_per"] == "job"


@given(recordings.damaged(SITE))
def test_damaged_names_of_resources_are_none_or_usable(text: str) -> None:
    GridEngine().configure(GridEngine().read_site_options(CommandResult(0, text)))
    Pbs().configure(Pbs().read_site_options(CommandResult(0, text)))
