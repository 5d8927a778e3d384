"""A notebook before and after its job: prepared, given parameters, copied there, its results fetched.

The job that executes it is in ``supervision.batch``.
May import: core, hosts, planning, profiles, session, transfer.
"""

from __future__ import annotations

import sys

# nbformat has jsonschema, and that builds 38 grammars with this library for two formats that no notebook uses, which
# takes seconds at each start. Where it is not found, jsonschema goes without these formats.
sys.modules.setdefault("rfc3987_syntax", None)  # type: ignore[arg-type]
