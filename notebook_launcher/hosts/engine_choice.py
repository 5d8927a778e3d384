"""Chooses the SSH engine for a login node: paramiko, or the system's ``ssh`` where only that works."""

from __future__ import annotations

import contextlib
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Literal

from notebook_launcher.core.errors import AddressRefused, AuthenticationFailed, ConnectionFailed
from notebook_launcher.core.frozen import Frozen
from notebook_launcher.hosts.base import Host, Prompts
from notebook_launcher.hosts.ssh_config import Destination, SshSettings, builtin_options, resolve

Wanted = Literal["auto", "paramiko", "openssh"]


class EngineFacts(Frozen):
    """The facts about this machine that determine the choice. ``None`` and ``False``: absent, or not relevant.

    ``has_ssh``: there is an ``ssh`` that supports connection sharing. ``live_master``: the control socket of the user's
    own master connection. ``ticket``: the user has a Kerberos ticket. ``hardware_key``: a key file whose key is in a
    FIDO device. ``only_authority``: known_hosts has a certificate authority for the server, but no key of it.
    ``algorithms``: an option of the configuration with algorithms that only OpenSSH has.
    """

    has_ssh: bool = True
    live_master: str | None = None
    ticket: bool = False
    hardware_key: Path | None = None
    only_authority: bool = False
    algorithms: str = ""


class EngineChoice(Frozen):
    """The chosen engine, and why, for the user."""

    engine: str
    reason: str

    def __str__(self) -> str:
        return f"{self.engine}: {self.reason}"


# Settings that only OpenSSH supports. Not GSSAPIAuthentication, which Debian and Red Hat enable by default.
_ONLY_OPENSSH = {
    "pkcs11provider": "the ssh configuration names a smart card (PKCS11Provider {})",
    "proxyusefdpass": "the ssh configuration says ProxyUseFdpass {}",
    "knownhostscommand": "the ssh configuration gets host keys from a command (KnownHostsCommand {})",
    "hostbasedauthentication": "the ssh configuration says HostbasedAuthentication {}",
    "verifyhostkeydns": "the ssh configuration says VerifyHostKeyDNS {}",
}
_OFF = ("", "no", "none", "false", "ask")


def choose(settings: SshSettings, wanted: Wanted, facts: EngineFacts) -> EngineChoice:
    """Return the engine for a destination. Raises ``ConnectionFailed`` if the requested one is not available.

    ``auto`` chooses paramiko, which is fast and the same on every platform, unless the effective configuration needs
    a feature of OpenSSH.
    """
    if not settings.user:
        raise ConnectionFailed(
            f"Your name on {settings.hostname} is not known, and this machine has none for you.",
            hint=f"name it: --host you@{settings.hostname}   or: launch-notebook clusters edit NAME --user …",
        )
    if wanted == "openssh" and not facts.has_ssh:
        raise ConnectionFailed(
            "There is no ssh program here that can share a connection.",
            hint="install OpenSSH's client (on Windows it cannot do this), or take the engine paramiko",
        )
    if wanted != "auto":
        return EngineChoice(wanted, "asked for")
    if not facts.has_ssh:
        return EngineChoice("paramiko", "there is no ssh program here that can share a connection")
    reason = _needs_openssh(settings, facts)
    if reason:
        return EngineChoice("openssh", reason)
    return EngineChoice("paramiko", "the ssh configuration asks for nothing that only OpenSSH has")


def _needs_openssh(settings: SshSettings, facts: EngineFacts) -> str:
    if facts.live_master:
        return f"a live master connection is there ({_from_home(facts.live_master)})"
    if facts.ticket:
        return "there is a Kerberos ticket, and the ssh configuration says GSSAPIAuthentication yes"
    if facts.hardware_key:
        return f"the key {_from_home(str(facts.hardware_key))} is in a security key"
    for name, reason in _ONLY_OPENSSH.items():
        value = _value(settings, name)
        if value.lower() not in _OFF:
            return reason.format(value)
    if facts.only_authority:
        return f"known_hosts knows {settings.known_as} by a certificate authority alone"
    if facts.algorithms:
        return f"the ssh configuration names algorithms that paramiko does not have ({facts.algorithms})"
    return ""


def _value(settings: SshSettings, name: str) -> str:
    return settings.options.get(name, ("",))[0]


def _from_home(path: str) -> str:
    home = f"{Path.home()}/"
    return f"~/{path.removeprefix(home)}" if path.startswith(home) else path


