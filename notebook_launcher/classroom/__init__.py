"""``classroom``: a lab of many students: checked beforehand, watched, its results collected, ended.

What a single student's session is and does is in the packages below. ``planning`` reads the course.
May import: bench, core, diagnosis, doctor, hosts, jobs, launch, planning, profiles, schedulers, session, tunnel, usage.
"""
