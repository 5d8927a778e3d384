"""Where commands run: this machine, or a login node over SSH, by paramiko or by the system's ``ssh``.

Which commands, and which scheduler there is, is not known here: see ``schedulers`` and ``jobs``.
May import: core.
"""
