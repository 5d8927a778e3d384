"""The one question at a launch whose image was not made yet."""

from __future__ import annotations

import contextlib
import dataclasses
import time
from collections.abc import Mapping
from datetime import datetime, timezone
from pathlib import Path

import pytest

from notebook_launcher.core import events
from notebook_launcher.core.errors import ImageFailed, ImageNotMade, LauncherError
from notebook_launcher.core.interrupts import HungUp, Interrupt, Interrupts, Kind
from notebook_launcher.core.request import Request
from notebook_launcher.environments import images, job_command
from notebook_launcher.environments.images import Machine, Recipe, make_image, offer_image
from notebook_launcher.environments.job_command import OnLine
from notebook_launcher.hosts.counted_prompts import CountedPrompts
from notebook_launcher.hosts.local import LocalHost
from notebook_launcher.jobs.cancel import JobCancellation, cancel_job
from notebook_launcher.launch import no_offer, notes_before, queue_session, software_warning
from notebook_launcher.planning.plan import Plan
from notebook_launcher.planning.target import LaunchTarget
from notebook_launcher.profiles import ClusterProfile
from notebook_launcher.profiles.bundled_images import with_bundled_images
from notebook_launcher.profiles.models import Container, Environment
from notebook_launcher.schedulers.base import JobRef
from notebook_launcher.schedulers.lsf.commands import Lsf
from notebook_launcher.schedulers.slurm.commands import Slurm
from notebook_launcher.session.context import Context
from notebook_launcher.session.record import Site, new_session
from tests.doubles import FakePrompts, RecordingView

MADE = {"digest": "sha256:" + "0" * 64, "bytes": 4_000_000_000}


class Launch:
    """A launch in an environment without its image, at which somebody gives these answers."""

    def __init__(self, tmp_path: Path, *answers: bool | None, asks: bool = True, **profile: object) -> None:
        values = {"bundled_images": True, "container": Container(build="login"), **profile}
        self.profile = with_bundled_images(ClusterProfile(**values))  # type: ignore[arg-type]
        self.view, self.asked = RecordingView(), FakePrompts(confirms=answers, asks=asks)
        target = LaunchTarget(self.profile, "uni", None, "slurm")
        self.site = Site(str(tmp_path), "alice", "login", datetime.now(timezone.utc))
        prompts, root = CountedPrompts(self.asked), str(tmp_path / "sessions")
        self.context = Context(target, LocalHost(), self.site, Slurm(), root, self.view, prompts, Interrupts())
        self.plan = self.plan_in("torch", {"account": "proj1", "partition": "gpu", "gpus": "1"})

    def plan_in(self, name: str, flags: dict[str, str | None]) -> Plan:
        environment = self.profile.environments[name]
        typed = frozenset({"account", "partition"})
        return Plan(self.context.target, Request(flags), name, environment, environment.container, user_flags=typed)


@pytest.fixture
def scripts(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Plan, Recipe, Machine, list[str]]]:
    """What is run to make images, instead of being run."""
    ran: list[tuple[Plan, Recipe, Machine, list[str]]] = []

    def run(plan: Plan, context: Context, recipe: Recipe, machine: Machine, argv: list[str]) -> Mapping[str, object]:
        context.interrupts.defer()
        ran.append((plan, recipe, machine, argv))
        return MADE

    monkeypatch.setattr(images, "_run_image_script", run)
    return ran


Scripts = list[tuple[Plan, Recipe, Machine, list[str]]]


def test_it_is_asked_once_and_made(tmp_path: Path, scripts: Scripts) -> None:
    launch = Launch(tmp_path, True)
    assert offer_image(launch.plan, launch.context)
    assert launch.asked.asked == [
        f"The image for “torch” on uni does not exist yet: {tmp_path}/.notebook-launcher/images/torch.sif. "
        "Build it now, on the login node? This takes several minutes and about 4 GB of disk."
    ]
    ((_, recipe, machine, argv),) = scripts
    assert (recipe.source, machine) == ("torch", "login")
    assert recipe.definition is not None and b"Bootstrap" in recipe.definition
    assert (argv[2], argv[4]) == ("build", f"{tmp_path}/.notebook-launcher/images/torch.sif")
    assert launch.view.one(events.ImageReady).path == argv[4]
    assert not list((tmp_path / "sessions").glob("image-*"))


@pytest.mark.parametrize("answers", [(False,), (None,)])
def test_after_no_nothing_is_made(tmp_path: Path, scripts: Scripts, answers: tuple[bool | None]) -> None:
    launch = Launch(tmp_path, *answers)
    assert not offer_image(launch.plan, launch.context)
    assert (len(launch.asked.asked), scripts) == (1, [])


def test_without_a_terminal_nothing_is_asked(tmp_path: Path, scripts: Scripts) -> None:
    launch = Launch(tmp_path, True, asks=False)
    assert not offer_image(launch.plan, launch.context)
    assert (launch.asked.asked, scripts) == ([], [])


