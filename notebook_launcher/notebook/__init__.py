"""Handles a notebook before and after its job: prepares it, sets its parameters, copies it, and fetches its results.

``supervision.batch`` follows the job that executes it.
May import: core, hosts, planning, profiles, session, transfer.
"""

from __future__ import annotations

import sys

# nbformat uses jsonschema, which builds 38 grammars with this library at each start, for two formats that no notebook
# uses; that takes seconds. Without the library, jsonschema skips these formats.
sys.modules.setdefault("rfc3987_syntax", None)  # type: ignore[arg-type]
