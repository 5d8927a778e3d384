"""Nothing that a server or a job says reaches the terminal raw."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import io
import re
import socket
import threading
import typing
import unicodedata
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import paramiko
import pytest
from hypothesis import HealthCheck, assume, example, given, settings
from hypothesis import strategies as st
from paramiko.common import AUTH_FAILED, AUTH_SUCCESSFUL
from paramiko.server import InteractiveQuery
from rich.console import Console

from notebook_launcher.cli.prompts import TerminalPrompts
from notebook_launcher.cli.views import errors as errors_view
from notebook_launcher.cli.views.base import BaseView
from notebook_launcher.cli.views.json_view import JsonView
from notebook_launcher.cli.views.make_view import make_view
from notebook_launcher.cli.views.text_view import TextView
from notebook_launcher.core import events
from notebook_launcher.core.errors import JobFailed, LauncherError, SubmitRefused
from notebook_launcher.core.frozen import Frozen, complete
from notebook_launcher.hosts.paramiko.login import Credentials
from notebook_launcher.hosts.ssh_config import Destination
from tests.doubles import wait_until
from tests.fuzzing import examples
from tests.ssh_server import ENGINES

pytestmark = [pytest.mark.timeout(60), pytest.mark.real_time]


EVIL = "\033]0;owned\007\033[31m\x9b2J\u202eCode\x08\x7f"


class Asking(paramiko.ServerInterface):
    """A server whose questions are full of what a terminal would obey."""

    def get_allowed_auths(self, username: str) -> str:
        return "keyboard-interactive"

    def check_auth_none(self, username: str) -> int:
        return AUTH_FAILED

    def check_auth_interactive(self, username: str, submethods: str) -> InteractiveQuery:
        return InteractiveQuery(f"title {EVIL}", f"instructions {EVIL}\n", (f"question {EVIL}: ", False))

    def check_auth_interactive_response(self, responses: list[str]) -> int:
        return AUTH_SUCCESSFUL if responses == ["known"] else AUTH_FAILED

    def get_banner(self) -> tuple[str, str]:
        return (f"banner {EVIL}\r\n", "en")


@pytest.fixture
def asking(tmp_path: Path) -> Iterator[Destination]:
    key = paramiko.ECDSAKey.generate()
    transports: list[paramiko.Transport] = []
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]

        def serve() -> None:
            with contextlib.suppress(OSError, paramiko.SSHException, EOFError):
                while True:
                    transport = paramiko.Transport(listener.accept()[0])
                    transports.append(transport)
                    transport.add_server_key(key)
                    transport.start_server(server=Asking())

        threading.Thread(target=serve, daemon=True).start()
        (tmp_path / "known").write_text(f"[127.0.0.1]:{port} {key.get_name()} {key.get_base64()}\n")
        (tmp_path / "config").write_text(
            f"Host server\n  HostName 127.0.0.1\n  Port {port}\n  User alice\n  UserKnownHostsFile {tmp_path}/known\n"
            f"  GlobalKnownHostsFile none\n  IdentityFile {tmp_path}/no-key\n"
        )
        yield Destination("server", config_file=str(tmp_path / "config"))
    for transport in transports:
        transport.close()


TURNING = set("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069\u200e\u200f\u061c\u2028\u2029")


def obeyed(text: str) -> list[str]:
    """What of a text a terminal would obey, or be turned round by."""
    controls = {char for char in text if unicodedata.category(char) in ("Cc", "Cs")} - set("\n\t")
    return sorted(controls | TURNING & set(text))


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A terminal on standard input; what is asked on it, and what it answers."""
    asked: list[str] = []

    def answer(question: str) -> str:
        asked.append(question)
        return "known"

    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    monkeypatch.setattr("getpass.getpass", answer)
    monkeypatch.setattr("builtins.input", answer)
    return asked


@pytest.mark.parametrize("engine", list(ENGINES))
def test_a_servers_questions_are_asked_in_plain_words(
    asking: Destination, engine: str, terminal: list[str], capfd: pytest.CaptureFixture[str]
) -> None:
    ENGINES[engine](asking, Credentials(TerminalPrompts(BaseView(), interactive=True))).close()
    assert len(terminal) == 1
    assert "question" in terminal[0]
    assert "Code" in terminal[0]
    assert obeyed(terminal[0]) == []
    shown = capfd.readouterr()
    assert obeyed(shown.out + shown.err) == []


@pytest.mark.parametrize("engine", list(ENGINES))
def test_what_a_server_says_around_its_questions_is_shown_with_them(
    asking: Destination, engine: str, terminal: list[str]
) -> None:
    """It may be the challenge to be answered."""
    ENGINES[engine](asking, Credentials(TerminalPrompts(BaseView(), interactive=True))).close()
    assert "title" in terminal[0]
    assert "instructions" in terminal[0]


WILD = st.text(
    st.sampled_from("\x1b\x9b\x9d\x90\x07\x08\r\n\t\x00\x7f[]()0;mKJ\\ \u202e\u2066é雪") | st.characters(codec="utf-8")
)


@given(WILD, st.booleans())
@example(EVIL, True)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_no_question_reaches_the_terminal_raw(terminal: list[str], text: str, echo: bool) -> None:
    terminal.clear()
    prompts = TerminalPrompts(BaseView(), interactive=True)
    prompts.secret(text, echo=echo)
    prompts.confirm(text)
    assert len(terminal) == 4  # what is neither yes nor no is asked for three times
    assert obeyed("".join(terminal)) == []


