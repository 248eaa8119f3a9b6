"""The modules that plugins import as ``tools``: only its registry."""
