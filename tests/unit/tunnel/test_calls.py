"""What the launcher makes of a call's answer."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from notebook_launcher.core.command_result import CommandResult
from notebook_launcher.core.errors import NodeUnreachable
from notebook_launcher.core.text import printable
from notebook_launcher.hosts.local import LocalHost
from notebook_launcher.tunnel.calls import call_job
from notebook_launcher.tunnel.routes import find_route
from tests.unit.tunnel.test_routes import NODE, FakeHost, target


class Answering(FakeHost):
    def __init__(self, printed: str) -> None:
        super().__init__()
        self.printed = printed

    def run(self, *_: object, **__: object) -> CommandResult:
        return CommandResult(0, self.printed)


def refused(printed: str) -> NodeUnreachable:
    with pytest.raises(NodeUnreachable) as caught:
        call_job(Answering(printed), "/d", "n1")
    return caught.value


def test_a_connection_has_a_tag() -> None:
    assert call_job(Answering("a greeting\nopen Tag12345\n"), "/d", "n1") == "Tag12345"


@pytest.mark.parametrize(
    ("printed", "what", "hint"),
    [
        ("denied Permission denied (publickey).\n", "login does not let n1 in without a password", "authorized_keys"),
        ("unknown-host Host key verification failed.\n", "has a different host key", "--route auto"),
        ("elsewhere \n", "is a different one", "--route auto"),
        ("unreached No route to host\n", "n1 cannot connect to login", "--route auto"),
        ("no-sshd sshd is not installed\n", "n1 has no SSH server", "install sshd"),
        ("no-host-key \n", "no readable public host key", "--route auto"),
        ("unsafe \n", "cannot meet in /tmp", "--route auto"),
        ("silent \n", "did not answer within 40 s", "job's log"),
        ("closed \n", "was started without this route", "--route reverse"),
        ("", "was started without this route", "--route reverse"),
    ],
)
def test_each_cause_has_its_own_sentence_and_hint(printed: str, what: str, hint: str) -> None:
    error = refused(printed)
    assert what in error.what and hint in error.hint
    assert error.hint.endswith("let the launcher try the other routes: --route auto (see docs/ssh.md)")
    assert error.why == printed.strip().partition(" ")[2]


@given(st.text() | st.from_regex(r"(open|denied|unreached) .*", fullmatch=True))
def test_whatever_the_job_says_is_a_tag_or_a_reason(printed: str) -> None:
    try:
        tag = call_job(Answering(printed), "/d", "n1")
    except NodeUnreachable as error:
        assert printable(error.why) == error.why
    else:
        assert len(tag) == 8 and tag.isascii() and tag.isalnum()


def test_what_to_do_is_said_if_only_this_route_was_asked_for() -> None:
    host = Answering("denied Permission denied (publickey).")
    for route, hint in (("reverse", "authorized_keys"), ("auto", "--route direct")):
        host.answers = lambda hop: NodeUnreachable("closed")
        with pytest.raises(NodeUnreachable) as caught:
            find_route(target(host), route, "uni")
        assert hint in caught.value.hint and "does not let n1.cluster in" in caught.value.why


def test_a_session_of_an_earlier_version_has_no_such_script() -> None:
    with pytest.raises(NodeUnreachable, match="was started without this route"):
        call_job(LocalHost(), "/nonexistent", str(NODE))
