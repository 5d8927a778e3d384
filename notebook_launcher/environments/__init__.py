"""Software on the cluster: lists, checks, exports and creates environments, and builds container images.

The code with which a job enters an environment is in ``jobscripts/lib``.
May import: core, hosts, jobs, launch, planning, profiles, session, supervision.
"""
