"""Ctrl-C and a closed terminal in the middle of a bench."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import pytest

from notebook_launcher.bench import command, messages, runner
from notebook_launcher.core.errors import BenchIncomplete, ImageNotMade, Interrupted
from notebook_launcher.core.interrupts import HungUp, Interrupts
from notebook_launcher.planning.plan import Plan
from notebook_launcher.planning.target import LaunchTarget
from notebook_launcher.session.context import Context
from notebook_launcher.session.record import Session
from tests.doubles import FakePrompts
from tests.unit.bench.fake_cluster import (
    PROFILE,
    FakeCluster,
    run,
    states,
)


def interrupted(fake: FakeCluster, kind: str = "end", after: int = 3) -> Interrupts:
    interrupts = Interrupts()

    def interrupt(_session: Session) -> None:
        if len(fake.queued) == after:
            interrupts.arrive(kind)  # type: ignore[arg-type]

    fake.after_queueing = interrupt
    fake.exit_of = lambda _session: None
    return interrupts


def test_ctrl_c_where_nobody_can_be_asked_leaves_the_jobs(fake: FakeCluster) -> None:
    with pytest.raises(Interrupted) as caught:
        run(interrupts=interrupted(fake))
    assert "3 jobs go on." in caught.value.why
    assert "run the same command again" in caught.value.hint
    fake.exit_of = lambda _session: {"cause": "finished"}
    run()
    assert sorted(fake.epochs) == [1, 2, 3, 4, 5, 6]  # type: ignore[type-var]


@pytest.mark.parametrize(("answer", "ended"), [(True, 0), (None, 0), (False, 3)])
def test_ctrl_c_asks_whether_the_jobs_go_on(fake: FakeCluster, answer: bool | None, ended: int) -> None:
    prompts = FakePrompts(confirms=[answer])
    with pytest.raises(Interrupted):
        run(prompts=prompts, interrupts=interrupted(fake))
    assert "3 jobs of this bench are in the queue or running. Let them go on?" in prompts.asked[0]
    assert sum("exit" in files for files in fake.files.values()) == ended
    fake.exit_of = lambda _session: {"cause": "finished"}
    run()
    assert set(states().values()) == {"done"}
    assert len(fake.queued) == 6 + ended


@pytest.mark.parametrize("cause", ["finished", "notebook-failed"])
def test_ctrl_c_while_results_are_fetched_leaves_them_for_the_next_time(fake: FakeCluster, cause: str) -> None:
    interrupts, fetched = Interrupts(), list[Session]()

    def fetch(context: Context, session: Session, _folder: Path) -> None:
        fetched.append(session)
        interrupts.arrive("end")
        assert context.interrupts.exit_requests == 1, "whoever fetches learns of it"
        raise Interrupted("Not all of the results were fetched.")

    fake.fetch, fake.exit_of = fetch, lambda _session: {"cause": cause}
    with pytest.raises(Interrupted) as caught:
        run("EPOCHS=1,2", interrupts=interrupts)
    assert "run the same command again" in caught.value.hint
    assert len(fetched) == 1 and set(states().values()) == {"queued"}
    fake.fetch = fake.usual_fetch
    with contextlib.suppress(BenchIncomplete):
        run("EPOCHS=1,2")
    assert set(states().values()) == {"done" if cause == "finished" else "failed"}
    assert fake.epochs == [1, 2]


def test_what_ended_while_the_question_stood_is_kept(fake: FakeCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    class Slow(FakePrompts):
        def confirm(self, text: str) -> bool | None:
            first, second, _ = fake.queued
            end: dict[str, object] = {"cause": "finished"}
            fake.files[first]["exit"] = end
            # the second one ends by itself just before it would have been cancelled
            fake.cancel = lambda _sessions: fake.files[second].update(exit=end)
            return False

    monkeypatch.setattr(runner, "exit_record", lambda _context, session: fake.files[session.id].get("exit", {}))
    with pytest.raises(Interrupted):
        run("EPOCHS=1,2,3", prompts=Slow(), interrupts=interrupted(fake))
    assert list(states().values()) == ["done", "done", "planned"]
    assert Path("bench-tiny/runs/EPOCHS=2/results.jsonl").exists()
    fake.exit_of = lambda _session: {"cause": "finished"}
    run("EPOCHS=1,2,3")
    assert fake.epochs == [1, 2, 3, 3]
    assert not list(Path("bench-tiny/runs").glob("EPOCHS=3-*"))  # nothing was there that it could have covered


def test_the_command_that_cancels_the_jobs_is_shown_whole(fake: FakeCluster) -> None:
    with pytest.raises(Interrupted) as caught:
        run(interrupts=interrupted(fake))
    assert f"launch-notebook stop --cluster practice {' '.join(fake.queued)}" in caught.value.hint
    assert "stop --cluster practice --all" in messages.cancel_hint(
        ["s"] * 20, LaunchTarget(PROFILE, "practice", None, "slurm")
    )


@pytest.mark.parametrize("kind", [KeyboardInterrupt, Interrupted])
def test_ctrl_c_before_the_jobs_are_found_again_names_them(
    fake: FakeCluster, monkeypatch: pytest.MonkeyPatch, kind: type[BaseException]
) -> None:
    with pytest.raises(Interrupted):
        run(interrupts=interrupted(fake))

    def connect(*_: object, **__: object) -> Any:
        raise kind("Interrupted.")

    monkeypatch.setattr(command, "open_context", connect)
    with pytest.raises(Interrupted) as caught:
        run()
    assert "3 jobs were queued before" in caught.value.why
    assert " ".join(fake.queued) in caught.value.hint


def test_a_closed_terminal_leaves_the_jobs(fake: FakeCluster) -> None:
    with pytest.raises(HungUp):
        run(interrupts=interrupted(fake, "leave"))
    assert list(states().values()).count("queued") == 3


def test_a_missing_image_is_refused_once_per_environment_before_the_first_job(
    fake: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    def check(_host: object, _site: object, plan: Plan, **_: object) -> str | None:
        checked.append(plan.environment_name)
        if plan.environment_name == "tf-mkl" and missing:
            raise ImageNotMade("The image is not there yet.")
        return f"{plan.environment_name} is old."

    checked: list[str | None] = []
    missing = True
    monkeypatch.setattr(command, "check_software", check)
    with pytest.raises(ImageNotMade):
        run("env=tf-gpu,tf-mkl EPOCHS=1,2")
    assert (checked, fake.queued) == (["tf-gpu", "tf-mkl"], [])
    missing = False
    view = run("env=tf-gpu,tf-mkl EPOCHS=1,2")
    assert checked[2:] == ["tf-gpu", "tf-mkl"]
    assert view.notes.count("is old.") == 2
    run("env=tf-gpu,tf-mkl EPOCHS=1,2")
    assert len(checked) == 4, "nothing is left to run"


def test_an_image_that_can_be_made_is_offered_once_and_all_combinations_run_in_it(
    fake: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    def check(_host: object, _site: object, plan: Plan, **_: object) -> str | None:
        if plan.environment_name == "tf-mkl":
            raise ImageNotMade("The image is not there yet.")
        return None

    def offer(plan: Plan, _context: object) -> bool:
        offered.append(plan.environment_name)
        return len(offered) > 1

    offered: list[str | None] = []
    monkeypatch.setattr(command, "check_software", check)
    with pytest.raises(ImageNotMade):
        run("env=tf-gpu,tf-mkl EPOCHS=1,2", offer_image=offer)
    assert (offered, fake.queued) == (["tf-mkl"], [])
    run("env=tf-gpu,tf-mkl EPOCHS=1,2", offer_image=offer)
    assert (offered, len(fake.queued)) == (["tf-mkl", "tf-mkl"], 4)
