"""IBM Spectrum LSF: its commands, states and refusals, as text.

Nothing is run here.
"""
