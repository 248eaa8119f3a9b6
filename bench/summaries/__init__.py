"""Checks of the summaries of real conversations."""
