"""Answers ssh's prompts: the program that ssh runs (``SSH_ASKPASS``), and the server in the launcher.

For each prompt, ssh runs this file as a script, and reads the answer from its output. The script sends the prompt over
a unix socket to the launcher, whose ``AskpassServer`` answers. So no secret is ever in an argument, a file or the
environment.
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

if TYPE_CHECKING:  # the script runs without the package, to be fast
    from notebook_launcher.hosts.base import Prompts

_ANSWERED = b"="  # before an answer; an empty reply means that there is no answer


# --- the program that ssh runs -----------------------------------------------------------------------------------


def forward_prompt(socket_path: str, question: str) -> int:
    """Pass a prompt to the launcher and its answer to ssh; return the exit code, 1 if there is no answer."""
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

_HOST_KEY = re.compile(r"(?P<shown>.*?)Are you sure you want to continue connecting \(yes/no.*", re.DOTALL)
_PASSPHRASE = re.compile(r"Enter passphrase for ")
_PASSWORD = re.compile(r"\S[^\s@]*@\S+'s password: ?$")
_SERVERS = re.compile(r"(?:\([^\s@()]+@[^\s()]+\) )?(.*)", re.DOTALL)  # newer versions put the login name before it
_LASTING = re.compile(r"pass(word|phrase)", re.IGNORECASE)
# a one-time code that is sent twice is refused, and may lock the account
_FOR_ONCE = re.compile(
    r"one.?time|\botp\b|token|code|verification|factor|\bpin\b|(new|old|current|expired)\W+(\w+\W+)?password",
    re.IGNORECASE,
)


class AskpassServer:
    """Answers the prompts of one login, on its own thread, from saved secrets and by asking the user.

    ``memory``: the secrets that worked before. ``login``: the destination of this login; its passwords are used for no
    other one. ``like``: another login with the same accounts, of which only the password for ``like_host`` is used, not
    those for its jump hosts. ``asking``: whether the user may be asked. ``around`` returns the server's messages that
    belong to its prompt, which may be a challenge. ``has_jumps``: jump hosts ask in this login, too. ``names_servers``:
    whether ssh says which server a prompt comes from, as OpenSSH does since 8.5. Before that, a server can word its
    prompt like that of another, or like ssh's own for a passphrase: see ``_known_answer``. ``on_declined`` is called
    before ssh is told that there is no answer to a required prompt: ssh would try an empty password instead.
    """

    def __init__(
        self,
        path: str,
        prompts: Prompts,
        memory: dict[str, str],
        login: str,
        *,
        like: str = "",
        like_host: str = "",
        asking: bool,
        on_declined: Callable[[], None],
        around: Callable[[], list[str]] = list,
        has_jumps: bool = False,
        names_servers: Callable[[], bool] = lambda: True,
    ) -> None:
        self.declined = ""
        self.nobody_asked = False  # whether a secret was needed, and there is no terminal
        self.busy = False
        self.last = time.monotonic()
        self._prompts, self._memory, self._login, self._like = prompts, memory, login, like
        self._like_host = like_host.lower()
        self._asking, self._on_declined, self._around = asking, on_declined, around
        self._has_jumps, self._names_servers = has_jumps, names_servers
        self._asked: set[str] = set()
        self._answers: dict[str, str] = {}
        self._closed = False
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(path)
        self._listener.listen()
        self._listener.settimeout(0.5)  # seconds after which a closed server is noticed
        threading.Thread(target=self._serve, name="askpass", daemon=True).start()

    def close(self) -> None:
        """Stop answering."""
        self._closed = True

    def remember(self) -> None:
        """Save the answers that were given, because the login succeeded."""
        self._memory.update(self._answers)

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
            asking.settimeout(10)  # seconds; our script sends the prompt without delay
            hint, _, question = os.fsdecode(_read_all(asking)).partition("\0")
            answer = self.answer(hint, question)
            if answer is not None:
                asking.sendall(_ANSWERED + os.fsencode(answer))
        except OSError:
            pass  # ssh continued without an answer
        finally:
            self.busy, self.last = False, time.monotonic()

    def answer(self, hint: str, question: str) -> str | None:
        """Return the answer to a prompt of ssh, ``None`` for none. ``hint``: the kind of prompt, from ssh."""
        if hint == "none":
            return None  # a notice while ssh waits for the user to touch a security key
        if hint == "confirm":
            return "yes" if self._confirm(question) else None
        host_key = _HOST_KEY.match(question)
        if host_key:
            return "yes" if self._confirm(f"{host_key['shown'].rstrip()}\nIs it the right one?") else "no"
        if "(yes/no" in question or question.startswith("Please type 'yes'"):
            return "no"
        return self._secret(question)

    def _confirm(self, text: str) -> bool:
        return self._asking and bool(self._prompts.confirm(text))

    def _secret(self, question: str) -> str | None:
        name = _memory_key(question, self._login)
        answer = None
        if question not in self._asked:  # otherwise the saved answer was just refused
            answer = self._known_answer(name)
        self._asked.add(question)
        if answer is None and self._asking:
            answer = self._prompts.secret("\n".join([*self._around(), question]))
            self.nobody_asked |= answer is None and not self._prompts.asks
        if answer is not None and name:
            self._answers[name] = answer
        if answer is None and not _PASSPHRASE.match(question):  # without a passphrase, ssh tries the next key
            self.declined = question
            self._on_declined()
        return answer

    def _known_answer(self, name: str) -> str | None:
        """Return the saved answer; if ssh does not name servers, only for a server that has received it before."""
        answer = self._memory.get(name) or self._shared_password(name)
        if answer is None or self._names_servers():
            return answer
        return self._memory.get(name) if name.startswith(f"{self._login}: ") and not self._has_jumps else None

    def _shared_password(self, name: str) -> str | None:
        """Return the password for ``like_host``, not one for a jump host, which is saved under ``like`` as well."""
        if not self._like or not name.startswith(f"{self._login}: "):
            return None
        prompts = (f"@{self._like_host}'s password", f"@{self._like_host})")
        of_other = (
            answer
            for kept, answer in reversed(self._memory.items())
            if kept.startswith(f"{self._like}: ") and any(part in kept.lower() for part in prompts)
        )
        return next(of_other, None)


def _memory_key(question: str, login: str) -> str:
    """Return the key under which an answer is saved, "" for an answer that works only once."""
    if _PASSPHRASE.match(question):
        return question
    server = _SERVERS.match(question)
    lasts = server is not None and _LASTING.search(server[1]) and not _FOR_ONCE.search(server[1])
    return f"{login}: {question}" if _PASSWORD.match(question) or lasts else ""


if __name__ == "__main__":
    raise SystemExit(forward_prompt(*sys.argv[1:3]))
