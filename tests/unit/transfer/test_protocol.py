"""A reply of ``copy.sh``: whatever the far end sends, in whatever pieces, is a reply or an error of ours."""

from __future__ import annotations

import os

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from notebook_launcher.core.errors import ConnectionLost, HostCommandFailed
from notebook_launcher.transfer.protocol import CHUNK, Reply, Wire, call_verb
from tests.unit.transfer.answering_host import AnsweringHost, cut

BYTES = st.binary(max_size=60) | st.lists(
    st.sampled_from([b"\0", b"\n", b" ", b"0", b"17", b"\0000 \n", b"\0001 no\n", b"\xff", b"S", b"9" * 5000])
).map(b"".join)


def reply_of(*pieces: bytes, breaks: bool = False) -> Reply | None:
    """Return the reply that is read from an answer; ``None`` for one without an end."""
    try:
        reply = call_verb(AnsweringHost(*pieces, breaks=breaks), "list")
    except ConnectionLost:
        return None
    assert isinstance(reply.code, int) and "\0" not in reply.stderr
    reply.fields(), reply.lines()
    return reply


@given(st.data(), BYTES, st.booleans())
def test_any_answer_is_a_reply_or_a_lost_connection(data: st.DataObject, answer: bytes, breaks: bool) -> None:
    """However it is cut, and even if the connection breaks behind it."""
    assert reply_of(*data.draw(cut(answer)), breaks=breaks) == reply_of(answer)


@given(st.data(), BYTES, st.integers(0, 255), st.text(st.characters(codec="utf-8", exclude_characters="\0")))
@example(None, b"", 0, "")
def test_a_reply_arrives_as_it_was_sent(data: st.DataObject | None, answer: bytes, code: int, errors: str) -> None:
    whole = answer + f"\0{code} {errors}\n".encode()
    assert reply_of(*(data.draw(cut(whole)) if data else [whole])) == Reply(answer, code, errors)


@given(st.lists(st.text(st.characters(exclude_characters="\0", codec="utf-8"))), st.binary(max_size=9))
def test_names_come_back_as_they_are_even_those_that_are_no_text(words: list[str], odd: bytes) -> None:
    words.append(os.fsdecode(odd.replace(b"\0", b"")))
    assert Reply(b"".join(os.fsencode(word) + b"\0" for word in words)).fields() == words


@given(st.integers(0, 3 * CHUNK), st.integers(CHUNK // 64, 2 * CHUNK))
def test_no_more_is_read_than_was_asked_for(most: int, piece: int) -> None:
    host = AnsweringHost(*[b"x" * piece] * (2 + (most + 2 * CHUNK) // piece))
    with Wire(host, "pack", []) as wire, pytest.raises(HostCommandFailed, match="more than it was asked"):
        wire.reply(most)
    assert host.stream_of_answer.count <= most + CHUNK
