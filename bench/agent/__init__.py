"""Measures whole sessions of an agent: real clients, a model server on loopback, a clock that is moved by hand."""
