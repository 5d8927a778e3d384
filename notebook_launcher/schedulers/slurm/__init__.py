"""Slurm, 22.05 and newer: its commands, states, reasons, limits and refusals, as text.

Nothing is run here.
"""
