"""``bench``: runs one notebook in many combinations, and reports what was measured.

A single run is ``run``.
May import: core, diagnosis, hosts, jobs, launch, notebook, planning, run, schedulers, session, tunnel, usage.
"""