class Screen(io.StringIO):
    """A terminal's output."""

    def isatty(self) -> bool:
        return True


@given(WILD)
@example(EVIL)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
def test_no_question_does_while_the_keyboard_is_listened_to(terminal: list[str], text: str) -> None:
    with contextlib.redirect_stderr(Screen()) as shown:
        view = BaseView()
        view.listening = True
        prompts = TerminalPrompts(view, interactive=True)
        for ask in (lambda: prompts.confirm(text), lambda: prompts.secret(text, echo=True)):
            keys = threading.Thread(target=type_into, args=(view, "yes"))
            keys.start()
            assert ask() in (True, "yes")
            keys.join()
    assert obeyed(shown.getvalue()) == []


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        (["maybe", "", "YES "], True),
        (["y"], True),
        ([" N "], False),
        (["no"], False),
        (["connect", "yy", "ja", "yes"], None),
        ([], None),  # Ctrl-D
    ],
)
def test_a_question_wants_yes_or_no(
    terminal: list[str], monkeypatch: pytest.MonkeyPatch, typed: list[str], meant: bool | None
) -> None:
    answers = iter(typed)

    def answer(question: str) -> str:
        terminal.append(question)
        try:
            return next(answers)
        except StopIteration:
            raise EOFError from None

    monkeypatch.setattr("builtins.input", answer)
    assert TerminalPrompts(BaseView(), interactive=True).confirm("Is it?") is meant
    assert terminal[0] == "Is it? [yes/no] " and all("yes or no" in again for again in terminal[1:])


def type_into(view: BaseView, line: str) -> None:
    wait_until(lambda: view._answers is not None)
    view._pass_on(line)


type_hints = functools.cache(typing.get_type_hints)  # hundreds of examples ask for the same ones


def filled(kind: type[Any], text: str) -> Any:
    """Return an event of a kind, or a part of one, with the same text wherever there is room for one."""
    complete(kind)
    hints = type_hints(kind)
    return kind(**{field.name: value_of(hints[field.name], text) for field in dataclasses.fields(kind)})


def value_of(hint: Any, text: str) -> Any:
    kinds = [kind for kind in typing.get_args(hint) if kind not in (type(None), ...)]
    if typing.get_origin(hint) is tuple:
        return (value_of(kinds[0], text),) * 2
    if typing.get_origin(hint) is dict:
        return {text: text}
    if len(kinds) == 1:  # or None
        return value_of(kinds[0], text)
    if isinstance(hint, type) and issubclass(hint, Frozen):
        return filled(hint, text)
    return {int: 8888, float: 1.5, bool: True}.get(hint, text)


# dry runs show the user's own words, to be copied as they are
KINDS = [kind for kind in events.Event.__subclasses__() if kind not in (events.DryRun, events.Problem)]


@pytest.mark.parametrize("verbose", [False, True])
@given(WILD)
@example(EVIL)
@settings(deadline=None, max_examples=examples(20))
def test_no_event_is_shown_raw(verbose: bool, text: str) -> None:
    shown = io.StringIO()
    assume(text)
    with TextView(Console(file=shown, width=80, no_color=True), verbose=verbose) as view:
        for kind in KINDS:
            view.show(filled(kind, text))
    assert obeyed(shown.getvalue()) == []


def test_names_in_colons_are_no_pictures(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    with make_view(as_json=False) as view:
        for kind in KINDS:
            view.show(filled(kind, "a:smile:b"))
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    errors_view.report(LauncherError("a:smile:b", why="a:smile:b", hint="a:smile:b"), as_json=False)
    shown = capsys.readouterr()
    assert "a:smile:b" in shown.out and shown.err.count("a:smile:b") >= 3
    assert (shown.out + shown.err).count("smile") == (shown.out + shown.err).count(":smile:") > 20
    assert not re.search("[\U0001f300-\U0001faff]", shown.out + shown.err)


@given(WILD)
@example(EVIL)
@settings(deadline=None, max_examples=examples(20))
def test_not_even_on_the_line_that_is_written_over(text: str) -> None:
    """A terminal's waiting line is moved about by rich itself: compared with that of an event without a word."""

    def escapes(text: str) -> set[str]:
        shown = io.StringIO()
        with TextView(Console(file=shown, width=80, force_terminal=True, color_system=None)) as view:
            view.show(events.Pending("7", "PENDING", text, f"x{text}", text))
        return set(re.findall(r"\x1b(?:\[[0-9?;]*[A-Za-z])?|[\x00-\x08\x0b-\x1f\x7f-\x9f]", shown.getvalue()))

    assert escapes(text) <= escapes("quiet") | {"\x1b[1A"}  # a line higher


@given(WILD)
@example(EVIL)
def test_json_is_one_line_without_control_characters(text: str) -> None:
    for kind in (*KINDS, events.DryRun, events.Problem):
        with contextlib.redirect_stdout(io.StringIO()) as shown:
            JsonView().show(filled(kind, text))
        assert shown.getvalue().count("\n") == 1
        assert obeyed(shown.getvalue()) == []


@given(WILD, st.sampled_from([LauncherError, JobFailed, SubmitRefused]))
@example(EVIL, JobFailed)
def test_no_error_is_shown_raw(text: str, kind: type[LauncherError]) -> None:
    with contextlib.redirect_stderr(io.StringIO()) as shown:
        errors_view.report(kind(text, why=text, hint=text, log=[text, text]), as_json=False)
    assert obeyed(shown.getvalue()) == []
