"""PBS Professional and OpenPBS: their commands, states, refusals and accounting, as text.

Nothing is run here.
"""
