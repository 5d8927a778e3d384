"""``init``: reads an unknown cluster, and writes a profile of it.

``profiles`` reads and edits profiles.
May import: core, hosts, jobs, launch, planning, profiles, schedulers, session, supervision, tunnel.
"""
