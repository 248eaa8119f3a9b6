"""Conversations in the formats of files and APIs, and conversions between them.

This package knows formats only; nothing here touches a disk or a network.
"""

from __future__ import annotations

from everlong.wire.anthropic import sendable, to_anthropic, to_openai
from everlong.wire.responses import from_items, message_of_answer, to_items
from everlong.wire.transcript import Transcript, TranscriptConversation, TranscriptKind, read_transcript

__all__ = [
    "Transcript",
    "TranscriptConversation",
    "TranscriptKind",
    "from_items",
    "message_of_answer",
    "read_transcript",
    "sendable",
    "to_anthropic",
    "to_items",
    "to_openai",
]
