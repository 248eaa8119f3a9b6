"""``everlong sessions import``: conversations from files, folders and Claude Code's logs."""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from everlong.cli.sessions_common import command, counted, json_option, opened, put_json, say
from everlong.cli.sessions_index import bar, index_what_is_pending

if TYPE_CHECKING:
    from everlong.store import Store
    from everlong.wire import Transcript

SHOWN = 20
SUFFIXES = (".jsonl", ".json")


@command("import")
@click.argument("paths", nargs=-1, required=True, type=click.Path(exists=True, allow_dash=True), metavar="PATH...")
@click.option("--source", help="What to call the source of these sessions.  [default: claude-code, or import]")
@json_option
def import_(paths: tuple[str, ...], source: str | None, as_json: bool) -> None:
    """Take conversations over from files, from all .jsonl files of a folder, or from standard input for "-".

    Files are what `everlong compress` reads: message lists, request bodies, JSONL in the OpenAI or Anthropic format,
    session logs of Claude Code (also the whole folder ~/.claude/projects), and what `everlong sessions export` wrote.
    Importing again adds only what is new; an import that was interrupted goes on when it is run again.
    """
    files = list(dict.fromkeys(_files(paths)))
    outcomes: Counter[str] = Counter()
    skipped: list[dict[str, str]] = []
    with opened(new=True) as store:
        before = _messages(store)
        try:
            with bar("importing") as step:
                for done, result in _imported(store, files, source, skipped):
                    outcomes.update(result)
                    step(done, len(files))
        except KeyboardInterrupt:
            say(f"stopped after {_told(outcomes)}; run it again to go on")
            raise
        finally:
            _tell_skipped(skipped)
        added = _messages(store) - before
        index_what_is_pending(store)
    if as_json:
        put_json({"files": len(files), "messages": added, **_figures(outcomes), "skipped": skipped})
    say(f"read {counted(len(files) - len(skipped), 'file')}: {_told(outcomes)}; {counted(added, 'new message')}")
    if skipped:
        raise click.exceptions.Exit(1)


def _files(paths: Sequence[str]) -> Iterator[str]:
    from everlong.errors import TranscriptError  # noqa: PLC0415 - keeps `everlong --help` quick

    for name in paths:
        path = Path(name)
        if name == "-" or not path.is_dir():
            yield name
            continue
        inside = sorted(str(file) for file in path.rglob("*.jsonl") if file.is_file())
        if not inside:
            raise TranscriptError(f"{name} has no .jsonl files in it; name the files themselves")
        yield from inside


def _imported(
    store: Store, files: Sequence[str], source: str | None, skipped: list[dict[str, str]]
) -> Iterator[tuple[int, Counter[str]]]:
    """File by file: how many are done, and what became of the conversations of the last one."""
    from everlong.errors import MessageError, TranscriptError  # noqa: PLC0415 - keeps `everlong --help` quick
    from everlong.store.imports import Importer, Origin  # noqa: PLC0415 - as above

    importer = Importer(store)
    for done, name in enumerate(files, start=1):
        result: Counter[str] = Counter()
        try:
            transcript = _read(name)
            written = time.time() if name == "-" else Path(name).stat().st_mtime
            origin = Origin(
                transcript.kind, "standard input" if name == "-" else str(Path(name).absolute()), written, source
            )
            with store.batch():
                for conversation in transcript.conversations:
                    result[importer.add(conversation, origin).outcome] += 1
        except (TranscriptError, MessageError, OSError) as error:
            if _is_empty_log(error):
                result["empty"] += 1
            else:
                skipped.append({"file": name, "problem": str(error)})
        yield done, result


def _read(name: str) -> Transcript:
    """A file's conversations; of JSONL whose writer is still at the last line, those before it."""
    from everlong.errors import TranscriptError  # noqa: PLC0415 - keeps `everlong --help` quick
    from everlong.wire import read_transcript  # noqa: PLC0415 - as above

    data = sys.stdin.buffer.read() if name == "-" else Path(name).read_bytes()
    try:
        return read_transcript(data)
    except TranscriptError as error:
        head, _, last = data.rstrip().rpartition(b"\n")
        if not head or "It is the last line" not in str(error):
            raise
        transcript = read_transcript(head + b"\n")
        say(f"{name}: the last line is cut off ({len(last):,} bytes) and was left out")
        return transcript


def _is_empty_log(error: Exception) -> bool:
    return "has no messages" in str(error) or "the input is empty" in str(error)


def _messages(store: Store) -> int:
    from everlong.store.maintenance import stats  # noqa: PLC0415 - keeps `everlong --help` quick

    return stats(store)["messages"]


def _figures(outcomes: Counter[str]) -> dict[str, Any]:
    return {name: outcomes[name] for name in ("new", "grown", "known", "empty")}


def _told(outcomes: Counter[str]) -> str:
    words = {"new": "new", "grown": "grown", "known": "already there", "empty": "empty"}
    said = [f"{outcomes[name]:,} {word}" for name, word in words.items() if outcomes[name]]
    return f"{counted(sum(outcomes.values()), 'conversation')}" + (f" ({', '.join(said)})" if said else "")


def _tell_skipped(skipped: list[dict[str, str]]) -> None:
    from everlong.store.transcripts import one_line  # noqa: PLC0415 - keeps `everlong --help` quick

    for entry in skipped[:SHOWN]:
        say(one_line(f"skipped {entry['file']}: {entry['problem']}"))
    if len(skipped) > SHOWN:
        say(f"… and {len(skipped) - SHOWN:,} more files were skipped; --json lists all")
