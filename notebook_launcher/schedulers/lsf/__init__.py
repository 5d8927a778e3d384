"""IBM Spectrum LSF, 10.1 and newer: its commands, states and refusals, as text.

Nothing is run here.
"""
