"""``classroom``: checks a lab of many students beforehand, watches it, collects its results, and ends it.

A single student's session is handled by the packages below. ``planning`` reads the course.
May import: bench, core, diagnosis, doctor, hosts, jobs, launch, planning, profiles, schedulers, session, tunnel, usage.
"""
