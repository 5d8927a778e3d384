"""From the command line and the profiles to a plan, before anything is contacted.

``launch``, ``run`` and other packages carry out a plan.
May import: core, hosts, profiles, schedulers.
"""
