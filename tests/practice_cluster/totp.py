"""One-time codes: what a telephone would show, and the file by which a box's sshd knows them."""

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

# The option that a code is accepted once only; the module notes the used ones in the same file.
SECRET_FILE = """\
{secret}
" DISALLOW_REUSE
" TOTP_AUTH
"""


def one_time_code(user: str, at: float | None = None) -> str:
    """Return the user's code at a time (now). A box accepts those of the last, this and the next half minute, once."""
    secret = USERS[user].totp_secret
    if secret is None:
        raise ClusterError(f"{user} is not asked for a code anywhere.")
    step = int((time.time() if at is None else at) // SECONDS)
    digest = hmac.new(base64.b32decode(secret), struct.pack(">Q", step), hashlib.sha1).digest()
    offset = digest[-1] & 0xF
    number = struct.unpack(">I", digest[offset : offset + 4])[0] & 0x7FFFFFFF
    return f"{number % 10**6:06}"


def secret_file(secret: str) -> str:
    """Return what pam_google_authenticator reads, with no code used yet."""
    return SECRET_FILE.format(secret=secret)
