"""Whether a machine is one person's. Whatever is not known, or not understood, is a no."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from notebook_launcher.core import personal_machine
from notebook_launcher.core.personal_machine import is_personal_machine

MOUNTS = "/dev/nvme0n1p2 / ext4 rw,relatime 0 0\nproc /proc proc rw,nosuid,relatime 0 0\n"
OWN = 1000


def account(uid: int, shell: str = "/bin/bash") -> pwd.struct_passwd:
    return pwd.struct_passwd((f"user{uid}", "x", uid, uid, "", "/", shell))


SYSTEM = [account(0), account(1, "/usr/sbin/nologin"), account(101), account(65534, "/bin/sh")]


class Machine:
    """A machine with the launcher of user 1000 on it, in folders that stand for ``/proc`` and ``/etc``."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.proc, self.etc = folder / "proc", folder / "etc"
        self.accounts = [*SYSTEM, account(OWN)]
        self.owners = {"1": 0, "2": 0, "310": 101, "4711": OWN}
        (self.proc / "self" / "ns").mkdir(parents=True)
        self.etc.mkdir()
        self.namespace("pid", 4026531836)
        self.namespace("user", 4026531837)
        (self.proc / "version").write_text("Linux version 6.8.0-87-generic (buildd@lcy02) #88-Ubuntu SMP\n")
        (self.proc / "self" / "mounts").write_text(MOUNTS)
        (self.etc / "nsswitch.conf").write_text("# GNU\npasswd:         files systemd\ngroup: files sss\n")
        (self.etc / "login.defs").write_text("# comment\nUID_MIN\t\t\t 1000\nUID_MAX 60000\nSYS_UID_MIN 101\n")
        monkeypatch.setattr(personal_machine, "PROC", self.proc)
        monkeypatch.setattr(personal_machine, "ETC", self.etc)
        monkeypatch.setattr(sys, "platform", "linux")
        monkeypatch.setattr(os, "getuid", lambda: OWN)
        monkeypatch.setattr(pwd, "getpwall", lambda: self.accounts)
        real = Path.stat

        def owned(path: Path, **others: bool) -> os.stat_result:
            found = list(real(path, **others))
            found[4] = self.owners.get(path.name, found[4]) if path.parent == self.proc else found[4]
            return os.stat_result(found)

        monkeypatch.setattr(Path, "stat", owned)

    def namespace(self, name: str, number: int) -> None:
        link = self.proc / "self" / "ns" / name
        link.unlink(missing_ok=True)
        link.symlink_to(f"{name}:[{number}]")

    def is_personal(self) -> bool:
        for pid in self.owners:
            (self.proc / pid).mkdir(exist_ok=True)
        return is_personal_machine()


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    return Machine(tmp_path, monkeypatch)


def test_a_laptop_is_one_person_s(machine: Machine) -> None:
    assert machine.is_personal()


@pytest.mark.parametrize(
    ("other", "is_personal"),
    [
        (account(1001), False),
        (account(1001, ""), False),  # none is /bin/sh
        (account(1001, "/usr/sbin/nologin"), True),
        (account(1001, "/usr/bin/false"), True),
        (account(999, "/bin/sh"), True),
        (account(OWN, "/bin/zsh"), True),
        (account(61234), False),
        (account(2**31), False),
    ],
)
def test_another_person_s_account_is_enough(other: pwd.struct_passwd, is_personal: bool, machine: Machine) -> None:
    """They run nothing now; between two sessions they can."""
    machine.accounts.append(other)
    assert machine.is_personal() is is_personal


@pytest.mark.parametrize("uid", [999, 1001, 65534, 100000, 231072])
def test_a_process_of_somebody_without_a_name_is_somebody_s(uid: int, machine: Machine) -> None:
    """Such as a user of a directory that does not answer, or somebody in a container."""
    machine.owners["5000"] = uid
    assert not machine.is_personal()


def test_a_process_of_an_account_without_a_login_is_somebody_s(machine: Machine) -> None:
    machine.accounts.append(account(1001, "/usr/sbin/nologin"))
    machine.owners["5000"] = 1001
    assert not machine.is_personal()


