"""Attacks on a session and its launcher: who tries what, how, and the outcome.

``test_attacks.py`` runs them on the practice cluster. The outcomes are written to the tables in docs/security.md by

    python -m tests.cluster_tests.attacks --write
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence

from tests import paths
from tests.cluster_tests.attack import Attack, By
from tests.cluster_tests.attacks_by_content import CONTENT
from tests.cluster_tests.attacks_by_nodes import BAD_LOGIN, BAD_NODE
from tests.cluster_tests.attacks_by_students import STUDENT
from tests.cluster_tests.attacks_by_users import DETACHED, LAPTOP, LOGIN, ON_NODE
from tests.cluster_tests.recorded_tables import recorded, replace_between, rows_between, table

DOCS = paths.DOCS / "security.md"
#: where a run of test_attacks.py saves the outcomes, in pytest's cache
RECORD = "attacks"
COLUMNS = ("what they want", "how it was tried", "what came of it", "what protects")
BEGIN, END = "<!-- tables: python -m tests.cluster_tests.attacks --write -->", "<!-- end of the tables -->"

# In the order in which they run: DETACHED is last because it replaces alice's launcher and its port.
ATTACKS = (*LAPTOP, *LOGIN, *ON_NODE, *STUDENT, *BAD_LOGIN, *BAD_NODE, *CONTENT, *DETACHED)


def key(attack: Attack) -> str:
    """Return the unique name of an attack, which is also a valid file name."""
    return f"{attack.by.name}-{attack.aim}".replace("/", " ").replace(" ", "-")


def tables(attacks: Sequence[Attack], came: Mapping[str, str]) -> str:
    """Return a heading and a table for each kind of attacker."""
    lines = []
    for by in By:
        rows = [cells(one, came[key(one)]) for one in attacks if one.by is by]
        lines += ["", f"### {by.value}", "", *table(COLUMNS, rows)]
    return "\n".join(lines)


def cells(attack: Attack, came: str) -> list[str]:
    """Return the four cells of an attack's row."""
    return [word.replace("|", r"\|") for word in (attack.aim, attack.how, came, attack.protects)]


def read() -> list[list[str]]:
    """Return the rows of the document's tables."""
    return [words for words in rows_between(DOCS, BEGIN, END) if words[0] not in (COLUMNS[0], "---")]


if __name__ == "__main__":
    if sys.argv[1:] != ["--write"]:
        sys.exit(__doc__)
    replace_between(DOCS, BEGIN, END, tables(ATTACKS, recorded(RECORD, map(key, ATTACKS), "test_attacks.py")))
