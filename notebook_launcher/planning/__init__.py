"""From what was typed and what the profiles say to a plan, before anything is contacted.

Carrying a plan out is ``launch``, ``run`` and their like.
May import: core, hosts, profiles, schedulers.
"""
