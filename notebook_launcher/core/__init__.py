"""What every other package may use: errors, events, the request, text, time and small tools.

Nothing here knows a scheduler, a host or a profile.
May import: nothing of the project.
"""
