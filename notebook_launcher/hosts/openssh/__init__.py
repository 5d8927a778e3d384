"""A login node over SSH with the system's ``ssh``: its master process, prompts and control socket.

The same with paramiko is in ``hosts.paramiko``.
"""