@pytest.mark.parametrize("name", ["tensorflow", "tf-mkl"])
def test_the_environments_of_tensorflow_share_an_image(tmp_path: Path, scripts: Scripts, name: str) -> None:
    launch = Launch(tmp_path, True)
    assert offer_image(launch.plan_in(name, {}), launch.context)
    assert f"for “{name}” on uni" in launch.asked.asked[0]
    assert scripts[0][3][4].endswith("/images/tensorflow.sif")


@pytest.mark.parametrize(("arch", "gpus", "said"), [(None, 0, "in a job?"), ("aarch64", 1, "on a GPU node (only")])
def test_the_job_has_the_account_and_no_gpu_unless_only_such_nodes_can_run_the_image(
    tmp_path: Path, scripts: Scripts, arch: str | None, gpus: int, said: str
) -> None:
    launch = Launch(tmp_path, True, container=Container(), node_arch=arch)
    assert offer_image(launch.plan, launch.context)
    ((plan, _, machine, _),) = scripts
    assert (machine, plan.request.gpus, plan.request.flags.get("account")) == ("job", gpus, "proj1")
    assert "partition" not in plan.request.flags
    assert said in launch.asked.asked[0]


def test_an_image_that_has_a_source_is_pulled(tmp_path: Path, scripts: Scripts) -> None:
    source = Environment(container="~/x.sif", source="docker://example/x:1")
    launch = Launch(tmp_path, True, environments={"mine": source}, container=Container())
    assert offer_image(launch.plan_in("mine", {}), launch.context)
    assert launch.asked.asked[0].endswith(
        "Pull it now from docker://example/x:1, in a job? This takes several minutes."
    )
    assert scripts[0][3][2:6:3] == ["pull", "docker://example/x:1"]


@pytest.mark.parametrize("definition", ["/etc/hostname", "./mine.def", "no-such"])
def test_no_file_of_this_machine_is_read_for_a_profiles_definition(
    tmp_path: Path, scripts: Scripts, definition: str
) -> None:
    """The profile may be a course's from elsewhere: it could name a private key."""
    both = Environment(container="~/x.sif", definition=definition, source="docker://example/x:1")
    launch = Launch(tmp_path, True, environments={"mine": both})
    assert offer_image(launch.plan_in("mine", {}), launch.context)
    assert "Pull it now from docker://example/x:1" in launch.asked.asked[0]
    ((_, recipe, _, argv),) = scripts
    assert (recipe.definition, recipe.source, argv[2]) == (None, "docker://example/x:1", "pull")


@pytest.mark.parametrize(
    "environment",
    [
        Environment(container="~/x.sif", definition="/etc/hostname"),
        Environment(container="~/x.sif", source="torch"),
        Environment(),
    ],
)
def test_where_no_way_to_make_it_is_known_nothing_is_asked(
    tmp_path: Path, scripts: Scripts, environment: Environment
) -> None:
    launch = Launch(tmp_path, True, environments={"mine": environment})
    assert not offer_image(launch.plan_in("mine", {}), launch.context)
    assert (launch.asked.asked, scripts) == ([], [])


def test_afterwards_ctrl_c_ends_the_launch_as_before(tmp_path: Path, scripts: Scripts) -> None:
    """And what is still reported of the job that made the image goes to nobody."""
    launch = Launch(tmp_path, True)
    before = launch.context.interrupts.inbox
    assert offer_image(launch.plan, launch.context)
    before.put("late")
    assert launch.context.interrupts.inbox.empty()
    with pytest.raises(KeyboardInterrupt):
        launch.context.interrupts.arrive("end")


def test_an_interrupt_at_the_last_moment_counts() -> None:
    interrupts = Interrupts()
    interrupts.defer()
    interrupts.inbox.put(Interrupt("end"))
    with pytest.raises(KeyboardInterrupt):
        interrupts.renew()


@pytest.mark.parametrize(("kind", "error"), [("end", KeyboardInterrupt), ("leave", HungUp)])
def test_an_interrupt_while_the_images_job_is_cancelled_ends_the_launch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: Kind, error: type[BaseException]
) -> None:
    """The cancelling takes it from the inbox: it must not be forgotten, and the next job submitted."""
    launch = Launch(tmp_path, True)
    interrupts = launch.context.interrupts
    looked: list[int] = []

    def gone(_cancellation: JobCancellation) -> bool:
        looked.append(1)
        if len(looked) == 1:
            interrupts.arrive(kind)
        return len(looked) > 1

    def run(plan: Plan, context: Context, *_: object) -> Mapping[str, object]:
        interrupts.defer()
        values = {"cluster": None, "host": None, "environment": None, "now": context.site.now}
        session = new_session(context.root, plan.request, scheduler="slurm", **values)  # type: ignore[arg-type]
        cancel_job(context, dataclasses.replace(session, job=JobRef("7")), "It ended.")
        return MADE

    monkeypatch.setattr(JobCancellation, "_check_ended", gone)
    monkeypatch.setattr(images, "_run_image_script", run)
    with pytest.raises(error):
        offer_image(launch.plan, launch.context)
    assert launch.view.one(events.ImageReady)
    assert (len(looked), interrupts.inbox.empty()) == (2, True)


