"""Copies files to and from the cluster: paths, the state of both endpoints, and the data.

``notebook`` chooses the files of a notebook.
May import: core, hosts, planning, session, tunnel.
"""
