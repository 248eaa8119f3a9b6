"""Sessions as files for people and programs: JSONL, the JSON log, Markdown and HTML, written message by message."""

from everlong.store.transcripts.clean import one_line, plain
from everlong.store.transcripts.pieces import Piece, pieces_of
from everlong.store.transcripts.write import FORMATS, Format, suffix_of, write_transcript

__all__ = ["FORMATS", "Format", "Piece", "one_line", "pieces_of", "plain", "suffix_of", "write_transcript"]
