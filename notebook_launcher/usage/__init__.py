"""What a session used and cost: samples, totals, prices, the usage report, and what to request next time.

Sampling itself is ``jobscripts/lib/usage.sh``.
May import: core, diagnosis, hosts, jobs, planning, profiles, schedulers, session.
"""
