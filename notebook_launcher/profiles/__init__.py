"""Cluster profiles: how one cluster wants to be asked, as validated data."""

from notebook_launcher.profiles.models import ClusterProfile, Environment
from notebook_launcher.profiles.store import Configuration, load_configuration, load_profile, profile_names

__all__ = [
    "ClusterProfile",
    "Configuration",
    "Environment",
    "load_configuration",
    "load_profile",
    "profile_names",
]
