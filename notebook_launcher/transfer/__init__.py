"""Files to and from the cluster: which names, what is there, and the data.

A notebook's own files are chosen in ``notebook``.
May import: core, hosts, planning, session, tunnel.
"""
