"""Errors and events, and that the documentation tells them as they are."""

from __future__ import annotations

import inspect
import io
import json
import re
from typing import Any

import pytest
from rich.console import Console

from notebook_launcher.cli.views.errors import error_lines, report
from notebook_launcher.cli.views.json_view import JsonView
from notebook_launcher.cli.views.text_view import TextView
from notebook_launcher.core import errors, events
from notebook_launcher.core.errors import JobFailed, LauncherError
from tests.event_schema import schema
from tests.paths import DOCS

ALL_ERRORS = [
    kind
    for kind in vars(errors).values()
    if isinstance(kind, type) and issubclass(kind, LauncherError) and kind is not LauncherError
]
ALL_EVENTS = [
    kind
    for kind in vars(events).values()
    if isinstance(kind, type) and issubclass(kind, events.Event) and kind is not events.Event
]
HEAD = ["event", "version", "time", "elapsed"]


# --- errors --------------------------------------------------------------------------------------------------


def test_every_cause_has_an_exit_code_of_its_own() -> None:
    codes = [kind.exit_code for kind in ALL_ERRORS]
    assert len(codes) == len(set(codes))
    # 0 is success, 1 a bug; 126 to 128 and 129 are the shell's; 130 is what a shell says after Ctrl-C
    assert all(2 <= code < 126 or code == 130 for code in codes)


def test_the_exit_codes_are_a_promise() -> None:
    """Scripts depend on them. A new error gets a new code; these stay."""
    promised = {
        "UsageError": 2, "ProfileError": 3, "EnvironmentUnknown": 4, "ConnectionFailed": 10, "AuthenticationFailed": 11,
        "HostKeyUnknown": 12, "HostKeyChanged": 13, "NodeUnreachable": 14, "ConnectionLost": 15,
        "HostCommandFailed": 16, "SubmitRefused": 20, "SchedulerMissing": 21, "SubmitUncertain": 22,
        "JobNeverStarts": 23, "JobFailed": 30, "JobCancelled": 31, "JobTimedOut": 32, "JobLost": 33,
        "JupyterSilent": 34, "JobSilent": 35, "SessionNotFound": 40, "CancelFailed": 41, "AccountRefused": 50,
        "PartitionRefused": 51, "QosRefused": 52, "ReservationRefused": 53, "WalltimeRefused": 54, "GresRefused": 55,
        "ConstraintRefused": 56, "SizeRefused": 57, "LicenceRefused": 58, "LimitRefused": 59, "NoRoom": 60,
        "ClusterRefused": 61, "DependencyRefused": 62, "SchedulerAway": 63, "OurBug": 70, "OutOfMemory": 80,
        "NodeFailed": 81, "Preempted": 82, "BootFailed": 83, "DeadlinePassed": 84, "Revoked": 85, "ModuleFailed": 90,
        "ImageUnusable": 91, "BindMissing": 92, "ContainerFailed": 93, "ActivationFailed": 94, "JupyterMissing": 95,
        "JupyterCrashed": 96, "JupyterSlow": 97, "HomeUnusable": 98, "Interrupted": 130,
        "LoginShellSilent": 18, "LoginSetupFailed": 29,
    }  # fmt: skip
    assert promised.items() <= {kind.__name__: kind.exit_code for kind in ALL_ERRORS}.items()


@pytest.mark.parametrize(
    ("family", "codes"),
    [(errors.SubmitRefused, {20, *range(50, 70)}), (errors.JobFailed, {30, *range(80, 100)})],
)
def test_a_script_tells_families_apart_by_ranges(family: type[LauncherError], codes: set[int]) -> None:
    """As docs/errors.md says, where these ranges stand."""
    assert {kind for kind in ALL_ERRORS if kind.exit_code in codes} == {
        kind for kind in ALL_ERRORS if issubclass(kind, family)
    }
    first, *rest = sorted(codes)
    assert f"{first}, or {rest[0]} to {rest[-1]}" in (DOCS / "errors.md").read_text()


