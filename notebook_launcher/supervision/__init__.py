"""One session seen through, from queued to ended: waited for, attached, reconnected, cleaned up.

Submitting and cancelling are in ``jobs``, the tunnel itself in ``tunnel``.
May import: core, diagnosis, jobs, notebook, schedulers, session, tunnel, usage.
"""
