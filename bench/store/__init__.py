"""Benchmarks of the store: speed, faults, search."""
