"""The commands, one per file: each turns arguments into a call of the package, and returns an exit code.

``cli.views`` shows the events.
"""
