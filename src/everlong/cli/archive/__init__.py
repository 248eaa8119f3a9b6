"""``everlong archive``: what other clients log."""
