"""Grid Engine: its commands, states, refusals and accounting, as text.

Nothing is run here.
"""
