"""``everlong sessions export``: sessions out to files."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from everlong.cli.sessions_common import command, counted, found, json_option, opened, put_json, say

if TYPE_CHECKING:
    from everlong.store import Session, Store
    from everlong.store.transcripts import Format


@command("export")
@click.argument("sessions", nargs=-1, metavar="[SESSION]...")
@click.option("--all", "everything", is_flag=True, help="All sessions, oldest first.")
@click.option("--lineage", is_flag=True, help="Also the sessions that they continue and that continue them.")
@click.option(
    "--format",
    "form",
    type=click.Choice(["jsonl", "json", "markdown", "html"]),
    help="What to write.  [default: by the name of the file, else jsonl]",
)
@click.option(
    "-o", "--output", type=click.Path(), help="Write here instead of stdout; into a folder, a file for each session."
)
@json_option
def export(
    sessions: tuple[str, ...], everything: bool, lineage: bool, form: str | None, output: str | None, as_json: bool
) -> None:
    """Write sessions out as JSONL that `import` reads, the JSON log, a Markdown or a self-contained HTML transcript."""
    if bool(sessions) == everything:
        raise click.UsageError("name the sessions to export, or say --all")
    if as_json and output is None:
        raise click.UsageError("--json tells what was written, so it needs --output")
    with opened() as store:
        chosen = _chosen(store, sessions, everything=everything, lineage=lineage)
        kind = _format(form, output)
        done = _write(store, chosen, kind, output)
    if as_json:
        put_json(done)
    elif output is not None:
        messages = sum(entry["messages"] for entry in done)
        say(f"wrote {counted(len(chosen), 'session')} with {counted(messages, 'message')} to {output}")


def _chosen(store: Store, names: tuple[str, ...], *, everything: bool, lineage: bool) -> list[Session]:
    if everything:
        return store.sessions.newest()[::-1]
    chosen: dict[str, Session] = {}
    for name in names:
        one = found(store, name)
        chosen |= {member.id: member for member in (store.sessions.lineage(one.id) if lineage else [one])}
    return list(chosen.values())


def _format(form: str | None, output: str | None) -> Format:
    from everlong.store.transcripts import FORMATS, suffix_of  # noqa: PLC0415 - keeps `everlong --help` quick

    suffix = Path(output or "").suffix.lower()
    return next((known for known in FORMATS if form == known or (form is None and suffix_of(known) == suffix)), "jsonl")


def _write(store: Store, chosen: list[Session], form: Format, output: str | None) -> list[dict[str, Any]]:
    from everlong.store.transcripts import suffix_of, write_transcript  # noqa: PLC0415 - keeps `everlong --help` quick

    if output is None:
        count = write_transcript(store, chosen, form, _utf8(sys.stdout))
        sys.stdout.flush()  # here, so that a reader who went away is noticed where that is dealt with
        return [{"file": None, "messages": count}]
    path = Path(output)
    if not path.is_dir() and not output.endswith(("/", os.sep)):
        with _whole(path) as put:
            return [{"file": output, "messages": write_transcript(store, chosen, form, put)}]
    path.mkdir(parents=True, exist_ok=True)
    done = []
    for one in chosen:
        file = path / f"session_{one.id}{suffix_of(form)}"
        with _whole(file) as put:
            done.append({"file": str(file), "messages": write_transcript(store, [one], form, put)})
    return done


def _utf8(stream: Any) -> Callable[[str], Any]:
    """Writes text as UTF-8, whatever the terminal's own encoding is."""
    raw = getattr(stream, "buffer", None)
    return stream.write if raw is None else lambda text: raw.write(text.encode("utf-8"))


@contextmanager
def _whole(path: Path) -> Iterator[Callable[[str], Any]]:
    """A file that is there as a whole or not at all, readable by its owner only."""
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        with os.fdopen(
            os.open(partial, os.O_CREAT | os.O_WRONLY | os.O_TRUNC, 0o600), "w", encoding="utf-8", newline="\n"
        ) as file:
            yield file.write
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)
