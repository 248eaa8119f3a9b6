"""Files that commands read and write: transcripts, results and pictures. ``-`` is standard input."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from everlong.cli.output import format_bytes, say, working
from everlong.config.files import write_whole
from everlong.errors import TranscriptError

if TYPE_CHECKING:
    from everlong.caching.plot import Chart
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


def check_picture_name(_context: click.Context, _option: click.Parameter, value: str | None) -> str | None:
    """Return the value of ``--plot`` if it names an SVG or PNG file, or the terminal; a callback for the option."""
    if value and value != "-" and not value.lower().endswith((".svg", ".png")):
        raise click.UsageError(f"--plot is {value!r}, but must end in .svg or .png, or be - for this terminal")
    return value


def write_charts(path: str, title: str, charts: Sequence[Chart]) -> None:
    """Write charts as SVG or PNG, by the ending of the name, and say so; print them as text for ``-``."""
    from everlong.caching.plot import draw_svg, draw_text, to_png  # noqa: PLC0415 - loads the simulation

    if path == "-":
        click.echo(draw_text(charts, shutil.get_terminal_size().columns))
        return
    svg = draw_svg(title, charts)
    if path.lower().endswith(".svg"):
        write_output(path, svg)
    else:
        to_png(svg, path)
    say(f"wrote {path}")


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
