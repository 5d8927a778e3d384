"""``doctor``: is everything there that a launch needs? Checks in order, each with a hint.

Why a single job failed is in ``diagnosis``.
May import: core, diagnosis, hosts, jobs, launch, planning, profiles, schedulers, session, supervision, tunnel.
"""
