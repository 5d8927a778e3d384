"""Settings of the boxes' sshd and PAM: for everybody, and for users who stand for a kind of site."""

from __future__ import annotations

from pathlib import PurePosixPath

from . import totp
from .layout import LOGIN_PORTS, USERS, Box, Generation, User

CONFIGURATION = "/etc/ssh/sshd_config.d/practice.conf"
_OPTIONS = (
    "PasswordAuthentication yes",
    "UseDNS no",
    # Tests connect a class of thirty at once.
    "MaxStartups 500",
    "MaxSessions 500",
    "HostKey /etc/ssh/ssh_host_ed25519_key",
)

# Before the password, or instead of it. On a box that asks for no code, none of these users matches.
_CODE_ALONE = """\
auth [success=ignore default=1] pam_succeed_if.so quiet user in {names}
auth [success=done default=die] {module}
"""
# After the password. Users without a secret on this box are not asked.
_CODE_AFTER_PASSWORD = "auth required {module} nullok\n"
_MODULE = f"pam_google_authenticator.so user=root secret=/{totp.DIRECTORY}/${{USER}}"

_GREETING = """\
session [success=ignore default=1] pam_succeed_if.so quiet user = {name}
session optional pam_motd.so noupdate motd={path}
"""

_PAM_SLURM = "account required pam_slurm.so"
# Shell commands that add it and remove it again: sshd reads the file at each login.
ADD_PAM_SLURM = f"sed -i 's/^@include common-account/{_PAM_SLURM}\\n&/' /etc/pam.d/sshd"
REMOVE_PAM_SLURM = f"sed -i '/^{_PAM_SLURM}$/d' /etc/pam.d/sshd"
HAS_PAM_SLURM = f"grep -qx '{_PAM_SLURM}' /etc/pam.d/sshd"

# Shell commands that let sshd refuse addresses, and stop that again. It is restarted, but its sessions stay. The
# setting takes precedence over the layout's; OpenSSH's 15 s would be over before a busy machine has made three
# launches.
_PENALTIES = "PerSourcePenalties authfail:15s min:40s"
_START_ANEW = "sshd -t && pkill -HUP -o -x sshd"
PENALTIES = f"""\
sshd -T | grep -qi ^PerSourcePenalties
sed -i '1i {_PENALTIES}' {CONFIGURATION}
{_START_ANEW}
"""
NO_PENALTIES = f"sed -i '/^{_PENALTIES}$/d' {CONFIGURATION}; {_START_ANEW}"


def settings(box: Box, generation: Generation) -> str:
    """Return the box's own part of sshd_config, before Debian's, because the first value of a setting is used."""
    lines = [*_OPTIONS, *generation.sshd_options]
    if box.role == "login":
        lines += [f"Port {port}" for port in LOGIN_PORTS]
    for user in USERS.values():
        theirs = _settings_for(user, box)
        lines += [f"Match User {user.name}", *(f"    {line}" for line in theirs)] if theirs else []
    return "".join(f"{line}\n" for line in lines)


def _settings_for(user: User, box: Box) -> list[str]:
    lines = {"login": user.login_sshd, "node": user.node_sshd}.get(box.role, ())
    banner = [f"Banner /{_greeting_path(user)}"] if _is_greeted(user, box) else []
    return [*lines, *banner]


def pam(box: Box, debian: str) -> str:
    """Return /etc/pam.d/sshd, made from `debian`, the distribution's file."""
    asked = [user for user in USERS.values() if user.totp_secret and box.role in user.totp_on]
    alone = ":".join(user.name for user in asked if user.password is None)
    password, session = "@include common-auth\n", "@include common-session\n"
    before = _CODE_ALONE.format(names=alone, module=_MODULE) if alone else ""
    after = _CODE_AFTER_PASSWORD.format(module=_MODULE) if asked else ""
    greetings = "".join(
        _GREETING.format(name=user.name, path=f"/{_greeting_path(user)}")
        for user in USERS.values()
        if _is_greeted(user, box)
    )
    text = debian.replace(password, before + password + after)
    return text.replace(session, session + greetings)


def secrets(box: Box) -> dict[str, bytes]:
    """Return the files with the secrets of one-time codes for this box, by path; only root may read them."""
    return {
        f"{totp.DIRECTORY}/{user.name}": totp.secret_file(user.totp_secret).encode()
        for user in USERS.values()
        if user.totp_secret and box.role in user.totp_on
    }


def greetings(box: Box) -> dict[str, bytes]:
    """Return the banners and messages of the day for single users, by path; PAM reads them as that user."""
    return {_greeting_path(user): user.greeting for user in USERS.values() if _is_greeted(user, box)}


def _is_greeted(user: User, box: Box) -> bool:
    return bool(user.greeting) and box.role == "login"


def _greeting_path(user: User) -> str:
    return str(PurePosixPath("etc/ssh") / f"greeting.{user.name}")
