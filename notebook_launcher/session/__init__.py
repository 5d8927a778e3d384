"""One session: its records, its credentials (token and keys), and the context that a command works in.

The state of its job is in ``jobs``.
May import: core, diagnosis, hosts, planning, profiles, schedulers.
"""
