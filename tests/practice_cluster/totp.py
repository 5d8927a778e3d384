"""One-time codes: as a phone would show them, and the file with which a box's sshd checks them."""

from __future__ import annotations

import base64
import hashlib
import hmac
import struct
import time

from .errors import ClusterError
from .layout import USERS

DIRECTORY = "etc/practice-codes"
SECONDS = 30

# With the option that a code is accepted only once; the module records used codes in the same file.
SECRET_FILE = """\
{secret}
" DISALLOW_REUSE
" TOTP_AUTH
"""


def one_time_code(user: str, at: float | None = None) -> str:
    """Return the user's code at a time (default: now). A box accepts the previous, current and next code, each once."""
    secret = USERS[user].totp_secret
    if secret is None:
        raise ClusterError(f"{user} is not asked for a code anywhere.")
    step = int((time.time() if at is None else at) // SECONDS)
    digest = hmac.new(base64.b32decode(secret), struct.pack(">Q", step), hashlib.sha1).digest()
    offset = digest[-1] & 0xF
    number = struct.unpack(">I", digest[offset : offset + 4])[0] & 0x7FFFFFFF
    return f"{number % 10**6:06}"


def secret_file(secret: str) -> str:
    """Return the file for pam_google_authenticator, with no code used yet."""
    return SECRET_FILE.format(secret=secret)
