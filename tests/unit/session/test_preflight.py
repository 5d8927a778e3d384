"""What a launch looks at on the login node before it submits a job."""

from __future__ import annotations

from datetime import datetime, timezone
from pathlib import Path

import pytest

from notebook_launcher.core.command_result import CommandResult
from notebook_launcher.core.errors import ConnectionLost, ImageNotMade, ImageUnusable
from notebook_launcher.core.request import Request
from notebook_launcher.hosts.local import LocalHost
from notebook_launcher.planning.plan import Plan, make_plan
from notebook_launcher.planning.target import LaunchOptions, LaunchTarget, LocalMachine
from notebook_launcher.profiles.models import ClusterProfile, Container, Environment
from notebook_launcher.session.preflight import SoftwareCheck, check_software, inspects_image
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


def test_a_profiles_image_that_is_not_there_is_a_warning(home: Path) -> None:
    """What is wrong in a profile that others share refuses no launch, but is said before the job has waited."""
    warning = warned("~/torhc.sif", home, Host(), typed=False)
    assert warning is not None and f"There is no image {home}/torhc.sif" in warning
    assert "unless its compute node has it" in warning


def test_an_image_that_the_user_can_make_is_asked_for_before_the_queue(home: Path) -> None:
    built = Environment(container="~/i/torch.sif", definition="torch")
    pulled = Environment(container="~/i/torch.sif", source="docker://example/torch:2")
    for environment, verb in ((built, "build"), (pulled, "pull")):
        with pytest.raises(ImageNotMade) as caught:
            checked(home, environment)
        assert caught.value.what.endswith(f"does not exist yet: {home}/i/torch.sif")
        assert f"{verb} it once with: launch-notebook image {verb} torch --cluster uni " in caught.value.hint


@pytest.mark.parametrize("definition", ["./mine.def", "../../etc/passwd", "no-such", None])
def test_of_the_definitions_only_the_launchers_own_are_offered(home: Path, definition: str | None) -> None:
    """Another one is a file of this machine, which a course from elsewhere may not choose."""
    warning = checked(home, Environment(container="~/i/torch.sif", definition=definition))
    assert warning is not None and f"There is no image {home}/i/torch.sif" in warning


@pytest.mark.parametrize("definition", ["./mine.def", "../../etc/passwd", "no-such"])
def test_beside_another_definition_the_source_is_offered(home: Path, definition: str) -> None:
    environment = Environment(container="~/i/torch.sif", definition=definition, source="docker://example/torch:2")
    with pytest.raises(ImageNotMade) as caught:
        checked(home, environment)
    assert "launch-notebook image pull torch --cluster uni " in caught.value.hint


@pytest.mark.parametrize("command", ["charliecloud", "enroot"])
@pytest.mark.parametrize("where", ["profile", "environment"])
def test_no_image_is_offered_for_a_command_whose_images_are_not_made(home: Path, command: str, where: str) -> None:
    environment = Environment(container="~/i/torch.sif", definition="torch", container_command=command)  # type: ignore[arg-type]
    profile = ClusterProfile()
    if where == "profile":
        environment = environment.changed(container_command=None)
        profile = ClusterProfile(container=Container(command=command))  # type: ignore[arg-type]
    warning = checked(home, environment, profile)
    assert warning is not None and f"There is no image {home}/i/torch.sif" in warning


def test_an_image_that_only_the_nodes_may_have_is_not_made(home: Path) -> None:
    warning = checked(home, Environment(container="/no-such-scratch/x.sif", definition="torch"))
    assert warning is not None and "unless its compute node has it" in warning


def test_an_image_that_was_made_is_used(home: Path) -> None:
    assert checked(home, Environment(container="~/torch.sif", definition="torch")) is None


def checked(home: Path, environment: Environment, profile: ClusterProfile | None = None) -> str | None:
    target = LaunchTarget(profile or ClusterProfile(), "uni", None, "slurm")
    plan = Plan(target, Request({}), "torch", environment, environment.container)
    site = Site(str(home), "alice", "login", datetime.now(timezone.utc))
    return check_software(Host(), site, plan, same_machine=False)


# as Lmod and Environment Modules export it to every shell below a login shell
MODULES = """() {{
  [[ $1 == use ]] && used=$2
  [[ $1 == load ]] || return 0
  [[ $2 == torch/2 || $2 == hidden/1 && ${{used-}} == */mods ]] && LOADEDMODULES=${{LOADEDMODULES-}}:$2 && return
  echo "Lmod has detected the following error: $2" >&2
  return {status}
}}"""


@pytest.mark.parametrize("status", [1, 0], ids=["says so", "reports success, as old implementations do"])
@pytest.mark.parametrize(
    ("modules", "use", "missing"),
    [
        (("torch/2",), (), None),
        (("torch/2", "tensorflow/2.0"), (), "tensorflow/2.0"),
        (("torch/3", "torch/4"), (), "torch/3"),
        (("hidden/1",), ("~/mods",), None),
        (("hidden/1",), (), "hidden/1"),
    ],
)
def test_a_module_that_does_not_load_is_named_before_the_queue(
    home: Path,
    monkeypatch: pytest.MonkeyPatch,
    modules: tuple[str, ...],
    use: tuple[str, ...],
    missing: str | None,
    status: int,
) -> None:
    monkeypatch.setenv("BASH_FUNC_module%%", MODULES.format(status=status))
    monkeypatch.delenv("LMOD_VERSION", raising=False)
    warning = modules_warned(home, Environment(modules=modules, module_use=use))
    if missing is None:
        assert warning is None
    else:
        assert warning is not None and warning.startswith(f"Module {missing} cannot be loaded on the login node;")
        assert warning.endswith(f"\n  module avail {missing.partition('/')[0]}")


