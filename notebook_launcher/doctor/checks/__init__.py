"""The checks of ``doctor``, one file for each system that is inspected.

``doctor.findings`` judges the results.
"""
