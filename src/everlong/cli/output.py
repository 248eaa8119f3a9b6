"""Output that commands share: data on stdout, notices and progress on stderr, and the question before a deletion."""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO, TypeAlias, TypeVar

import click

from everlong.cli.screen import STYLE, console
from everlong.config.files import write_whole
from everlong.errors import TranscriptError
from everlong.model import counted as counted  # noqa: PLC0414 - commands take it from here

if TYPE_CHECKING:
    from everlong.wire import Transcript

json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
yes_option = click.option("-y", "--yes", is_flag=True, help="Do it without asking.")

_SPINNER_AFTER, _SPINNER_EVERY = 0.5, 1.0
_LINE_AFTER, _LINE_EVERY = 2.0, 30.0
"""Seconds until the first sign of life, and between two of them."""

Item = TypeVar("Item")
Step: TypeAlias = Callable[[int, int], None]
"""Takes the amount of work that is done, and the amount in all."""


def say(text: str) -> None:
    """Print a notice on stderr; on a terminal it breaks between words."""
    click.echo(fold(f"everlong: {text}"), err=True)


def fold(text: str, stream: TextIO | None = None, indent: str = "") -> str:
    """Return a text for a stream (stderr), with its lines broken between words if that is a terminal."""
    if not (stream or sys.stderr).isatty():
        return text
    columns = shutil.get_terminal_size().columns
    rows: list[str] = []
    for line in text.split("\n"):
        rows.append("")
        for word in re.findall(r"\s*\S+", line):
            if rows[-1] and len(STYLE.sub("", rows[-1] + word)) > columns:
                rows.append(indent)
                word = word.lstrip()  # noqa: PLW2901 - the space that the break replaces
            rows[-1] += word
    return "\n".join(rows)


def print_values(value: Any) -> None:
    """Print data as indented JSON on stdout."""
    click.echo(json.dumps(value, ensure_ascii=False, indent=2, default=str))


def confirm(question: str, yes: bool) -> None:
    """Ask before something that cannot be undone, and leave the program unless the answer is yes."""
    if yes:
        return
    try:
        is_wanted = click.confirm(question, err=True)
    except click.Abort:
        if sys.stdin.isatty():
            raise
        raise click.UsageError("there is no terminal to ask on; add --yes to do it without asking") from None
    if not is_wanted:
        say("nothing was changed")
        raise click.exceptions.Exit(1)


def format_bytes(number: int) -> str:
    """Return a number of bytes for people, such as ``1.5 MB``."""
    amount = float(number)
    for unit in ("bytes", "KB", "MB"):
        if amount < 1_000:
            return f"{amount:,.0f} {unit}" if unit == "bytes" else f"{amount:,.1f} {unit}"
        amount /= 1_000
    return f"{amount:,.1f} GB"


@contextmanager
def working(doing: str) -> Iterator[None]:
    """Give a sign of life while the block runs: a spinner with the seconds on a terminal, else a line now and then."""
    done = threading.Event()
    shown = threading.Thread(target=_show_spinner if _is_terminal() else _say_lines, args=(doing, done), daemon=True)
    shown.start()
    try:
        yield
    finally:
        done.set()
        shown.join()


def _show_spinner(doing: str, done: threading.Event) -> None:
    began = time.monotonic()
    if done.wait(_SPINNER_AFTER):
        return
    with console(stderr=True).status(f"{doing} …") as status:
        while not done.wait(_SPINNER_EVERY):
            status.update(f"{doing} … {time.monotonic() - began:.0f} s")


def _say_lines(doing: str, done: threading.Event) -> None:
    began = time.monotonic()
    if done.wait(_LINE_AFTER):
        return
    say(f"{doing} …")
    while not done.wait(_LINE_EVERY):
        say(f"still {doing}, {time.monotonic() - began:.0f} s")


def _is_terminal() -> bool:
    return sys.stderr.isatty()


@contextmanager
def progress_bar(doing: str) -> Iterator[Step]:
    """Show a bar while the block runs if stderr is a terminal, else a line; yield the function that moves the bar."""
    if not _is_terminal():
        with working(doing):
            yield lambda _done, _total: None
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn  # noqa: PLC0415 - only for a terminal

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console(stderr=True), transient=True) as progress:
        task = progress.add_task(doing, total=None)
        yield lambda done, total: progress.update(task, completed=done, total=total)


def track(items: Sequence[Item], doing: str) -> Iterator[Item]:
    """Yield the items, with a bar on a terminal; `working` shows where there is only one."""
    if len(items) <= 1:
        with working(doing):
            yield from items
        return
    with progress_bar(doing) as step:
        for done, item in enumerate(items, start=1):
            yield item
            step(done, len(items))


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