def test_a_module_that_does_not_load_hides_no_missing_image(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is refused is more than a warning; of two warnings both are shown."""
    monkeypatch.setenv("BASH_FUNC_module%%", MODULES.format(status=1))
    monkeypatch.delenv("LMOD_VERSION", raising=False)
    with pytest.raises(ImageNotMade):
        checked(home, Environment(container="~/i/torch.sif", definition="torch", modules=("torch/3",)))
    warning = checked(home, Environment(container="~/torhc.sif", modules=("torch/3",)))
    assert warning is not None and "Module torch/3 cannot be loaded" in warning
    assert f"There is no image {home}/torhc.sif" in warning


def test_with_lmod_the_command_is_the_one_that_also_shows_hidden_modules(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BASH_FUNC_module%%", MODULES.format(status=1))
    monkeypatch.setenv("LMOD_VERSION", "8.7")
    warning = modules_warned(home, Environment(modules=("torch/3",)))
    assert warning is not None and warning.endswith("\n  module spider torch")


def test_a_uv_project_without_an_environment_is_told_how_to_make_it(home: Path) -> None:
    (home / "my course").mkdir()
    warning = modules_warned(home, Environment(uv="~/my course"))
    assert warning is not None and warning.startswith(f"There is no environment in {home}/my course/.venv on the login")
    assert warning.endswith(f" Make it with:\n  uv sync --project '{home}/my course'")


def test_a_shell_needs_no_jupyterlab(home: Path) -> None:
    (home / "lab/bin").mkdir(parents=True)
    (home / "lab/bin/python").touch(mode=0o755)
    plan = Plan(TARGET, Request({}), None, Environment(venv="~/lab"), None)
    site = Site(str(home), "alice", "login", datetime.now(timezone.utc))
    warning = check_software(Host(), site, plan, same_machine=False)
    assert warning is not None and warning.startswith("There is no JupyterLab in")
    assert check_software(Host(), site, plan, same_machine=False, jupyterlab=False) is None


def test_without_a_module_command_nothing_is_known(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BASH_FUNC_module%%", "")
    assert modules_warned(home, Environment(modules=("torch/3",))) is None


def modules_warned(home: Path, environment: Environment) -> str | None:
    plan = Plan(TARGET, Request({}), None, environment, None)
    site = Site(str(home), "alice", "login", datetime.now(timezone.utc))
    return SoftwareCheck(LocalHost(), site, plan, same_machine=False).result()


@pytest.mark.parametrize(
    ("container", "command", "is_file"),
    [
        ("/sw/torch.sif", None, True),
        ("~/torch.sif", "apptainer", True),
        ("$HOME/torch.sif", None, True),
        ("${HOME}/torch.sif", "singularity", True),
        ("docker://python:3.12", None, False),
        ("$HOMES/torch.sif", None, False),
        ("torch.sif", None, False),
        ("/sw/torch.sif", "shifter", False),
        (None, None, False),
    ],
)
def test_a_shell_waits_for_the_check_of_an_image_only_if_there_is_one(
    home: Path, monkeypatch: pytest.MonkeyPatch, container: str | None, command: str | None, is_file: bool
) -> None:
    def run_script(_host: Host, *_: object, **__: object) -> CommandResult:
        ran.append(True)
        return CommandResult(0)

    ran: list[bool] = []
    monkeypatch.setattr(Host, "run_script", run_script)
    warned(container, home, Host(), command=command or "")
    plan = Plan(TARGET, Request({}), None, Environment(container_command=command), container)
    assert (inspects_image(plan), bool(ran)) == (is_file, is_file)


def test_what_the_check_raises_it_raises_where_it_is_waited_for(home: Path) -> None:
    plan = Plan(TARGET, Request({}), None, Environment(), "~/torhc.sif", container_typed=True)
    check = SoftwareCheck(
        LocalHost(), Site(str(home), "alice", "login", datetime.now(timezone.utc)), plan, same_machine=False
    )
    with pytest.raises(ImageUnusable):
        check.result()


def test_a_bug_in_the_check_is_raised_there_as_well(home: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """And prints no traceback of a thread."""

    class Broken(LocalHost):
        def run(self, *_: object, **__: object) -> CommandResult:
            raise ValueError("not foreseen")

    plan = Plan(TARGET, Request({}), None, Environment(venv="~/lab"), None)
    site = Site(str(home), "alice", "login", datetime.now(timezone.utc))
    with pytest.raises(ValueError, match="not foreseen"):
        SoftwareCheck(Broken(), site, plan, same_machine=False).result()
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize(
    ("container", "typed", "command", "asked"),
    [
        ("~/torch.sif", True, "", 1),
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
    plan = make_plan(LaunchOptions({}, cluster="uni", arguments=words), LocalMachine("laptop"), target)
    assert plan.container_typed is typed