def test_a_closed_terminal_counts_more_than_ctrl_c() -> None:
    """A session would be left that nobody attends."""
    interrupts = Interrupts()
    interrupts.defer()
    interrupts.arrive("leave")
    interrupts.arrive("end")
    with pytest.raises(HungUp):
        interrupts.renew()
    interrupts.defer()
    interrupts.renew()  # what was raised once is not raised again


def test_a_launch_goes_on_only_with_an_image(tmp_path: Path) -> None:
    launch = Launch(tmp_path)

    def check() -> str | None:
        raise ImageNotMade("There is none.")

    assert software_warning(launch.plan, launch.context, check, lambda _plan, _context: True) is None
    assert software_warning(launch.plan, launch.context, lambda: "a warning", no_offer) == "a warning"
    with pytest.raises(ImageNotMade):
        software_warning(launch.plan, launch.context, check, no_offer)

    def fails(_plan: Plan, _context: Context) -> bool:
        raise ImageFailed("It did not work.")

    with pytest.raises(ImageFailed):
        software_warning(launch.plan, launch.context, check, fails)


def test_an_image_that_somebody_made_meanwhile_is_used(tmp_path: Path, scripts: Scripts) -> None:
    """While the question was answered: it stays as it is, and the launch goes on with it."""
    launch = Launch(tmp_path, True)
    image = tmp_path / ".notebook-launcher/images/torch.sif"
    image.parent.mkdir(parents=True)
    image.touch()
    assert offer_image(launch.plan, launch.context)
    assert scripts == []
    assert launch.view.one(events.Note).text == f"{image} has been made meanwhile."


@pytest.mark.parametrize("there", [True, False])
def test_an_image_that_somebody_made_during_the_work_is_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, there: bool
) -> None:
    launch = Launch(tmp_path, True)
    image = tmp_path / ".notebook-launcher/images/torch.sif"

    def run(_plan: Plan, context: Context, *_: object) -> Mapping[str, object]:
        context.interrupts.defer()
        image.parent.mkdir(parents=True)
        if there:
            image.touch()
        raise ImageFailed("No image was made.")

    monkeypatch.setattr(images, "_run_image_script", run)
    if there:
        assert offer_image(launch.plan, launch.context)
        with pytest.raises(KeyboardInterrupt):
            launch.context.interrupts.arrive("end")
    else:
        with pytest.raises(ImageFailed):
            offer_image(launch.plan, launch.context)


def test_an_image_with_another_digest_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It would be found on the compute node only, at each launch again."""
    wanted, found = (f"sha256:{digit * 64}" for digit in "67")
    source = Environment(container="~/x.sif", source="docker://example/x:1", digest=wanted)
    launch = Launch(tmp_path, True, environments={"mine": source})

    def run(_context: Context, argv: list[str], on_line: OnLine, _stop: str) -> str:
        assert Path(argv[3], "digest").read_text() == f"{wanted}\n"
        on_line(f"nbl-differs {Path(argv[3]).name} {found}", "login")
        return ""

    monkeypatch.setattr(images, "run_directly", run)
    with pytest.raises(ImageFailed) as caught:
        offer_image(launch.plan_in("mine", {}), launch.context)
    assert wanted in caught.value.why and found in caught.value.why
    assert "-- IMAGE" in caught.value.hint


def test_where_jobs_have_no_steps_it_is_made_on_the_login_node(tmp_path: Path, scripts: Scripts) -> None:
    launch = Launch(tmp_path, True, container=Container())
    launch.context.scheduler = Lsf()
    assert offer_image(launch.plan, launch.context)
    assert "Build it now, on the login node?" in launch.asked.asked[0]
    assert scripts[0][2] == "login"


def test_where_jobs_have_no_steps_none_is_submitted_for_an_image(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def queued(*_: object, **__: object) -> None:
        raise AssertionError("a job was submitted")

    launch = Launch(tmp_path)
    launch.context.scheduler = Lsf()
    monkeypatch.setattr(job_command, "queue_session", queued)
    monkeypatch.setattr(images, "open_context", lambda *_, **__: contextlib.nullcontext(launch.context))
    with pytest.raises(LauncherError) as caught:
        make_image(
            launch.plan,
            Recipe("docker://x", "x.sif"),
            "job",
            launch.view,
            launch.asked,
            launch.context.interrupts,
        )
    assert "lsf" in caught.value.what
    assert caught.value.hint == "on the login node: add --login"


def test_the_session_after_it_bears_the_time_at_which_its_job_is_submitted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An image takes its time: the cluster's clock was read before."""
    launch = Launch(tmp_path)
    at = datetime(2026, 11, 23, 23, 50, tzinfo=timezone.utc)
    launch.context.site = site = Site(str(tmp_path), "alice", "login", at, read_at=time.time() - 1200)
    monkeypatch.setattr("notebook_launcher.jobs.submit.queue_job", lambda *_: JobRef("7"))
    session, _ = queue_session(launch.plan, launch.context)
    assert session.id.startswith("20261124-001")
    assert session.record.created.microsecond == 0
    plan = dataclasses.replace(launch.plan, request=Request({"begin": "00:05"}))
    assert any("it is 00:1" in note for note in notes_before(plan, Slurm(), site))
