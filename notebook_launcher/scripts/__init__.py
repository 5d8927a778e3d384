"""Handles a user's job script before its job: reads it, fills in templates, and collects the files to send with it.

``supervision.script`` follows its job; ``usage`` measures what the job used.
May import: core, notebook, profiles, schedulers.
"""
