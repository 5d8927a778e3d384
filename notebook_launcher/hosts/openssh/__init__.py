"""A login node over SSH by the system's ``ssh``: its master process, questions and control socket.

The same by paramiko is in ``hosts.paramiko``.
"""
