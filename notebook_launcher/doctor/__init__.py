"""``doctor``: checks everything that a launch needs, in order, each with a hint.

``diagnosis`` explains why a single job failed.
May import: core, diagnosis, hosts, jobs, launch, planning, profiles, schedulers, session, supervision, tunnel.
"""