def documented_errors() -> dict[str, int]:
    rows = re.findall(r"^\| (\d+) \| (\w+) \| (.+) \| (.+) \|$", (DOCS / "errors.md").read_text(), re.M)
    assert [int(code) for code, *_ in rows] == sorted(int(code) for code, *_ in rows)
    assert all(when.endswith(".") for _, _, when, _ in rows)
    return {name: int(code) for code, name, _, _ in rows}


def test_every_error_is_documented_with_its_code_and_no_other() -> None:
    assert documented_errors() == {kind.__name__: kind.exit_code for kind in ALL_ERRORS}


def test_every_error_says_when_it_is_raised_and_bears_its_name_and_exit_code() -> None:
    for kind in ALL_ERRORS:
        error = kind("It broke.")
        assert kind.__doc__, kind
        assert (error.kind, error.exit_code, str(error)) == (kind.__name__, kind.exit_code, "It broke.")


@pytest.mark.parametrize("kind", [errors.UsageError, errors.OurBug, JobFailed, errors.OutOfMemory, errors.Interrupted])
def test_an_error_tells_what_why_and_what_to_do(kind: type[LauncherError], capsys: pytest.CaptureFixture[str]) -> None:
    error = kind("It broke.", why="So it said.", hint="type: this", log=["one", "two"])
    assert error_lines(error) == [
        "launch-notebook: It broke.",
        "  So it said.",
        "  The end of the job's log:",
        "  | one",
        "  | two",
        "  → type: this",
    ]
    assert report(error, as_json=False) == kind.exit_code
    output = capsys.readouterr()
    assert output.err.splitlines() == error_lines(error)
    assert output.out == ""


class Terminal(io.StringIO):
    """A standard error that is a terminal."""

    def isatty(self) -> bool:
        return True


