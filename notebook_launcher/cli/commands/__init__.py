"""The commands, a file for each: arguments in, a call of the package, an exit code out.

What is shown is in ``cli.views``.
"""
