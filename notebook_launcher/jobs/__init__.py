"""Jobs: submit, watch, explain, cancel and list them, with as few queries to the scheduler as possible.

``schedulers`` has the commands as text; ``supervision`` follows a session to its end.
May import: core, diagnosis, hosts, planning, profiles, schedulers, session, tunnel.
"""
