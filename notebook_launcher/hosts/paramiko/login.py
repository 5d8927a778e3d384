"""Logging in with keys, prompts and passwords; each secret is asked for once, however many connections need it."""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NoReturn, cast

from notebook_launcher.core.errors import AuthenticationFailed
from notebook_launcher.core.text import printable
from notebook_launcher.hosts.base import NoPrompts, Prompts
from notebook_launcher.hosts.paramiko.identities import (
    Agent,
    KeyFile,
    Offer,
    allowed,
    load,
    offers,
    rsa_signatures,
    signer_of,
)
from notebook_launcher.hosts.refusals import IN_A_TERMINAL, ONE_KEY, TOO_MANY
from notebook_launcher.hosts.ssh_config import Account, SshSettings

if TYPE_CHECKING:
    import paramiko

    from notebook_launcher.hosts.paramiko.userauth import Dialogue, InfoRequest, Verdict

UNUSED_FOR = 60.0  # seconds that an unused answer is kept; longer than a one-time code is valid
_ROUNDS = 20  # methods in a row, and rounds of prompts within one; a server that wants more is misbehaving
_PASSWORD = "password"  # noqa: S105  # the kind of prompt

_ABOUT_PASSWORDS = re.compile(r"pass\s?wor[dt]|mot de passe|contraseñ|kennwort|wachtwoord|lösenord|salasana", re.I)
_ONLY_ONCE = re.compile(
    r"one.?time|einmal|verification|\b(code|pin|otp|totp|hotp|oath|token|duo|factor|yubikey|second|challenge)\b"
    r"|passcode|authenticator",
    re.I,
)
_TO_BE_CHANGED = re.compile(r"\b(new|retype|re-?enter|again|repeat|confirm|neues|nouveau|nueva)\b", re.I)


@dataclass
class Credentials:
    """Secrets that worked, kept in memory and used for the same account again; and the prompts for others.

    A secret is used only for the account (``SshSettings.account``) that it was typed for.
    """

    prompts: Prompts
    only: paramiko.PKey | None = field(default=None, repr=False)  # no other key is tried
    prompt_count: int = 0  # how often the user was asked for anything
    nobody_asked: bool = False  # whether a secret was needed, and there is no terminal
    entered_by: str = ""  # how the last login succeeded: a key, prompts, a password, or several of these
    _passwords: dict[Account, str] = field(default_factory=dict, repr=False)
    _not_again: set[Account] = field(default_factory=set)
    _unused: dict[tuple[Account, str], tuple[str, float]] = field(default_factory=dict, repr=False)
    _unlocked: dict[bytes, paramiko.PKey | None] = field(default_factory=dict, repr=False)

    @classmethod
    def of_key(cls, private_key: str) -> Credentials:
        """Return credentials with one key (in OpenSSH's format) and nothing else. Raises ``ValueError``."""
        return cls(NoPrompts(), only=load(private_key.encode(), None))

    # --- prompts

    def secret(self, text: str, *, echo: bool = False) -> str | None:
        """Ask the user for a secret."""
        self.prompt_count += 1
        answer = self.prompts.secret(text, echo=True) if echo else self.prompts.secret(text)
        self.nobody_asked |= answer is None and not self.prompts.asks
        return answer

    def confirm(self, text: str) -> bool | None:
        """Ask the user for yes or no."""
        self.prompt_count += 1
        return self.prompts.confirm(text)

    # --- passwords

    def password(self, account: Account) -> str | None:
        """Return the password that worked for this account before."""
        return self._passwords.get(account)

    def accepted(self, account: Account, password: str) -> None:
        """Save a password that worked, unless it has proved to be a one-time password."""
        if account not in self._not_again:
            self._passwords[account] = password

    def refused(self, account: Account, *, alone: bool = True) -> None:
        """Forget a saved password that was refused.

        ``alone``: nothing else was asked, so it was the password that was refused: the account has one-time passwords,
        which are not saved again.
        """
        if self._passwords.pop(account, None) is not None and alone:
            self._not_again.add(account)

    def keep_unused(self, account: Account, question: str, answer: str, typed_at: float) -> None:
        """Save an answer that came after the server had hung up. ``typed_at``: from ``time.monotonic``."""
        self._unused[account, question] = (answer, typed_at)

    def take_unused(self, account: Account, question: str) -> str | None:
        """Return (once) an answer that ``keep_unused`` saved, if it is recent; else ``None``."""
        answer, typed_at = self._unused.pop((account, question), ("", 0.0))
        return answer if answer and time.monotonic() - typed_at < UNUSED_FOR else None

    # --- keys

    def unlock(self, file: KeyFile, settings: SshSettings) -> paramiko.PKey | None:
        """Return the private key in a file; ask for its passphrase, if any, only once."""
        if not file.locked:
            with contextlib.suppress(ValueError):
                return load(file.content, None)
            return None
        if file.content not in self._unlocked and not settings.batch:
            self._unlocked[file.content] = self._ask_for_passphrase(file, settings.password_prompts)
        return self._unlocked.get(file.content)

    def _ask_for_passphrase(self, file: KeyFile, times: int) -> paramiko.PKey | None:
        for _ in range(times):
            answer = self.secret(f"Passphrase for {file.path}: ")
            if not answer:
                break
            with contextlib.suppress(ValueError):
                return load(file.content, answer.encode())
        return None


