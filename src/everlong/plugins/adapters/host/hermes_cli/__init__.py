"""What plugins import as ``hermes_cli``."""
