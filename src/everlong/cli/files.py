"""Reading transcripts and writing results for the commands; ``-`` is standard input or output."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from everlong.config.files import write_whole
from everlong.errors import TranscriptError

if TYPE_CHECKING:
    from everlong.wire import Transcript


def read_input(name: str) -> Transcript:
    """The conversation file of that name, with a line on stderr that says what it was taken for."""
    from everlong.wire import read_transcript  # noqa: PLC0415 - as above

    if name == "-" and sys.stdin.isatty():
        click.echo("everlong: reading a conversation from the terminal; end it with Ctrl-D", err=True)
    data = sys.stdin.buffer.read() if name == "-" else Path(name).read_bytes()
    shown = "standard input" if name == "-" else name
    try:
        transcript = read_transcript(data)
    except TranscriptError as error:
        raise TranscriptError(f"{shown}: {error}") from error
    click.echo(f"everlong: read {shown} as {transcript.describe()}", err=True)
    return transcript


def write_output(name: str, text: str) -> None:
    """Write a file as a whole or not at all."""
    write_whole(Path(name), text, new_mode=0o666 & ~_umask())


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
