"""Files that commands read and write: transcripts and results. ``-`` is standard input."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from everlong.cli.output import format_bytes, say, working
from everlong.config.files import write_whole
from everlong.errors import TranscriptError

if TYPE_CHECKING:
    from everlong.wire import Transcript


def read_input(name: str) -> Transcript:
    """Read the conversations of a file, and say on stderr which format they have."""
    from everlong.wire import read_transcript  # noqa: PLC0415 - keeps `--help` quick

    if name == "-" and sys.stdin.isatty():
        say("reading a conversation from the terminal; end it with Ctrl-D")
    data = sys.stdin.buffer.read() if name == "-" else Path(name).read_bytes()
    shown = "standard input" if name == "-" else name
    try:
        with working(f"reading {format_bytes(len(data))}"):
            transcript = read_transcript(data)
    except TranscriptError as error:
        raise TranscriptError(f"{shown}: {error}") from error
    say(f"read {shown} as {transcript.describe()}")
    return transcript


def write_output(name: str, text: str) -> None:
    """Write a file completely or not at all."""
    write_whole(Path(name), text, new_mode=0o666 & ~_umask())


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
