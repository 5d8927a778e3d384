"""What the scheduler knows of jobs: submit, watch, explain, cancel, list; asked politely.

The commands themselves are text in ``schedulers``; a session seen through is in ``supervision``.
May import: core, diagnosis, hosts, planning, profiles, schedulers, session, tunnel.
"""
