"""The modules that plugins import as ``gateway``."""
