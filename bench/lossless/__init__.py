"""Measurements of the lossless engine."""
