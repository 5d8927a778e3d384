"""From the command line and the profiles to a plan, before anything is contacted.

Carrying a plan out is ``launch``, ``run`` and their like.
May import: core, hosts, profiles, schedulers.
"""
