"""What is known of one session: its record, its keys, and the context that a command works in.

What the scheduler knows of its job is in ``jobs``.
May import: core, hosts, planning, profiles, schedulers.
"""
