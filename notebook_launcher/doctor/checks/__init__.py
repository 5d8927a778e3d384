"""The checks of ``doctor``, one file for each place that is looked at.

Judging what they found is in ``doctor.findings``.
"""
