"""``everlong sessions import`` and ``export``: conversations from files and to files."""

from __future__ import annotations

import os
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from everlong.cli.archive.formats import format_of_log
from everlong.cli.archive.log_import import LogFolder, LogImport, changed_logs, describe_outcomes, log_folders
from everlong.cli.chosen_store import (
    command,
    find_conversation,
    index_pending,
    open_chosen_store,
    print_json,
)
from everlong.cli.output import counted, json_option, progress_bar, say
from everlong.cli.screen import is_guarded
from everlong.errors import MessageError, TranscriptError
from everlong.store.imports import Importer, ImportOrigin
from everlong.store.transcripts import FORMATS, one_line, suffix_of, write_transcript
from everlong.store.upkeep.maintenance import stats
from everlong.wire import read_transcript

if TYPE_CHECKING:
    from everlong.cli.archive.log_import import FileImport
    from everlong.store import Conversation, Store
    from everlong.store.transcripts import Format

_MOST_LISTED = 20
"""Skipped files that are named one by one."""


@command("export")
@click.argument("sessions", nargs=-1, metavar="[SESSION]...")
@click.option("--all", "everything", is_flag=True, help="All conversations, oldest first.")
@click.option(
    "--format",
    "form",
    type=click.Choice(["jsonl", "json", "markdown"]),
    help="What to write.  [default: by the name of the file; without a name jsonl]",
)
@click.option(
    "-o", "--output", type=click.Path(), help="Write to this file instead of stdout; to a folder, one file for each."
)
def export(sessions: tuple[str, ...], everything: bool, form: str | None, output: str | None) -> None:
    """Write whole conversations: as JSONL that `import` reads, as a JSON log, or as Markdown."""
    if bool(sessions) == everything:
        raise click.UsageError("name the conversations to export, or say --all")
    with open_chosen_store() as store:
        chosen = _choose(store, sessions, everything=everything)
        kind = _choose_format(form, output)
        messages = _write_files(store, chosen, kind, output)
    if output is not None:
        say(f"wrote {counted(len(chosen), 'conversation')} with {counted(messages, 'message')} to {output}")


def _choose(store: Store, names: tuple[str, ...], *, everything: bool) -> list[Conversation]:
    if everything:
        every = store.conversations.newest(kinds=("main", "side", "agent"))
        return sorted(every, key=lambda one: (one.started, one.id))
    return list({one.id: one for one in (find_conversation(store, name) for name in names)}.values())


def _choose_format(form: str | None, output: str | None) -> Format:
    suffix = Path(output or "").suffix.lower()
    found = (known for known in FORMATS if form == known or (form is None and suffix_of(known) == suffix))
    if (kind := next(found, None)) is not None:
        return kind
    if suffix and not Path(output or "").is_dir():
        known = ", ".join(map(suffix_of, FORMATS))
        raise TranscriptError(f"{output}: nothing is written as {suffix}; name a file with {known}, or give a --format")
    return "jsonl"


def _write_files(store: Store, chosen: list[Conversation], form: Format, output: str | None) -> int:
    """Write conversations to stdout, to a file, or to a file each in a folder; return the number of messages."""
    if output is None:
        count = write_transcript(store, chosen, form, _utf8_writer(sys.stdout))
        sys.stdout.flush()  # a closed pipe must raise here, where `main` handles it
        return count
    path = Path(output)
    if not path.is_dir() and not output.endswith(("/", os.sep)):
        with _open_whole(path) as put:
            return write_transcript(store, chosen, form, put)
    path.mkdir(parents=True, exist_ok=True)
    count = 0
    for one in chosen:
        with _open_whole(path / f"session_{one.id}{suffix_of(form)}") as put:
            count += write_transcript(store, [one], form, put)
    return count


def export_to(store: Store, one: Conversation, path: Path) -> int:
    """Write a conversation to a file, in the format that its name says; return the number of messages."""
    with _open_whole(path) as put:
        return write_transcript(store, [one], _choose_format(None, str(path)), put)


def _utf8_writer(stream: Any) -> Callable[[str], Any]:
    """Return a function that writes text as UTF-8, whatever the encoding of the terminal."""
    raw = None if is_guarded(stream) else getattr(stream, "buffer", None)
    return stream.write if raw is None else lambda text: raw.write(text.encode("utf-8"))


@contextmanager
def _open_whole(path: Path) -> Iterator[Callable[[str], Any]]:
    """Write a file completely or not at all, readable by its owner only; yield the function that writes."""
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        with os.fdopen(
            os.open(partial, os.O_CREAT | os.O_WRONLY | os.O_EXCL, 0o600), "w", encoding="utf-8", newline="\n"
        ) as file:
            yield file.write
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


