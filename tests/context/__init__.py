"""Tests of deciding and planning."""