# --- the facts ---------------------------------------------------------------------------------------------------


def gather(settings: SshSettings, wanted: Wanted = "auto", *, windows: bool = sys.platform == "win32") -> EngineFacts:
    """Collect the facts about this machine, as far as they matter."""
    if windows or not shutil.which("ssh"):  # Windows' ssh has no connection sharing
        return EngineFacts(has_ssh=False)
    if wanted != "auto":
        return EngineFacts()
    from notebook_launcher.hosts.openssh.host import live_master

    return EngineFacts(
        live_master=live_master(settings),
        ticket=_value(settings, "gssapiauthentication") == "yes" and _succeeds(["klist", "-s"]),
        hardware_key=next(filter(_is_in_hardware, settings.identity_files), None),
        only_authority=_only_authority(settings),
        algorithms=_algorithms_of_openssh(settings),
    )


def _algorithms_of_openssh(settings: SshSettings) -> str:
    from notebook_launcher.hosts.paramiko.negotiation import OPTIONS, only_in_openssh

    return only_in_openssh(settings.options, builtin_options()) if settings.options.keys() & OPTIONS.keys() else ""


def _succeeds(command: list[str]) -> bool:
    with contextlib.suppress(OSError, subprocess.TimeoutExpired):
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, check=False, timeout=5)
        return done.returncode == 0
    return False


def _is_in_hardware(key: Path) -> bool:
    with contextlib.suppress(OSError, UnicodeDecodeError):
        public = key.with_name(f"{key.name}.pub").read_text(encoding="utf-8")
        return key.exists() and public.startswith(("sk-ssh-", "sk-ecdsa-"))
    return False


def _only_authority(settings: SshSettings) -> bool:
    """Whether a ``@cert-authority`` line names the server, and no line has a key of the server.

    ``ssh-keygen`` finds the lines, because it alone supports all of their formats.
    """
    files = [file for file in (*settings.user_known_hosts, *settings.system_known_hosts) if file.is_file()]
    if not any(_has_authority(file) for file in files):
        return False
    markers = {marker for file in files for marker in _markers(file, settings.known_as)}
    return "@cert-authority" in markers and "" not in markers


def _has_authority(file: Path) -> bool:
    with contextlib.suppress(OSError):
        return b"@cert-authority" in file.read_bytes()
    return False


def _markers(file: Path, name: str) -> set[str]:
    """Return the markers of the known_hosts lines for a server; an empty one for a plain line."""
    with contextlib.suppress(OSError, subprocess.TimeoutExpired):
        command = ["ssh-keygen", "-F", name, "-f", str(file)]
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, timeout=5)
        lines = [line for line in done.stdout.splitlines() if line and not line.startswith("#")]
        return {line.split()[0] if line.startswith("@") else "" for line in lines}
    return set()


def open_ssh_host(destination: Destination, prompts: Prompts, wanted: Wanted = "auto") -> tuple[Host, EngineChoice]:
    """Open a login node with the engine that fits, and return the choice as well.

    If paramiko cannot connect and ``ssh`` may be able to, ``ssh`` is tried. Raises ``ConnectionFailed``,
    ``HostKeyChanged``, ``HostKeyUnknown`` or ``AuthenticationFailed``.
    """
    from notebook_launcher.hosts.paramiko.login import Credentials

    settings = resolve(destination)
    facts = gather(settings, wanted)
    choice = choose(settings, wanted, facts)
    credentials = Credentials(prompts)
    try:
        return _opener(choice.engine)(destination, credentials, settings), choice
    except (ConnectionFailed, AuthenticationFailed) as error:
        # a user who has already been asked for a secret is not asked again
        if wanted != "auto" or not facts.has_ssh or not error.openssh_may_help or credentials.prompt_count:
            raise
        choice, refusal = EngineChoice("openssh", f"paramiko could not log in: {error.why}"), error
    try:
        return _opener(choice.engine)(destination, Credentials(prompts), settings), choice
    except AddressRefused:  # a consequence of the login that has just failed
        raise refusal from None


def _opener(engine: str) -> Callable[..., Host]:
    if engine == "openssh":
        from notebook_launcher.hosts.openssh.host import OpenSshHost

        return OpenSshHost.open
    from notebook_launcher.hosts.paramiko.host import ParamikoHost

    return ParamikoHost.open
