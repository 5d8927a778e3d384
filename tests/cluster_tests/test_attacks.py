"""Attacks on the practice cluster, most of them on one session of alice's: all of them fail."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from tests.cluster_tests import recorded_tables
from tests.cluster_tests.attack import NODE, Attack, Scene
from tests.cluster_tests.attacks import ATTACKS, RECORD, key
from tests.cluster_tests.class_of_students import class_on
from tests.conftest import PROFILE, clear, launch, write_profile
from tests.practice_cluster import PracticeCluster


@pytest.fixture(scope="module")
def scene(cluster: PracticeCluster) -> Iterator[Scene]:
    """Start a session whose engine and route offer most to attack: sockets, a key file, and a port of the node."""
    words = ("-n", "1", "-w", NODE, "--engine", "openssh", "--route", "job-sshd", "--", "module")
    session = launch(cluster, "laptop", *words, columns=200)
    session.ready()
    scene = Scene(cluster, session)
    with class_on(cluster, "bob", "carol"):
        yield scene
    for one in (scene.session, *scene.others):
        one.child.close(force=True)
    clear(cluster)
    cluster.root("login", ["rm", "-rf", scene.directory])
    write_profile(cluster, "laptop", "alice", PROFILE)


@pytest.mark.parametrize("attack", [pytest.param(one, id=key(one)) for one in ATTACKS])
def test_an_attack_comes_to_nothing(request: pytest.FixtureRequest, scene: Scene, attack: Attack) -> None:
    came = recorded_tables.unchanging(attack.act(scene))
    assert re.fullmatch(attack.comes, came, re.DOTALL), came
    recorded_tables.keep(request.config, RECORD, key(attack), came)
