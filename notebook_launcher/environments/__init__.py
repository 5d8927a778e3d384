"""Software on the cluster: environments listed, checked, exported and created; container images built.

How a job enters an environment is ``jobscripts/lib``.
May import: core, hosts, jobs, launch, planning, profiles, session, supervision.
"""
