"""PBS Professional and OpenPBS: their commands, states, refusals and ends, as text.

Nothing is run here.
"""