def authenticate(transport: paramiko.Transport, settings: SshSettings, credentials: Credentials) -> None:
    """Log in on a transport whose host key has been checked.

    Servers may require several methods in turn (a key, then a second factor), or the same one twice. Raises
    ``AuthenticationFailed``, ``ServerHungUp``, or its subclass ``ServerTimedOut`` if the server did not wait for the
    user: what was typed meanwhile is saved for the next attempt.
    """
    from notebook_launcher.hosts.paramiko.userauth import Dialogue

    _Login(Dialogue(transport, settings.user, rsa_signatures(settings)), settings, credentials).run()


@dataclass
class _Attempt:
    """One run of keyboard-interactive: the answers, and where they came from."""

    prompted: bool = False
    replayed: bool = False
    password: str | None = None
    changes_password: bool = False
    typed: list[tuple[str, str, float]] = field(default_factory=list)  # prompt, answer, time; not yet sent


class _Login:
    """One login, from the first request to the last verdict."""

    def __init__(self, dialogue: Dialogue, settings: SshSettings, credentials: Credentials) -> None:
        self._dialogue = dialogue
        self._settings = settings
        self._credentials = credentials
        self._account = settings.account
        self._tried: list[str] = []
        self._used_keys: set[bytes] = set()
        self._replayed = False  # the saved password is used once per login: servers lock accounts after wrong guesses
        self._unanswered = settings.batch  # whether the user did not answer, and is not asked any more
        self._messages: list[str] = []  # from the server, to be shown with the next prompt

    def run(self) -> None:
        """Try the methods in the user's order. Raises ``AuthenticationFailed`` or ``ServerHungUp``."""
        from notebook_launcher.hosts.paramiko.userauth import ServerHungUp

        try:
            self._run()
        except ServerHungUp as error:
            error.tried = tuple(self._tried)
            raise

    def _run(self) -> None:
        methods: dict[str, Callable[[], Verdict | None]] = {
            "publickey": self._with_keys,
            "keyboard-interactive": self._with_prompts,
            "password": self._with_password,
        }
        verdict = self._dialogue.begin()
        given_up: set[str] = set()
        opened: list[str] = []
        for _ in range(_ROUNDS):
            if verdict.success:
                self._credentials.entered_by = " and ".join(opened)
                return
            if verdict.partial:
                given_up.clear()
            method = next((m for m in self._settings.methods if m in verdict.left and m not in given_up), None)
            if method is None:
                break
            answer = methods[method]()
            if answer is not None and (answer.success or answer.partial):
                opened += self._tried[-1:]
            if answer is None or not answer.partial:
                given_up.add(method)
            verdict = answer or verdict
        raise refusal(self._settings, self._tried, verdict.left, nobody_asked=self._credentials.nobody_asked)

    # --- keys

    def _with_keys(self) -> Verdict | None:
        verdict = None
        agent = None if self._credentials.only else Agent.of(self._settings)
        with contextlib.closing(agent) if agent else contextlib.nullcontext():
            for offer in self._offers(agent):
                if offer.blob not in self._used_keys:
                    verdict = self._offer(offer) or verdict
                if verdict and (verdict.success or verdict.partial or "publickey" not in verdict.left):
                    break
        return verdict

    def _offers(self, agent: Agent | None) -> Iterable[Offer]:
        only = self._credentials.only
        if only is None:
            return offers(self._settings, agent, lambda file: self._credentials.unlock(file, self._settings))
        return [Offer("made for this", None, False, lambda: signer_of(only))]

    def _offer(self, offer: Offer) -> Verdict | None:
        """Offer a key; ``None`` if it cannot be used. If the key needs the user, the server is queried first."""
        from notebook_launcher.hosts.paramiko.userauth import ServerTimedOut, Verdict

        if offer.needs_user and offer.blob is not None:
            self._tried.append(f"key {offer.source}")
            heard = self._dialogue.query_key(offer.blob)
            if isinstance(heard, Verdict):
                return heard
        signer = offer.unlock()
        if offer.needs_user and not self._dialogue.alive:
            raise ServerTimedOut("it did not wait for the key to be unlocked")
        if signer is None or (self._credentials.only is None and not allowed(self._settings, signer.blob)):
            return None
        self._tried.append(f"key {offer.source}")
        try:
            heard = self._dialogue.sign_in(signer.blob, signer.sign)
        except (OSError, ValueError):  # the agent's user declined, or its device is gone
            return None
        if isinstance(heard, Verdict) and (heard.success or heard.partial):
            self._used_keys.add(signer.blob)
        return heard if isinstance(heard, Verdict) else None

    # --- prompts

    def _with_prompts(self) -> Verdict | None:
        """Answer the server's prompts (keyboard-interactive), as often as the user may try."""
        from notebook_launcher.hosts.paramiko.userauth import Verdict

        verdict, times = None, 0
        while times < self._settings.password_prompts:
            attempt = _Attempt()
            self._tried.append("questions")
            heard = self._dialogue.request("keyboard-interactive", "", "")
            for _ in range(_ROUNDS):
                if isinstance(heard, Verdict):
                    break
                answers = self._answers(cast("InfoRequest", heard), attempt)
                if answers is None:
                    return verdict
                heard = self._dialogue.answer(answers)
            if not isinstance(heard, Verdict):  # the prompts did not end
                return verdict
            verdict = heard
            if verdict.success or verdict.partial:
                self._keep(attempt)
                return verdict
            if attempt.replayed:
                self._credentials.refused(self._account, alone=not attempt.prompted)
            if "keyboard-interactive" not in verdict.left or not (attempt.prompted or attempt.replayed):
                return verdict
            times += attempt.prompted or not attempt.replayed
            if attempt.prompted:
                self._say_refused("answer" if attempt.password is None else "password", times)
        return verdict

    def _keep(self, attempt: _Attempt) -> None:
        if attempt.changes_password:
            self._credentials.refused(self._account, alone=False)
        elif attempt.password is not None:
            self._credentials.accepted(self._account, attempt.password)

    def _answers(self, round_: InfoRequest, attempt: _Attempt) -> list[str] | None:
        """Return the answers to one round of prompts, which may have none; ``None`` if the user does not answer."""
        self._messages += [line for line in (round_.title.rstrip(), round_.instructions.rstrip()) if line]
        about = " ".join((round_.title, round_.instructions))
        answers = []
        for question, shown in round_.questions:
            answer = self._answer(question, shown, about, attempt)
            if answer is None:
                return None
            answers.append(answer)
        if not self._dialogue.alive:
            self._keep_unused(attempt.typed)
        # sent answers are not kept, except a password, which would be asked for again at the next attempt
        attempt.typed = [one for one in attempt.typed if one[0] == _PASSWORD]
        return answers

    def _answer(self, question: str, shown: bool, about: str, attempt: _Attempt) -> str | None:
        kind = _kind(question, shown, about)
        attempt.changes_password |= kind == "new password"
        known = self._credentials.password(self._account)
        if kind == _PASSWORD and known is not None and not self._replayed:
            self._replayed = attempt.replayed = True
            attempt.password = known
            return known
        answer = self._credentials.take_unused(self._account, kind)
        if answer is None:
            answer = self._ask(f"({self._settings.destination}) {question}", shown=shown)
        if answer is not None:
            attempt.prompted = True
            attempt.typed.append((kind, answer, time.monotonic()))
            if kind == _PASSWORD and attempt.password is None:
                attempt.password = answer
        return answer

    # --- passwords

    def _with_password(self) -> Verdict | None:
        from notebook_launcher.hosts.paramiko.userauth import Expired

        verdict, times = None, 0
        while times < self._settings.password_prompts:
            password, replayed = self._password()
            if password is None:
                return verdict
            times += not replayed
            self._tried.append("password")
            heard = self._dialogue.request("password", False, password)
            if isinstance(heard, Expired):
                raise AuthenticationFailed(
                    f"The password of {self._settings.user} on {self._settings.hostname} has expired.",
                    hint=f"change it: ssh {self._settings.destination}",
                )
            verdict = cast("Verdict", heard)
            if verdict.success or verdict.partial:
                self._credentials.accepted(self._account, password)
                return verdict
            if replayed:
                self._credentials.refused(self._account)
            if "password" not in verdict.left:
                return verdict
            if not replayed:
                self._say_refused("password", times)
        return verdict

    def _password(self) -> tuple[str | None, bool]:
        """Return a password, and whether it is the saved one."""
        known = self._credentials.password(self._account)
        if known is not None and not self._replayed:
            self._replayed = True
            return known, True
        password = self._credentials.take_unused(self._account, _PASSWORD)
        if password is None:
            password = self._ask(f"{self._settings.user}@{self._settings.hostname}'s password: ", shown=False)
            if password is not None and not self._dialogue.alive:
                self._keep_unused([(_PASSWORD, password, time.monotonic())])
        return password, False

    # --- asking

    def _ask(self, text: str, *, shown: bool) -> str | None:
        """Ask the user, showing the server's messages; ``None`` once the user does not answer."""
        if self._unanswered:
            return None
        text = "\n".join([*self._messages, text])
        self._messages.clear()
        answer = self._credentials.secret(printable(text), echo=shown)
        self._unanswered = answer is None
        return answer

    def _say_refused(self, what: str, times: int) -> None:
        """Show with the next prompt, if there is one, that the answer was refused; the prompt alone may confuse."""
        if times < self._settings.password_prompts:
            self._messages.append(f"{self._settings.hostname} refused this {what}; try again.")

    def _keep_unused(self, typed: Iterable[tuple[str, str, float]]) -> NoReturn:
        from notebook_launcher.hosts.paramiko.userauth import ServerTimedOut

        for question, answer, typed_at in typed:
            self._credentials.keep_unused(self._account, question, answer, typed_at)
        raise ServerTimedOut("it did not wait for the answer")


