"""Schedulers as pure text: a request in, a command out; a command's output in, data out.

Nothing is run here: ``hosts`` runs commands, and ``jobs`` waits for jobs.
May import: core.
"""
