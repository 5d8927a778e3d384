"""The checks of ``doctor``, one file for each system that is inspected.

``doctor.findings`` assesses the results.
"""
