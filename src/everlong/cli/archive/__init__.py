"""``everlong archive``: what other clients log, imported while they write it."""
