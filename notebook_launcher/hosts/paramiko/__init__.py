"""A login node over SSH with paramiko: host keys, logging in, and one transport for everything.

The counterpart with the system's ``ssh`` is ``hosts.openssh``.
"""