CHANGES: dict[str, Callable[[Machine], object]] = {
    "a container's processes": lambda one: one.namespace("pid", 4026532297),
    "a container's users": lambda one: one.namespace("user", 4026532297),
    "no namespaces": lambda one: shutil.rmtree(one.proc / "self" / "ns"),
    "WSL 1": lambda one: (one.proc / "version").write_text("Linux version 4.4.0-19041-Microsoft (gcc 5.4.0) #1\n"),
    "WSL 2": lambda one: (one.proc / "version").write_text("Linux version 5.15.1-microsoft-standard-WSL2\n"),
    "hidden processes": lambda one: (one.proc / "self" / "mounts").write_text(
        MOUNTS + "proc /proc proc rw,hidepid=invisible 0 0\n"
    ),
    "no first process": lambda one: one.owners.pop("1"),
    "a container's root": lambda one: (one.proc / "self" / "mounts").write_text(
        MOUNTS + "overlay / overlay rw,lowerdir=/a 0 0\n"
    ),
    "no root": lambda one: (one.proc / "self" / "mounts").write_text("proc /proc proc rw 0 0\n"),
    "damaged mounts": lambda one: (one.proc / "self" / "mounts").write_text("x\n"),
    "a directory": lambda one: (one.etc / "nsswitch.conf").write_text("passwd: files sss systemd\n"),
    "LDAP": lambda one: (one.etc / "nsswitch.conf").write_text("passwd:\tfiles ldap [NOTFOUND=return]\n"),
    "NIS": lambda one: (one.etc / "nsswitch.conf").write_text("passwd: compat\n"),
    "two lines": lambda one: (one.etc / "nsswitch.conf").write_text("passwd: files\npasswd: files sss\n"),
    "no sources": lambda one: (one.etc / "nsswitch.conf").write_text("group: files\n"),
    "no nsswitch.conf": lambda one: (one.etc / "nsswitch.conf").unlink(),
    "no login.defs": lambda one: (one.etc / "login.defs").unlink(),
    "no UID_MIN": lambda one: (one.etc / "login.defs").write_text("UID_MAX 60000\n"),
    "damaged UID_MIN": lambda one: (one.etc / "login.defs").write_text("UID_MIN many\n"),
    "people below 1000": lambda one: (one.etc / "login.defs").write_text("UID_MIN 100\n"),
    "no process of ours": lambda one: one.owners.pop("4711"),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_where_not_everybody_shows_it_is_nobody_s(change: Callable[[Machine], object], machine: Machine) -> None:
    change(machine)
    assert not machine.is_personal()


@pytest.mark.parametrize("number", ["60000", "1000", "1001"])
def test_a_high_first_person_does_not_hide_people(number: str, machine: Machine) -> None:
    (machine.etc / "login.defs").write_text(f"UID_MIN {number}\n")
    assert machine.is_personal()
    machine.accounts.append(account(1002))
    assert not machine.is_personal()


def test_elsewhere_it_is_not_known(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    for platform in ("win32", "freebsd14", "cygwin"):
        monkeypatch.setattr(sys, "platform", platform)
        assert not machine.is_personal()


@pytest.mark.skipif(sys.platform != "linux" or os.geteuid() != 0, reason="only root can be another user, on Linux")
def test_this_machine_s_own_processes_are_read() -> None:
    """No stand-in for ``/proc``."""
    before = personal_machine._owners()
    assert os.getuid() in before and 61234 not in before
    with subprocess.Popen(["sleep", "60"], user=61234) as program:
        assert personal_machine._owners() >= {0, 61234}
        program.kill()
    assert 61234 not in personal_machine._owners()


@pytest.mark.parametrize(
    ("sources", "owners", "other", "is_personal"),
    [
        ("CSPSearchPath:\n /Local/Default\n", " 0\n 88\n 501\n", None, True),
        ("CSPSearchPath: /Local/Default /BSD/local\n", " 0\n 501\n", account(250, "/usr/bin/false"), True),
        ("CSPSearchPath: /Local/Default\n", " 0\n 501\n", account(502, "/bin/zsh"), False),
        ("CSPSearchPath: /Local/Default\n", " 0\n 501\n", account(201, "/bin/bash"), False),  # the guest
        ("CSPSearchPath: /Local/Default\n", " 0\n 501\n 502\n", None, False),
        ("CSPSearchPath: /Local/Default\n", " 0\n 501\n -2\n", None, False),
        ("CSPSearchPath: /Local/Default\n", " 0\n", None, False),
        ("CSPSearchPath: /Local/Default\n", "ps: not permitted\n", None, False),
        ("CSPSearchPath:\n /Local/Default\n /LDAPv3/ldap.uni.se\n", " 0\n 501\n", None, False),
        ("CSPSearchPath:\n /Local/Default\n /Active Directory/UNI/All Domains\n", " 0\n 501\n", None, False),
        ("", " 0\n 501\n", None, False),
        ("No such key: CSPSearchPath\n", " 0\n 501\n", None, False),
    ],
)
def test_on_a_mac_two_programs_tell_it(
    sources: str, owners: str, other: pwd.struct_passwd | None, is_personal: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What they print is what their manuals say; it was not recorded on a Mac."""
    accounts = [account(0), account(88, "/usr/bin/false"), account(2**32 - 2), account(501, "/bin/zsh")]
    monkeypatch.setattr(sys, "platform", "darwin")
    monkeypatch.setattr(os, "getuid", lambda: 501)
    monkeypatch.setattr(pwd, "getpwall", lambda: [*accounts, *([other] if other else [])])

    def run(argv: tuple[str, ...], **_: object) -> subprocess.CompletedProcess[str]:
        return subprocess.CompletedProcess(argv, 0, stdout=owners if "ps" in argv[0] else sources)

    monkeypatch.setattr(subprocess, "run", run)
    assert is_personal_machine() is is_personal
