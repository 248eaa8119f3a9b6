"""The modules that engines import as ``agent``."""
