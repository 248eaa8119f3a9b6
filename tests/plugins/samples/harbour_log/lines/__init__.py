"""Requests as lines."""

from .writing import FIRST, lines_of, summary

__all__ = ["FIRST", "lines_of", "summary"]