@command("import")
@click.argument("paths", nargs=-1, type=click.Path(exists=True, allow_dash=True), metavar="[PATH]...")
@click.option("--source", help="A name for the source of these sessions.  [default: the client, or import]")
@json_option
def import_(paths: tuple[str, ...], source: str | None, as_json: bool) -> None:
    """Import conversations from files, from all .jsonl files and logs of a folder, or from standard input ("-").

    Files are what `everlong compress` reads: message lists, request bodies, JSONL in the OpenAI or Anthropic format;
    logs of Claude Code, Codex, opencode, pi, Cline and aider; and what `everlong sessions export`
    wrote. Without PATH, the logs of these clients that have changed, from where the clients keep them.
    Importing again adds only what is new; an import that was interrupted goes on when it is run again.
    """
    outcomes: Counter[str] = Counter()
    skipped: list[dict[str, str]] = []
    with open_chosen_store(new=True) as store:
        files = dict(_list_files(paths) if paths else _list_logs(store, skipped))
        logs = LogImport(store, source=source, is_named=lambda path: files.get(str(path), True))
        before = stats(store)["messages"]
        try:
            with progress_bar("importing") as step:
                for done, result in import_files(logs, files, skipped, is_growing=not paths):
                    outcomes.update(result)
                    step(done, len(files))
        except KeyboardInterrupt:
            say(f"stopped after {describe_outcomes(outcomes)}; run it again to go on")
            raise
        finally:
            _say_skipped(skipped)
        added = stats(store)["messages"] - before
        index_pending(store)
    if as_json:
        figures = {name: outcomes[name] for name in ("new", "grown", "known", "empty")}
        print_json({"files": len(files), "messages": added, **figures, "skipped": skipped})
    read, fresh = counted(len(files) - len(skipped), "file"), counted(added, "new message")
    say(f"read {read}: {describe_outcomes(outcomes)}; {fresh}, not counting system prompts")
    if skipped:
        raise click.exceptions.Exit(1)


def _list_logs(store: Store, skipped: list[dict[str, str]]) -> Iterator[tuple[str, bool]]:
    """Yield the logs of other clients that have changed, none of them named by the user."""
    yield from ((str(path), False) for path in changed_logs(store, log_folders(), skipped))


def _list_files(paths: Sequence[str]) -> Iterator[tuple[str, bool]]:
    """Yield files by name, each with whether the user has named the file itself, rather than its folder."""
    for name in paths:
        path = Path(name)
        if name == "-" or not path.is_dir():
            yield name, True
            continue
        inside = [file for file in LogFolder("", path, ("**/*",), is_own=False).files() if _may_be_log(file)]
        if not inside:
            raise TranscriptError(f"{name} has no .jsonl files in it, and no logs; name the files themselves")
        yield from ((str(file), False) for file in inside)


def _may_be_log(file: Path) -> bool:
    """Return whether a file of a folder is imported: JSONL, or a client's log of another kind."""
    if file.suffix == ".jsonl":
        return True
    try:
        return file.suffix in {".json", ".db", ".md"} and format_of_log(file) is not None
    except OSError:  # the import says why it cannot be read
        return True


def import_files(
    logs: LogImport, files: Mapping[str, bool], skipped: list[dict[str, str]], *, is_growing: bool = False
) -> Iterator[tuple[int, Counter[str]]]:
    """Import the files one by one; yield the number of files so far and the outcomes of the last one.

    Args:
        logs: the import of logs into the store.
        files: the files by name, each with whether the user has named it.
        skipped: gets the files that could not be read.
        is_growing: True for logs that their clients may be writing now; anything else among them is left out.
    """
    importer = Importer(logs.store)
    for done, (name, is_named) in enumerate(files.items(), start=1):
        result: Counter[str] = Counter()
        path = Path(os.path.realpath(name)) if is_named else Path(name)
        is_stream = name == "-" or not path.is_file()  # such as the pipe of <(a command)
        try:
            log = None if is_stream else logs.add(path, is_growing=is_growing)
            if log is not None or is_growing:
                if log is not None:
                    result.update(log.outcomes)
                    _say_broken(name, log)
                yield done, result
                continue
            transcript = read_transcript(sys.stdin.buffer.read() if name == "-" else Path(name).read_bytes())
            if is_stream:
                origin = ImportOrigin("standard input", time.time(), logs.source, found_in="-")
            else:
                origin = logs.origin(path, path.stat().st_mtime)
            with logs.store.batch():
                for conversation in transcript.conversations:
                    result[importer.add(conversation, origin).outcome] += 1
        except (TranscriptError, MessageError, OSError, MemoryError, OverflowError, RecursionError) as error:
            if "has no messages" in str(error) or "the input is empty" in str(error):
                result["empty"] += 1
            else:
                skipped.append({"file": name, "problem": str(error) or "it is too large"})
        yield done, result


def _say_broken(name: str, log: FileImport) -> None:
    if log.cut_off:
        say(f"{name}: the last line is cut off ({log.cut_off:,} bytes) and was left out")
    if log.broken:
        say(f"{name}: {counted(log.broken, 'line')} that cannot be read were left out")


def _say_skipped(skipped: list[dict[str, str]]) -> None:
    for entry in skipped[:_MOST_LISTED]:
        say(one_line(f"skipped {entry['file']}: {entry['problem']}"))
    if len(skipped) > _MOST_LISTED:
        say(f"… and {len(skipped) - _MOST_LISTED:,} more files were skipped; --json lists all")
