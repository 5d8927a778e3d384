"""Modules that belong together."""
