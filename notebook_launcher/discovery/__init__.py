"""``init``: an unknown cluster is read, and a profile of it is written.

Reading and editing profiles is in ``profiles``.
May import: core, hosts, jobs, launch, planning, profiles, schedulers, session, supervision, tunnel.
"""
