"""What a server may ask, and what ssh may say of a login that failed: any text gets an answer or an error of ours."""

from __future__ import annotations

import time
from tempfile import TemporaryDirectory

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from notebook_launcher.core.errors import LauncherError
from notebook_launcher.core.text import printable
from notebook_launcher.hosts.openssh import messages
from notebook_launcher.hosts.openssh.askpass import AskpassServer
from notebook_launcher.hosts.ssh_config import SshSettings
from tests.doubles import FakePrompts

QUESTION_PARTS = st.sampled_from(
    ["alice@login", "'s password: ", "(alice@login) ", "Password:", "Enter passphrase for ", "key '/x': ", "\n",
     " ", "@", "code", "\x1b[2J", "\0", "é", "Are you sure you want to continue connecting (yes/no", "(yes/no)",
     "Please type 'yes'"]
) | st.text(max_size=4)  # fmt: skip
QUESTIONS = st.lists(QUESTION_PARTS, max_size=6).map("".join)
SECRET = "the password of another login"


def asked(hint: str, question: str, memory: dict[str, str], *, asking: bool = True) -> tuple[str | None, FakePrompts]:
    """Return the answer to a question, and who was asked about it."""
    prompts = FakePrompts(secrets=["typed"], confirms=[None])
    with TemporaryDirectory(prefix="nl-", dir="/tmp") as folder:
        server = AskpassServer(f"{folder}/a", prompts, memory, "login", asking=asking, on_declined=lambda: None)
        server.close()
        return server.answer(hint, question), prompts


@given(st.sampled_from(["", "none", "confirm", "x"]), QUESTIONS, st.booleans())
@example("", "alice@login's password: ", True)
def test_no_question_gets_a_secret_of_another_login_or_an_agreement(hint: str, question: str, asking: bool) -> None:
    answer, prompts = asked(hint, question, {f"other: {question}": SECRET, "other: Password:": SECRET}, asking=asking)
    assert answer in (None, "no", "typed")
    assert answer != "typed" or (asking and question in prompts.asked[-1])
    assert asking or not prompts.asked


LINES = st.sampled_from(
    ["debug1: Server host key: ssh-ed25519 SHA256:x", "debug1: Offering public key: /x RSA SHA256:y", "debug1: ",
     "Offending ECDSA key in /x:7", "IDENTIFICATION HAS CHANGED", "Host key verification failed.", "REVOKED HOST KEY",
     "alice@login: Permission denied (publickey).", "Permission denied (", "channel 0: open failed: x",
     "Bad owner or permissions",
     "Could not resolve hostname x: y", "connect to host x port 22: z", "kex_exchange_identification: x", "@", "",
     "debug1: Next authentication method: password", "Too many authentication failures", "Offending x key in :"]
) | st.text(max_size=30)  # fmt: skip
SETTINGS = SshSettings("login", "login.example", "alice", 22)


@given(st.lists(LINES, max_size=6), QUESTIONS)
def test_whatever_ssh_says_of_a_failed_login_is_an_error_with_words(lines: list[str], declined: str) -> None:
    error = messages.explained(SETTINGS, lines, declined)
    assert isinstance(error, LauncherError) and error.what.strip()


LONG = 20_000
LONG_TEXTS = [" " * LONG, "@" * LONG, "a@" * LONG, "\x9d" * LONG, "\x1b]" * LONG, "\x9b" + "0" * LONG,
              "\x1b" + " " * LONG, "new " * LONG, "new" + " " * LONG, "(" * LONG, "\n" * LONG, "\x90\x98" * LONG,
              "channel 1" * LONG, "Offending x key in " * LONG, "connect to host x port " * LONG]  # fmt: skip


@pytest.mark.parametrize("text", LONG_TEXTS, ids=lambda text: repr(text[:9]))
def test_no_text_takes_long_to_be_answered_or_shown(text: str) -> None:
    began = time.process_time()
    printable(text)
    asked("", text, {})
    messages.explained(SETTINGS, [text])
    assert time.process_time() - began < 2
