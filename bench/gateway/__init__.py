"""Benchmarks of the gateway, against a bare relay and by the upstream's own account."""
