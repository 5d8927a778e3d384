"""Follows one session from submission to its end: waits, attaches, reconnects and cleans up.

Submitting and cancelling are in ``jobs``, the tunnel itself in ``tunnel``.
May import: core, diagnosis, jobs, notebook, schedulers, session, tunnel, usage.
"""
