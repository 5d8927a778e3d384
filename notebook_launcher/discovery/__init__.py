"""``init``: reads what an unknown cluster reports about itself, and writes a profile of it.

``profiles`` reads and edits profiles.
May import: core, hosts, jobs, launch, planning, profiles, schedulers, session, supervision, tunnel.
"""
