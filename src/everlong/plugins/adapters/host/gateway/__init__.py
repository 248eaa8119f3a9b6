"""What plugins import as ``gateway``."""
