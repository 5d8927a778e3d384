"""A login node over SSH with the system's ``ssh``: its master process, prompts and control socket.

The counterpart with paramiko is ``hosts.paramiko``.
"""
