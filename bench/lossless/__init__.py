"""Benchmarks of the engine ``lcm``: how it scales, what it costs, and what it survives."""
