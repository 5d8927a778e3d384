"""docs/security.md holds every attack that is tried, with what came of it, and no other."""

from __future__ import annotations

import re

from tests.cluster_tests.attack import By
from tests.cluster_tests.attacks import ATTACKS, cells, key, read

ROWS = read()


def test_there_are_many_and_each_has_a_name_of_its_own() -> None:
    assert len({key(one) for one in ATTACKS}) == len(ATTACKS) >= 30
    assert {one.by for one in ATTACKS} == set(By)


def test_every_attack_is_in_the_document_and_no_other() -> None:
    listed = [one for by in By for one in ATTACKS if one.by is by]
    assert [row[:2] for row in ROWS] == [cells(one, "")[:2] for one in listed]
    for attack, (_, _, came, protects) in zip(listed, ROWS, strict=True):
        assert re.fullmatch(attack.comes, came, re.DOTALL), key(attack)
        assert protects == attack.protects
