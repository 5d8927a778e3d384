"""Shared by all packages: errors, events, the request, text, time and small tools.

Nothing here knows a scheduler, a host or a profile.
May import: nothing of the project.
"""
