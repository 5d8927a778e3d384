"""Where commands run: this machine, or a login node over SSH, with paramiko or the system's ``ssh``.

Which commands, and which scheduler, is up to ``schedulers`` and ``jobs``.
May import: core.
"""
