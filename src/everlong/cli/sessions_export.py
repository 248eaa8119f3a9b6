"""``everlong sessions export``: conversations out to files."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from everlong.cli.screen import is_guarded
from everlong.cli.sessions_common import command, counted, found, found_part, json_option, opened, put_json, say

if TYPE_CHECKING:
    from everlong.store import Conversation, Session, Store
    from everlong.store.transcripts import Format


@command("export")
@click.argument("sessions", nargs=-1, metavar="[SESSION]...")
@click.option("--all", "everything", is_flag=True, help="All conversations, oldest first.")
@click.option("--parts", is_flag=True, help="Only the parts that are named, or with --all each part by itself.")
@click.option(
    "--format",
    "form",
    type=click.Choice(["jsonl", "json", "markdown", "html"]),
    help="What to write.  [default: by the name of the file, else jsonl]",
)
@click.option("-o", "--output", type=click.Path(), help="Write here instead of stdout; into a folder, a file for each.")
@json_option
def export(
    sessions: tuple[str, ...], everything: bool, parts: bool, form: str | None, output: str | None, as_json: bool
) -> None:
    """Write conversations out, whole: as JSONL that `import` reads, the JSON log, Markdown or self-contained HTML."""
    if bool(sessions) == everything:
        raise click.UsageError("name the conversations to export, or say --all")
    if as_json and output is None:
        raise click.UsageError("--json tells what was written, so it needs --output")
    with opened() as store:
        chosen = _chosen(store, sessions, everything=everything, parts=parts)
        kind = _format(form, output)
        done = _write(store, chosen, kind, output)
    if as_json:
        put_json(done)
    elif output is not None:
        messages = sum(entry["messages"] for entry in done)
        noun = "part" if parts else "conversation"
        say(f"wrote {counted(len(chosen), noun)} with {counted(messages, 'message')} to {output}")


def _chosen(
    store: Store, names: tuple[str, ...], *, everything: bool, parts: bool
) -> list[Conversation] | list[Session]:
    if parts:
        if everything:
            return store.sessions.newest()[::-1]
        return list({one.id: one for one in (found_part(store, name) for name in names)}.values())
    if everything:
        every = store.conversations.newest(kinds=("main", "side", "agent"))
        return sorted(every, key=lambda one: (one.started, one.id))
    return list({one.id: one for one in (found(store, name) for name in names)}.values())


def _format(form: str | None, output: str | None) -> Format:
    from everlong.store.transcripts import FORMATS, suffix_of  # noqa: PLC0415 - keeps `everlong --help` quick

    suffix = Path(output or "").suffix.lower()
    return next((known for known in FORMATS if form == known or (form is None and suffix_of(known) == suffix)), "jsonl")


def _write(
    store: Store, chosen: list[Conversation] | list[Session], form: Format, output: str | None
) -> list[dict[str, Any]]:
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
    raw = None if is_guarded(stream) else getattr(stream, "buffer", None)
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
