"""Tests of the adapters to other frameworks, with the real packages against the model server."""
