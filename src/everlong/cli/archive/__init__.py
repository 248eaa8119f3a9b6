"""The logs of other clients: their formats, and their import."""
