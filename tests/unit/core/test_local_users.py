"""Who else uses this machine."""

from __future__ import annotations

import os
import pwd
import subprocess
import sys

import pytest

from notebook_launcher.core import local_users

pytestmark = pytest.mark.skipif(
    sys.platform != "linux" or os.geteuid() != 0, reason="only root can be another user, on Linux"
)


def people(*uids: int, shell: str = "/bin/bash") -> dict[int, pwd.struct_passwd]:
    return {uid: pwd.struct_passwd((f"user{uid}", "x", uid, uid, "", "/", shell)) for uid in uids}


@pytest.mark.parametrize(
    ("users", "is_shared"),
    [
        (people(61234), True),
        (people(61234, shell="/usr/sbin/nologin"), False),
        ({}, False),  # a container's
    ],
)
def test_a_person_s_program_shows(
    users: dict[int, pwd.struct_passwd], is_shared: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pwd, "getpwuid", users.__getitem__)
    assert not local_users.others_work_here()
    with subprocess.Popen(["sleep", "60"], user=61234) as program:
        assert local_users.others_work_here() is is_shared
        program.kill()
    assert not local_users.others_work_here()


def test_one_s_own_programs_and_the_system_s_are_nobody_else_s(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pwd, "getpwuid", people(999, 61234).__getitem__)
    with subprocess.Popen(["sleep", "60"], user=999) as system, subprocess.Popen(["sleep", "60"], user=61234) as ours:
        monkeypatch.setattr(os, "getuid", lambda: 61234)
        assert not local_users.others_work_here()
        system.kill()
        ours.kill()
