"""What a launch looks at on the login node before it submits a job."""

from __future__ import annotations

from datetime import datetime, timezone
from pathlib import Path

import pytest

from notebook_launcher.core.command_result import CommandResult
from notebook_launcher.core.errors import ConnectionLost, ImageUnusable
from notebook_launcher.core.request import Request
from notebook_launcher.hosts.local import LocalHost
from notebook_launcher.planning.plan import Plan, make_plan
from notebook_launcher.planning.target import LaunchOptions, LaunchTarget, LocalMachine
from notebook_launcher.profiles.models import ClusterProfile, Environment
from notebook_launcher.session.preflight import check_software
from notebook_launcher.session.record import Site

TARGET = LaunchTarget(ClusterProfile(), None, None, "slurm")


class Host(LocalHost):
    """This machine as the login node; counts what it is asked."""

    def __init__(self) -> None:
        super().__init__()
        self.asked = 0

    def run(self, *arguments: object, **options: object) -> CommandResult:
        self.asked += 1
        return super().run(*arguments, **options)  # type: ignore[arg-type]


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "torch.sif").touch()
    return tmp_path


def warned(
    container: str | None, home: Path, host: LocalHost, *, typed: bool = True, here: bool = False, command: str = ""
) -> str | None:
    environment = Environment(container_command=command or None)
    plan = Plan(TARGET, Request({}), None, environment, container, container_typed=typed)
    site = Site(str(home), "alice", "login", datetime.now(timezone.utc))
    return check_software(host, site, plan, same_machine=here)


@pytest.mark.parametrize("name", ["~/torhc.sif", "$HOME/torhc.sif"])
def test_an_image_that_is_not_in_the_home_is_refused(home: Path, name: str) -> None:
    with pytest.raises(ImageUnusable) as caught:
        warned(name, home, Host())
    assert caught.value.what.startswith(f"There is no image {home}/torhc.sif")
    assert (caught.value.why, caught.value.hint) == ("Nothing was submitted.", f"did you mean {home}/torch.sif?")


def test_what_only_the_nodes_may_have_is_a_warning(home: Path) -> None:
    """A login node need not have the nodes' own disks; this machine, which is the node as well, does."""
    warning = warned("/no-such-scratch/x.sif", home, Host())
    assert warning is not None and "/no-such-scratch/x.sif" in warning and "unless its compute node has it" in warning
    with pytest.raises(ImageUnusable):
        warned("/no-such-scratch/x.sif", home, Host(), here=True)


@pytest.mark.parametrize(
    ("container", "typed", "command", "asked"),
    [
        ("~/torch.sif", True, "", 1),
        ("~/torhc.sif", False, "", 0),  # the profile's: doctor checks that
        ("docker://debian", True, "", 0),
        ("localhost/lab:4", True, "podman", 0),
        ("/lab", True, "podman", 0),
        ("~/no.sqsh", True, "podman", 0),
    ],
)
def test_what_is_not_refused_and_what_it_costs(
    home: Path, container: str, typed: bool, command: str, asked: int
) -> None:
    host = Host()
    assert warned(container, home, host, typed=typed, command=command) is None
    assert host.asked == asked


def test_a_login_node_that_does_not_answer_refuses_nothing(home: Path) -> None:
    class Away(LocalHost):
        def run(self, *_: object, **__: object) -> CommandResult:
            raise ConnectionLost("The connection is lost.")

    assert warned("~/torhc.sif", home, Away()) is None


@pytest.mark.parametrize(
    ("words", "typed"), [((), False), (("tf",), False), (("tf", "/x.sif"), True), (("/x.sif",), True)]
)
def test_who_named_the_image(words: tuple[str, ...], typed: bool) -> None:
    profile = ClusterProfile(environment="tf", environments={"tf": Environment(container="/i.sif")})
    target = LaunchTarget(profile, "uni", None, "slurm")
    plan = make_plan(LaunchOptions({}, cluster="uni", arguments=words), LocalMachine("laptop", False), target)
    assert plan.container_typed is typed