def test_an_error_is_folded_between_words_in_a_terminal_and_nowhere_in_a_pipe(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    address = "https://www.uni.example/" + 60 * "x"
    log = ["word " * 20 + "end", address]
    hint = f"one word and another one before it: launch-notebook clusters edit uni -A proj1; see: {address}"
    error = JobFailed("It broke " * 10, why="So it said " * 10, hint=hint, log=log)
    report(error, as_json=False)
    assert capsys.readouterr().err.splitlines() == error_lines(error)
    monkeypatch.setattr("sys.stderr", screen := Terminal())
    report(error, as_json=False)
    lines = [re.sub(r"\x1b\[[\d;]*m", "", line).rstrip() for line in screen.getvalue().splitlines()]
    assert all(len(line) <= 60 or line.split()[-1] == address for line in lines)
    assert "    launch-notebook clusters edit uni -A proj1; see:" in lines
    for line in error_lines(error):
        assert set(line.split()) <= set(" ".join(lines).split()), "no word is broken"
    assert sum(line.startswith("  | word") for line in lines) == 2


def test_a_long_path_is_not_parted_from_the_programs_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    monkeypatch.setattr("sys.stderr", screen := Terminal())
    path = f"/home/you/{40 * 'x'}/uni.toml:3:"
    report(errors.ProfileError(f"{path} “hots” is no key."), as_json=False)
    assert f"launch-notebook: {path}" in screen.getvalue()


def test_an_error_says_no_more_than_it_knows() -> None:
    assert error_lines(JobFailed("It broke.")) == ["launch-notebook: It broke."]


# --- events --------------------------------------------------------------------------------------------------


def documented_events() -> dict[str, list[str]]:
    text = (DOCS / "json.md").read_text()
    found = {}
    for section in re.split(r"^### ", text, flags=re.M)[1:]:
        name = re.match(r"`(\w+)`", section)
        assert name, section[:20]
        found[name[1]] = re.findall(r"^\| `(\w+)` \| \S.* \|$", section.partition("\n## ")[0], re.M)
    return found


def test_every_event_is_documented_with_its_fields_in_their_order() -> None:
    assert documented_events() == {kind.name: [f.name for f in kind.fields()] for kind in ALL_EVENTS}
    general = (DOCS / "json.md").read_text().partition("## The events")[0]
    assert re.findall(r"^\| `(\w+)` \|", general, re.M) == HEAD


def test_the_example_stream_is_one() -> None:
    text = (DOCS / "json.md").read_text()
    lines = [line for block in re.findall(r"```json\n(.*?)```", text, re.S) for line in block.splitlines()]
    documented = documented_events()
    assert len(lines) >= 7
    for line in lines:
        data = json.loads(line)
        assert list(data) == HEAD + documented[data["event"]], line
        kind = next(kind for kind in ALL_EVENTS if kind.name == data["event"])
        kind(**{name: value for name, value in data.items() if name not in HEAD})
        assert re.fullmatch(r"20\d\d-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}\+00:00", data["time"])


def sample(kind: type[events.Event]) -> events.Event:
    values = {"int": 7, "tuple[str, ...]": ("a\nb", "ü"), "str": "a\nb ü", "float": 1.5, "bool": True}
    values |= {"dict[str, object]": {"a\nb": "ü"}, "tuple[tuple[str, str], ...]": (("a\nb", "ü"),)}
    values |= {"ResourceLoad": events.ResourceLoad("t4", 1, 0, 0)} if nests(kind) else {}
    values |= {"dict[str, int]": {"running": 1}}
    values |= {"SessionEntry": sample(events.SessionEntry)} if nests(kind) else {}

    def value(name: str) -> object:
        return values[name] if name in values else () if name.startswith("tuple") else None

    return kind(**{field.name: value(str(field.type)) for field in kind.fields()})


def nests(kind: type[events.Event]) -> bool:
    return kind in (events.Queue, events.Status)


@pytest.fixture(scope="module")
def validator() -> Any:
    """The documented schema, compiled once: that takes longer than all that it is held against."""
    import jsonschema  # which alone takes seconds to import

    return jsonschema.Draft202012Validator(json.loads((DOCS / "events.schema.json").read_text()))


@pytest.mark.parametrize("kind", ALL_EVENTS, ids=lambda kind: kind.name)
def test_an_event_is_printed_on_one_line_as_documented(
    kind: type[events.Event], validator: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    view = JsonView()
    view.show(sample(kind))
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 1
    data = json.loads(lines[0])
    assert list(data) == HEAD + [field.name for field in kind.fields()]
    assert data["event"] == kind.name
    validator.validate(data)


def test_the_schema_is_that_of_the_events() -> None:
    """Written anew with: python -m tests.event_schema."""
    assert json.loads((DOCS / "events.schema.json").read_text()) == schema()


def test_an_error_is_printed_as_the_documented_event(capsys: pytest.CaptureFixture[str]) -> None:
    assert report(JobFailed("It broke.", why="w", hint="m", log=["one"]), as_json=True) == 30
    output = capsys.readouterr()
    assert output.err == ""
    data = json.loads(output.out)
    assert list(data) == HEAD + documented_events()["error"]
    assert (data["event"], data["kind"], data["log"], data["exit_code"]) == ("error", "JobFailed", ["one"], 30)


def test_every_event_has_its_method_in_the_view_for_people() -> None:
    dispatcher = inspect.getattr_static(TextView, "_display").dispatcher
    handled = set(dispatcher.registry) - {object}
    assert handled == set(ALL_EVENTS) - {events.Problem}, "errors are printed by report()"
    with pytest.raises(TypeError, match="does not show Problem"), TextView(Console()) as view:
        view.show(sample(events.Problem))


def test_every_event_is_shown_in_words(capsys: pytest.CaptureFixture[str]) -> None:
    for kind in ALL_EVENTS:
        # shown by the report; with the others, when all are there; in place, in a terminal
        if kind in (events.Problem, events.Alternative, events.SessionEntry, events.Attached, events.TasksProgress):
            continue
        detail = kind in (events.Connected, events.TunnelOpened)  # for who asks for details
        with TextView(Console(width=80), verbose=detail) as view:
            view.show(sample(kind))
        assert capsys.readouterr().out.strip(), kind
