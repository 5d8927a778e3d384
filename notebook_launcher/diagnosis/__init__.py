"""Why a job is pending, why it ended, and what else could be requested. Pure: evidence in, sentences out.

``jobs`` collects the evidence.
May import: core, schedulers.
"""
