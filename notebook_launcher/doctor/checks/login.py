"""Checks this machine, the connection to the login node, and the user's files, clock and shell there."""

from __future__ import annotations

import socket
import time
from datetime import datetime
from pathlib import Path

from notebook_launcher.core.check_runner import CheckRunner
from notebook_launcher.core.errors import (
    AuthenticationFailed,
    ConnectionFailed,
    HostCommandFailed,
    HostKeyChanged,
    HostKeyUnknown,
    LauncherError,
)
from notebook_launcher.core.finding import Finding, fault, of_error, ok
from notebook_launcher.doctor.findings import (
    Folder,
    Home,
    assess_clock,
    assess_home,
    assess_keys,
    assess_login_shell,
    assess_quota,
    assess_root,
    assess_ssh_files,
    read_home,
)
from notebook_launcher.hosts.base import Host, Prompts
from notebook_launcher.planning.target import LaunchTarget
from notebook_launcher.session.open_context import open_host
from notebook_launcher.session.record import Site, inspect_host

LOGIN_NODE, HOST_KEY, AUTHENTICATION, HOME, ROOT = "login node", "host key", "login", "home", "session folder"
LOGIN_SHELL = "login shell"
LOGGED_IN = (LOGIN_NODE, HOST_KEY, AUTHENTICATION)  # all other checks on the login node depend on these
_KEYS = (HostKeyChanged, HostKeyUnknown)
TIMEOUT = 30.0  # seconds for one query of the login node, whose file server may hang

# POSIX sh, read from standard input. It prints lines of a key and a value. Its test files are removed immediately.
INSPECT_HOME = r"""
disk() { df -Pk -- "$1" 2>/dev/null | awk 'NR == 2 { print $2, $4 }'; }
try() (  # others may be able to write in that folder: so the name is unpredictable, and the file is private
  umask 077
  if result=$(mktemp -- "$1/.launch-notebook-checks.XXXXXX" 2>&1); then
    file=$result
    trap 'rm -f -- "$file"' EXIT
    trap exit HUP INT TERM
    if result=$( (head -c 65536 /dev/zero | cat >"$file") 2>&1 ); then result=ok; fi
  fi
  printf '%s\n' "${result:-no reason was given}" | tail -n 1
)
root=$1
cd / || exit
printf 'shell %s\numask %s\n' "${SHELL##*/}" "$(umask)"
for path in "$HOME" "$HOME/.ssh" "$HOME/.ssh/authorized_keys"; do
  [ -e "$path" ] && printf 'mode %s %s\n' "$(ls -ldn -- "$path" | cut -c 1-10)" "$path"
done
printf 'home-path %s\nhome-disk %s\nhome-write %s\n' "$HOME" "$(disk "$HOME")" "$(try "$HOME")"
above=$root
while [ ! -d "$above" ] && [ "$above" != "${above%/*}" ]; do above=${above%/*}; done
[ "$above" = "$root" ] && printf 'root-mode %s\n' "$(ls -ldn -- "$root" | cut -c 1-10)"
printf 'root-path %s\nroot-disk %s\nroot-write %s\n' "$root" "$(disk "${above:-/}")" "$(try "${above:-/}")"
"""


def check_this_machine(checks: CheckRunner, target: LaunchTarget) -> None:
    """Check this machine: the SSH engine, the private key files, and a port for the browser."""
    if target.destination is not None:
        checks.check("ssh here", lambda: _engine(target))
        checks.check("keys here", lambda: _keys(target), needs=["ssh here"])
    checks.check("local port", _local_port)


def _engine(target: LaunchTarget) -> Finding:
    from notebook_launcher.hosts.engine_choice import choose, gather
    from notebook_launcher.hosts.ssh_config import resolve

    assert target.destination is not None  # noqa: S101  # checked by the caller
    settings, wanted = resolve(target.destination), target.profile.engine
    return ok(str(choose(settings, wanted, gather(settings, wanted))))


def _keys(target: LaunchTarget) -> Finding | None:
    import sys

    from notebook_launcher.hosts.ssh_config import resolve

    if sys.platform == "win32" or target.destination is None:  # file modes mean nothing on Windows
        return None
    files = [file for file in resolve(target.destination).identity_files if file.is_file()]
    return assess_keys({_from_home(file): file.stat().st_mode & 0o777 for file in files})


def _from_home(path: Path) -> str:
    try:
        return f"~/{path.relative_to(Path.home())}"
    except ValueError:
        return str(path)


def _local_port() -> Finding:
    try:
        with socket.socket() as server:
            server.bind(("127.0.0.1", 0))
            server.listen(1)
    except OSError as error:
        return fault(
            f"No port of 127.0.0.1 can be opened here: {error}.", "check whether a firewall program forbids it"
        )
    return ok("127.0.0.1 takes connections for the browser")


