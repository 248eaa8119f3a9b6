"""Summaries: the document, the facts it is made of, and the summarizers."""
