"""A login node over SSH by paramiko: host keys, logging in, and one transport for everything.

The same by the system's ``ssh`` is in ``hosts.openssh``.
"""
