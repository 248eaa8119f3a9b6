"""Tests of Everlong."""
