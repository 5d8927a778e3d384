"""What servers send when they refuse a connection or a login, the same for both engines."""

from __future__ import annotations

#: OpenSSH's message when it hangs up after too many keys or passwords (``MaxAuthTries``)
TOO_MANY = "Too many authentication failures"
ONE_KEY = (
    "the server hangs up after a few keys, so name the right one in ~/.ssh/config: IdentityFile KEY, and "
    "IdentitiesOnly yes"
)
