"""Reading transcripts and writing results for the commands; ``-`` is standard input or output."""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from everlong.wire import Transcript


def read_input(name: str) -> Transcript:
    """The conversation file of that name, with a line on stderr that says what it was taken for."""
    from everlong.errors import TranscriptError  # noqa: PLC0415 - keeps `everlong --help` quick
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
    path = Path(name).resolve()
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "w", encoding="utf-8", newline="") as file:
            file.write(text)
        mode = path.stat().st_mode & 0o777 if path.exists() else 0o666 & ~_umask()
        Path(temporary).chmod(mode)
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
