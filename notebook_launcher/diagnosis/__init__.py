"""Pure: why a job waits, why it ended, and what else could be asked for. Evidence in, sentences out.

Collecting the evidence is in ``jobs``.
May import: core, schedulers.
"""
