"""Tests of the contract kit for context engines, and of the template for new ones."""