# --- logging in ------------------------------------------------------------------------------------------------


def log_in(checks: CheckRunner, target: LaunchTarget, prompts: Prompts) -> Host | None:
    """Log in, report each step, and return the host; ``None`` if a step failed."""
    if target.destination is None:
        checks.report(LOGIN_NODE, ok("this machine: no connection is needed"))
        return open_host(target, checks.view, prompts)
    if checks.skip_unless_passed(LOGIN_NODE, ["ssh here"]):
        _skip_the_rest(checks, 1)
        return None
    try:
        host = open_host(target, checks.view, prompts)
    except (ConnectionFailed, HostKeyChanged, HostKeyUnknown, AuthenticationFailed) as error:
        _failed(checks, 0 if isinstance(error, ConnectionFailed) else 2 - isinstance(error, _KEYS), error)
        return None
    for step in range(3):
        _report_login(checks, step, host.label, host.entered_by)
    return host


def _failed(checks: CheckRunner, step: int, error: LauncherError) -> None:
    for before in range(step):
        _report_login(checks, before, "", "")
    checks.report(LOGGED_IN[step], of_error(error))
    _skip_the_rest(checks, step + 1)


def _report_login(checks: CheckRunner, step: int, label: str, how: str) -> None:
    answers = f"{label} answers" if label else "it answers"
    checks.report(
        LOGGED_IN[step], ok((answers, "as known_hosts has it", f"by {how}" if how else "ssh lets us in")[step])
    )


def _skip_the_rest(checks: CheckRunner, first: int) -> None:
    for name in LOGGED_IN[first:]:
        checks.skip(name, f"not checked: it needs {LOGGED_IN[max(0, first - 1)]}")


# --- on the login node -----------------------------------------------------------------------------------------


def check_login_node(checks: CheckRunner, host: Host, target: LaunchTarget) -> tuple[Site, str] | None:
    """Check the user's account there; return the ``Site`` and the folder of sessions, ``None`` if no command runs."""
    site = _site(checks, host)
    if site is None:
        return None
    root = site.expand(target.profile.session_root)
    if host.remote:
        checks.check("clock", lambda: assess_clock(site.clock(), datetime.now(site.now.tzinfo)))
    home = _inspect_home(checks, host, root)
    checks.check(LOGIN_SHELL, lambda: _login_shell(host, home.shell), doing="starting a login shell there")
    if host.remote:
        checks.check("ssh files there", lambda: assess_ssh_files(home.modes or {}), needs=["commands there"])
    checks.check(HOME, lambda: assess_home(home.home), needs=["commands there"])
    # a full or read-only home is reported once
    needs = ["commands there", *([HOME] if root.startswith(f"{site.home}/") else [])]
    checks.check(ROOT, lambda: _root(host, home.root), needs=needs)
    if command := target.profile.quota_command:
        checks.check("quota", lambda: _quota(host, site, command), needs=[LOGIN_SHELL], doing=f"asking {command[0]}")
    return site, root


def _site(checks: CheckRunner, host: Host) -> Site | None:
    try:
        return inspect_host(host)
    except LauncherError as error:
        checks.report("commands there", of_error(error))
        return None


def _inspect_home(checks: CheckRunner, host: Host, root: str) -> Home:
    try:
        answer = host.run(["sh", "-s", "--", root], stdin=INSPECT_HOME.encode(), timeout=TIMEOUT)
    except HostCommandFailed as error:
        error.why = "Does a file server hang, or the home?"
        checks.report("commands there", of_error(error))
        return read_home("")
    return read_home(answer.stdout)


def _root(host: Host, root: Folder) -> Finding:
    """Assess the folder of sessions as a launch does: it is writable, and nobody else can replace files there."""
    finding = assess_root(root)
    if finding.result != "fault":
        host.refuse_unsafe(root.path)
    return finding


def _login_shell(host: Host, shell: str) -> Finding:
    """Start a login shell twice, to see how long it takes, and what it prints by itself."""
    began = time.monotonic()
    host.run(["true"], login_shell=True, timeout=TIMEOUT)
    seconds = time.monotonic() - began
    result = host.run(["bash", "-l", "-c", ":"], timeout=TIMEOUT)
    noise = [*result.stdout.splitlines(), *result.stderr.splitlines()]
    return assess_login_shell(shell, noise, seconds, has_setup=bool(host.login_setup.lines))


def _quota(host: Host, site: Site, command: tuple[str, ...]) -> Finding:
    answer = host.run([site.expand(word) for word in command], login_shell=True, timeout=TIMEOUT)
    return assess_quota(command, answer.exit_code, answer.stdout or answer.stderr)
