"""What servers send when they refuse a connection or a login; for both engines."""

from __future__ import annotations

import re
from collections.abc import Iterable

from notebook_launcher.core.errors import AddressRefused, ConnectionFailed, LoginBusy

#: OpenSSH's message when it hangs up after too many keys or passwords (``MaxAuthTries``)
TOO_MANY = "Too many authentication failures"
ONE_KEY = (
    "name the right key in ~/.ssh/config, with IdentityFile KEY and IdentitiesOnly yes: the server hangs up after a "
    "few keys"
)
#: the hint if a login needed a secret, and there was no terminal to ask for it
IN_A_TERMINAL = "run the command in a terminal, where it can ask you, or use a login that asks for nothing"

# What OpenSSH's server sends instead of its version before it hangs up: for PerSourcePenalties (since 9.8), and for
# MaxStartups. An ssh client prints the line after a prefix.
_PENALTY = re.compile(r"(?:^|: )Not allowed at this time\s*$")
_BUSY = re.compile(r"(?:^|: )Exceeded MaxStartups\s*$")


def refused_before_login(server: str, lines: Iterable[str]) -> ConnectionFailed | None:
    """Return the error for a server that refused any login, by the lines that it sent; ``None`` if it did not."""
    lines = list(lines)
    if any(_PENALTY.search(line) for line in lines):
        return AddressRefused(
            f"{server} refuses this machine's address for a while.",
            why="It answered: Not allowed at this time. Servers refuse an address after failed logins from it, yours "
            "or those of others who share it: by default for 15 seconds to 10 minutes.",
            hint="wait some minutes before you try again; each failed login prolongs the wait",
        )
    if any(_BUSY.search(line) for line in lines):
        return LoginBusy(
            f"{server} has too many logins in progress.",
            why="It answered: Exceeded MaxStartups",
            hint="try again in a moment",
        )
    return None


def hung_up_before_version(server: str, why: str) -> LoginBusy:
    """Return the error for a server that closed the connection before it had sent anything.

    That may be a server with too many logins in progress: if the client has already sent its version, the connection is
    reset, and the server's only line is lost.
    """
    return LoginBusy(
        f"{server} closed the connection before it sent anything.",
        why=why,
        hint="try again in a moment: many may be logging in; or check that it lets this machine in at all",
    )
