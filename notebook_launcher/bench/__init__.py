"""``bench``: one notebook run in many combinations, and one report of what was measured.

A single run is ``run``.
May import: core, diagnosis, hosts, jobs, notebook, planning, run, schedulers, session, tunnel, usage.
"""
