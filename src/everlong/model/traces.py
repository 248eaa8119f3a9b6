"""The first words of what stands where history was edited: a summary, a cleared result.

Part of the contract with models and other hosts, and read by every layer that must tell an edited conversation from an
untouched one. How such texts are made is not known here.
"""

from __future__ import annotations

__all__ = ["CLEARED_RESULT", "SUMMARY_STARTS"]

SUMMARY_STARTS = ("[CONTEXT COMPACTION — REFERENCE ONLY]", "[CONTEXT COMPACTION]", "[CONTEXT SUMMARY]:")
"""How a compaction's summary begins, of this version and of older ones."""

CLEARED_RESULT = "[Old tool output cleared to save context space]"
"""What an old tool result becomes."""
