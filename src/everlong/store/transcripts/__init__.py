"""Conversations as files: JSONL, the JSON log, Markdown and HTML, for people and programs, message by message."""

from everlong.store.transcripts.clean import one_line, plain
from everlong.store.transcripts.pieces import Piece, pieces_of
from everlong.store.transcripts.write import FORMATS, Format, suffix_of, write_transcript

__all__ = ["FORMATS", "Format", "Piece", "one_line", "pieces_of", "plain", "suffix_of", "write_transcript"]
