"""A notebook before and after its job: preparing, parameters, copying, and fetching its results.

The job that executes it is in ``supervision.batch``.
May import: core, hosts, planning, profiles, session, transfer.
"""

from __future__ import annotations

import sys

# nbformat uses jsonschema, which builds 38 grammars with this library for two formats that no notebook uses; that takes
# seconds at each start. If the library is missing, jsonschema works without these formats.
sys.modules.setdefault("rfc3987_syntax", None)  # type: ignore[arg-type]
