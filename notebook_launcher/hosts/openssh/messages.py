"""Finds out what the messages of a failed ``ssh`` mean."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from notebook_launcher.core.errors import (
    AuthenticationFailed,
    ConnectionFailed,
    HostKeyChanged,
    HostKeyUnknown,
    LauncherError,
)
from notebook_launcher.hosts.refusals import (
    IN_A_TERMINAL,
    ONE_KEY,
    TOO_MANY,
    hung_up_before_version,
    refused_before_login,
)
from notebook_launcher.hosts.ssh_config import SshSettings

DEBUG = re.compile(r"debug\d: ")
_SERVER_KEY = re.compile(r"debug1: Server host key: (\S+ \S+)")
_OFFERED = re.compile(r"debug1: (?:Offering public key|Trying private key): (.+?)(?: [A-Z0-9-]+ SHA256:.*)?$")
_METHOD = re.compile(r"debug1: Next authentication method: (\S+)")
_METHODS = {"keyboard-interactive": "questions", "password": "password", "gssapi-with-mic": "Kerberos"}
_OFFENDING = re.compile(r"Offending (\S+) key in (.+):(\d+)")
_NO_NAME = re.compile(r"Could not resolve hostname (\S+): (.+)")
_PROXY_ENDED = re.compile(r"connect to (?:host|address) (\S+) port (\d+): (.+)")
# ssh's message when the proxy command has ended; the reason is in an earlier line
_CONSEQUENCE = re.compile(
    r"kex_exchange_identification|banner exchange|stdio forwarding failed|Connection closed by UNK"
)
NOT_OPENED = re.compile(r"channel \d+: open failed: (.+)")
_BEFORE_SSH = re.compile(r"(?:kex|ssh)_exchange_identification: ")  # followed by a line that the server sent
# ssh's messages for a server that closed the connection instead of sending its version
_CLOSED = re.compile(
    r"(?:kex|ssh)_exchange_identification: (?:Connection closed by remote host|read: Connection reset by peer)"
    r"|Connection (?:closed|reset) by (?!UNKNOWN)\S+ port \d+"
)
_DENIED_TO = re.compile(r"(?:(\S+)@([^\s@]+): )?Permission denied \(")


def explained(
    settings: SshSettings, messages: Sequence[str], declined: str = "", *, nobody_asked: bool = False
) -> LauncherError:
    """Return the error for a failed login, from all messages of ssh.

    ``declined``: the prompt that was not answered; ``nobody_asked``: a secret was needed, and there is no terminal.
    """
    lines = [line for line in messages if line and not DEBUG.match(line)]
    text = "\n".join(lines)
    if "IDENTIFICATION HAS CHANGED" in text or "REVOKED HOST KEY" in text or "marked as revoked" in text:
        return _key_changed(settings, messages)
    if "Host key verification failed" in text:
        return HostKeyUnknown(
            f"The host key of {settings.known_as} is not known.",
            why=f"It shows {_server_key(messages)}.",
            hint=f"compare it with the cluster's documentation, then connect once with: ssh {settings.destination}",
        )
    denied = next((found for line in lines if (found := _DENIED_TO.match(line))), None)
    if declined or denied or TOO_MANY in text:
        return _refused(settings, messages, denied, declined, nobody_asked=nobody_asked)
    refused = refused_before_login(settings.destination, (line for line in messages if _BEFORE_SSH.search(line)))
    if refused:
        return refused
    others = [line for line in lines if not _CLOSED.match(line)]
    if lines and not others and any("exchange_identification" in line for line in lines):
        return hung_up_before_version(settings.destination, lines[0])
    return _not_reached(settings, lines)


def _server_key(messages: Sequence[str]) -> str:
    return next(
        (found[1] for line in reversed(messages) if (found := _SERVER_KEY.match(line))), "one that ssh does not tell"
    )


def _key_changed(settings: SshSettings, messages: Sequence[str]) -> HostKeyChanged:
    offending = next((found for line in messages if (found := _OFFENDING.match(line))), None)
    if offending is None:
        return HostKeyChanged(
            f"The host key of {settings.known_as} is revoked.", why=f"It shows {_server_key(messages)}."
        )
    kind, file, line = offending.groups()
    return HostKeyChanged(
        f"The host key of {settings.known_as} is not the one that is known: somebody may be listening in. "
        "Nothing was sent.",
        why=f"{file}, line {line} has another {kind} key for it. It shows {_server_key(messages)}.",
        hint=f"If the server was really set up anew, remove that line: ssh-keygen -R '{settings.known_as}'",
    )


def _refused(
    settings: SshSettings, messages: Sequence[str], denied: re.Match[str] | None, declined: str, *, nobody_asked: bool
) -> AuthenticationFailed:
    keys = [f"key {found[1]}" for line in messages if (found := _OFFERED.match(line)) and Path(found[1]).exists()]
    methods = [_METHODS.get(found[1], "") for line in messages if (found := _METHOD.match(line))]
    tried = list(dict.fromkeys([*keys, *filter(None, methods)]))
    user, hostname = denied.groups() if denied and denied[1] else (settings.user, settings.hostname)
    if any(TOO_MANY in line for line in messages) and "password" not in tried:
        hint = ONE_KEY
    elif nobody_asked:
        hint = IN_A_TERMINAL
    elif settings.batch:
        hint = "the ssh configuration says BatchMode yes, so nothing was asked"
    elif "password" in tried:
        hint = "check the user name and the password"
    else:
        hint = f"try: ssh {settings.destination}   (does that get you in? which key or password does it use?)"
    why = f"Tried: {', '.join(tried) or 'nothing that it takes'}."
    if declined:
        why += f" Nobody answered: {declined.strip()}"
    return AuthenticationFailed(f"{hostname} does not let {user} in.", why=why, hint=hint)


def _not_reached(settings: SshSettings, lines: Sequence[str]) -> ConnectionFailed:
    text = "\n".join(lines)
    why = next((line for line in reversed(lines) if not _CONSEQUENCE.match(line)), lines[-1] if lines else "")
    if unknown := _NO_NAME.search(text):
        return ConnectionFailed(
            f"The name {unknown[1]} is not known.",
            why="" if unknown[2].strip() == "Name or service not known" else unknown[2],
            hint="check its spelling, and the network (does it need a VPN?)",
        )
    if closed := _PROXY_ENDED.search(text):
        return ConnectionFailed(
            f"{closed[1]} port {closed[2]} cannot be reached.",
            why=closed[3],
            hint="check the port, and the network (does it need a VPN?)",
        )
    if behind := NOT_OPENED.search(text):
        return ConnectionFailed(f"{settings.destination} cannot be reached.", why=behind[1])
    if "onfiguration option" in text or "Bad owner or permissions" in text:
        return ConnectionFailed(f"The ssh configuration for {settings.destination} cannot be read.", why=why)
    if incompatible := next((line for line in lines if line.startswith("Unable to negotiate with ")), ""):
        return ConnectionFailed(
            f"{settings.destination} and ssh have no algorithm in common.",
            why=incompatible,
            hint="see Ciphers, MACs, KexAlgorithms and HostKeyAlgorithms in your ssh configuration, and ssh_config(5)",
        )
    return ConnectionFailed(f"{settings.destination} does not speak SSH.", why=why)