def _kind(question: str, shown: bool, about: str) -> str:
    """Return the kind of a prompt: ``password``, ``new password`` or, for anything else, the prompt itself.

    Only a password may be used again. A server may call a one-time code a password; then the text around the prompt may
    show it.
    """
    if shown or not _ABOUT_PASSWORDS.search(question) or _ONLY_ONCE.search(f"{question} {about}"):
        return question
    return "new password" if _TO_BE_CHANGED.search(question) else _PASSWORD


def refusal(
    settings: SshSettings, tried: Iterable[str], left: Iterable[str], message: str = "", *, nobody_asked: bool = False
) -> AuthenticationFailed:
    """Return the error for a failed login, with the methods tried and left, and the server's last message."""
    tried = list(dict.fromkeys(tried))
    why = f"Tried: {', '.join(tried) or 'nothing that it takes'}."
    if left and not tried:
        why += f" It takes: {', '.join(left)}."
    if message:
        why += f" It said: {message}"
    if TOO_MANY in message and "password" not in tried:
        hint = ONE_KEY
    elif nobody_asked:
        hint = IN_A_TERMINAL
    elif "password" in tried:
        hint = "check the user name and the password"
    elif settings.batch:
        hint = "the ssh configuration says BatchMode yes, so nothing was asked"
    else:
        hint = f"try: ssh {settings.destination}   (does that get you in? which key or password does it use?)"
    error = AuthenticationFailed(f"{settings.hostname} does not let {settings.user} in.", why=printable(why), hint=hint)
    error.openssh_may_help = TOO_MANY in message and all(one.startswith("key ") for one in tried)
    return error
