"""What ssh asks, brought to the user: both ends of a small conversation.

For each question ssh runs a program (``SSH_ASKPASS``) and reads the answer from its output. That program is this file,
run as a script: it hands the question over a unix socket to the launcher, where an ``Asker`` answers. So no secret is
ever in an argument, a file or the environment.
"""

from __future__ import annotations

import os
import re
import socket
import sys
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # the script runs without the package, to be quick
    from notebook_launcher.hosts.base import Prompts

_ANSWERED = b"="  # stands before an answer; nothing at all means that there is none


# --- the program that ssh runs -----------------------------------------------------------------------------------


def hand_over(socket_path: str, question: str) -> int:
    """Bring a question to the launcher and its answer to ssh; return the exit code, 1 where there is no answer."""
    hint = os.environ.get("SSH_ASKPASS_PROMPT", "")
    try:
        with socket.socket(socket.AF_UNIX) as launcher:
            launcher.connect(socket_path)
            launcher.sendall(os.fsencode(f"{hint}\0{question}"))
            launcher.shutdown(socket.SHUT_WR)
            answer = _read_all(launcher)
    except OSError:
        return 1
    if not answer.startswith(_ANSWERED):
        return 1
    os.write(1, answer.removeprefix(_ANSWERED) + b"\n")
    return 0


def _read_all(connection: socket.socket) -> bytes:
    parts = []
    while data := connection.recv(65536):
        parts.append(data)
    return b"".join(parts)


# --- the launcher's end ------------------------------------------------------------------------------------------

_HOST_KEY = re.compile(r"(?P<shown>.*?)\s*Are you sure you want to continue connecting \(yes/no.*", re.DOTALL)
_PASSPHRASE = re.compile(r"Enter passphrase for ")
_PASSWORD = re.compile(r"\S+@\S+'s password: ?$")
_SERVERS = re.compile(r"(?:\([^\s@()]+@[^\s()]+\) )?(.*)", re.DOTALL)  # newer versions put the login's name before it
_LASTING = re.compile(r"pass(word|phrase)", re.IGNORECASE)
# a one-time code that is sent twice is refused, and may lock the account
_FOR_ONCE = re.compile(
    r"one.?time|\botp\b|token|code|verification|factor|\bpin\b|(new|old|current|expired)\W+(\w+\W+)?password",
    re.IGNORECASE,
)


class Asker:
    """Answers the questions of one login, on a thread of its own, from what is remembered and by asking the user.

    ``memory``: the secrets that opened a door before. ``place``: where the login goes; its passwords are given to no
    other, but where ``like`` names one whose accounts it has as well: the password that ``like_host`` itself has asked
    for, and no jump before it. ``asking``: whether the user may be asked.
    ``around`` returns the server's messages with its question, which may be a challenge to be answered.
    ``on_declined`` is called before ssh hears that there is no answer to a question without which it cannot go on: it
    would try an empty password instead.
    """

    def __init__(
        self,
        path: str,
        prompts: Prompts,
        memory: dict[str, str],
        place: str,
        *,
        like: str = "",
        like_host: str = "",
        asking: bool,
        on_declined: Callable[[], None],
        around: Callable[[], list[str]] = list,
    ) -> None:
        self.declined = ""
        self.busy = False
        self.last = time.monotonic()
        self._prompts, self._memory, self._place, self._like = prompts, memory, place, like
        self._like_host = like_host.lower()
        self._asking, self._on_declined, self._around = asking, on_declined, around
        self._asked: set[str] = set()
        self._given: dict[str, str] = {}
        self._closed = False
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(path)
        self._listener.listen()
        self._listener.settimeout(0.5)  # seconds after which a closed asker is noticed
        threading.Thread(target=self._serve, name="askpass", daemon=True).start()

    def close(self) -> None:
        """CommandResult no more."""
        self._closed = True

    def remember(self) -> None:
        """Keep what was given in memory: it opened the door."""
        self._memory.update(self._given)

    def _serve(self) -> None:
        with self._listener:
            while not self._closed:
                try:
                    asking, _ = self._listener.accept()
                except TimeoutError:
                    continue
                with asking:
                    self._serve_one(asking)

    def _serve_one(self, asking: socket.socket) -> None:
        self.busy = True
        try:
            asking.settimeout(10)  # seconds, for a program of ours that has nothing to wait for
            hint, _, question = os.fsdecode(_read_all(asking)).partition("\0")
            answer = self.answer(hint, question)
            if answer is not None:
                asking.sendall(_ANSWERED + os.fsencode(answer))
        except OSError:
            pass  # ssh has gone on without an answer
        finally:
            self.busy, self.last = False, time.monotonic()

    def answer(self, hint: str, question: str) -> str | None:
        """Return the answer to what ssh asks, ``None`` for none. ``hint``: ssh's word for the kind of question."""
        if hint == "none":
            return None  # a notice while ssh waits for a touch of a key
        if hint == "confirm":
            return "yes" if self._confirm(question) else None
        host_key = _HOST_KEY.match(question)
        if host_key:
            return "yes" if self._confirm(f"{host_key['shown']}\nIs it the right one?") else "no"
        if "(yes/no" in question or question.startswith("Please type 'yes'"):
            return "no"
        return self._secret(question)

    def _confirm(self, text: str) -> bool:
        return self._asking and bool(self._prompts.confirm(text))

    def _secret(self, question: str) -> str | None:
        name = _remembered_as(question, self._place)
        answer = None
        if question not in self._asked:  # else what we have was refused just now
            answer = self._memory.get(name) or self._inherited(name)
        self._asked.add(question)
        if answer is None and self._asking:
            answer = self._prompts.secret("\n".join([*self._around(), question]))
        if answer is not None and name:
            self._given[name] = answer
        if answer is None and not _PASSPHRASE.match(question):  # without a passphrase it takes the next key
            self.declined = question
            self._on_declined()
        return answer

    def _inherited(self, name: str) -> str | None:
        """Return the password of the place whose accounts this one has. Its jumps have asked under the same place."""
        if not self._like or not name.startswith(f"{self._place}: "):
            return None
        prompts = (f"@{self._like_host}'s password", f"@{self._like_host})")
        of_other = (
            answer
            for kept, answer in reversed(self._memory.items())
            if kept.startswith(f"{self._like}: ") and any(part in kept.lower() for part in prompts)
        )
        return next(of_other, None)


def _remembered_as(question: str, place: str) -> str:
    """Return the name under which an answer is kept, none for what is good only once."""
    if _PASSPHRASE.match(question):
        return question
    server = _SERVERS.match(question)
    lasts = server is not None and _LASTING.search(server[1]) and not _FOR_ONCE.search(server[1])
    return f"{place}: {question}" if _PASSWORD.match(question) or lasts else ""


if __name__ == "__main__":
    raise SystemExit(hand_over(*sys.argv[1:3]))
