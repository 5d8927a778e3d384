"""A notebook before and after its job: prepared, given parameters, copied there, its results fetched.

The job that executes it is in ``supervision.batch``.
May import: core, hosts, planning, profiles, session, transfer.
"""
