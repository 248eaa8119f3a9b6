"""What plugins import as ``tools``: only its registry."""
