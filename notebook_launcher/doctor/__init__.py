"""``doctor``: checks everything that a launch needs, in order, and gives a hint for each fault.

``diagnosis`` explains why a single job failed.
May import: core, diagnosis, hosts, jobs, launch, planning, profiles, schedulers, session, supervision, tunnel.
"""
