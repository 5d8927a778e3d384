"""Cluster and course profiles: their models and files, and how these are read, validated and edited.

``planning`` decides what a profile means for a launch.
May import: core, schedulers.
"""

from notebook_launcher.profiles.models import ClusterProfile, Configuration, Environment
from notebook_launcher.profiles.store import load_configuration, load_profile, profile_names

__all__ = [
    "ClusterProfile",
    "Configuration",
    "Environment",
    "load_configuration",
    "load_profile",
    "profile_names",
]
