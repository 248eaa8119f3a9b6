"""What engines import as ``agent``."""
