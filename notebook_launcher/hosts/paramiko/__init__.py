"""A login node over SSH with paramiko: host keys, logging in, and one transport for everything.

The same with the system's ``ssh`` is in ``hosts.openssh``.
"""
