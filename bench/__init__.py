"""Benchmarks: each module is run with ``python -m bench.<name>`` and prints what it measured."""
