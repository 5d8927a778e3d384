"""Schedulers as pure text: a request in, a command out; what a command printed in, data out.

Nothing is run here: commands run on a host (``hosts``), and jobs are waited for in ``jobs``.
May import: core.
"""
