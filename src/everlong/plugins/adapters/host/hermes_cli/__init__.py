"""The modules that plugins import as ``hermes_cli``."""
