"""Transcripts: conversations as JSONL, JSON, Markdown and HTML, for people and programs."""

from everlong.store.transcripts.parts import TranscriptPiece, one_line, pieces_of, plain
from everlong.store.transcripts.writer import FORMATS, Format, suffix_of, write_transcript

__all__ = ["FORMATS", "Format", "TranscriptPiece", "one_line", "pieces_of", "plain", "suffix_of", "write_transcript"]
