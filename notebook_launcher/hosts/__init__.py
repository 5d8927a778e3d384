"""Hosts: places where commands run (this machine, or a login node over SSH). They know no scheduler."""
