"""Benchmarks of the gateway: identity, fuzzing."""
