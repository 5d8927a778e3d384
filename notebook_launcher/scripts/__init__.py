"""A user's job script before its job: reading it, its templates, and what goes with it.

What follows its job is ``supervision.script``; what the job used is in ``usage``.
May import: core, notebook, profiles, schedulers.
"""
