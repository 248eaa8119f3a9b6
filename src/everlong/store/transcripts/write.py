"""Writing sessions out, message by message, so that a long session takes no more memory than a short one.

JSONL has an object for each session: its facts, its messages as they came, and when each was said; `everlong sessions
import` reads it back. The JSON log is that of `everlong.store.logs`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, get_args

from everlong.store.search.document import called_tools
from everlong.store.stretch import entries_of
from everlong.store.transcripts import html, markdown
from everlong.store.transcripts.facts import name_of

if TYPE_CHECKING:
    from everlong.store.session import Session
    from everlong.store.store import Store

Format: TypeAlias = Literal["jsonl", "json", "markdown", "html"]
FORMATS: tuple[Format, ...] = get_args(Format)

KIND = "everlong-session/1"
"""Marks an object as a session that was exported."""

_FACTS = ("parent", "title", "source", "platform", "user", "model", "started", "ended", "end_reason", "origin")
_SUFFIXES: dict[Format, str] = {"jsonl": ".jsonl", "json": ".json", "markdown": ".md", "html": ".html"}


def suffix_of(form: Format) -> str:
    """How the name of a file of a format ends."""
    return _SUFFIXES[form]


def write_transcript(
    store: Store, sessions: Sequence[Session], form: Format, write: Callable[[str], Any], *, title: str | None = None
) -> int:
    """Write sessions in order; how many messages they had. Every text can be encoded as UTF-8."""
    count = 0
    if form == "html":
        _all(write, html.page_head(title or (name_of(sessions[0]) if sessions else "sessions")))
    for one in sessions:
        if form == "jsonl":
            count += _jsonl(store, one, write)
        elif form == "json":
            count += _log(store, one, write)
        else:
            count += _readable(store, one, html if form == "html" else markdown, write)
    if form == "html":
        _all(write, html.page_foot())
    return count


def _all(write: Callable[[str], Any], texts: Iterator[str]) -> None:
    for text in texts:
        write(text)


def _readable(store: Store, one: Session, look: Any, write: Callable[[str], Any]) -> int:
    _all(write, look.heading(one, store.sessions.system_prompt(one.id)))
    count = 0
    tools: dict[str, str] = {}
    for entry in entries_of(store, one):
        tools |= called_tools(entry.message)
        _all(write, look.message(entry, None if entry.id is None else entry.depth - one.from_depth, tools))
        count += 1
    _all(write, look.ending())
    return count


def _jsonl(store: Store, one: Session, write: Callable[[str], Any]) -> int:
    facts = {"kind": KIND, "id": one.id, **{name: getattr(one, name) for name in _FACTS}}
    write(json_text(facts)[:-1] + ', "messages": [')
    times: list[float] = []
    prompt = store.sessions.system_prompt(one.id)
    if prompt is not None:
        write(json_text({"role": "system", "content": prompt}))
        times.append(one.started)
    for entry in entries_of(store, one):
        write((", " if times else "") + json_text(entry.message))
        times.append(entry.ts)
    write(f'], "times": {json_text(times)}}}\n')
    return len(times) - (prompt is not None)


def _log(store: Store, one: Session, write: Callable[[str], Any]) -> int:
    from everlong.store.logs import session_log  # noqa: PLC0415 - only where a log is asked for

    log = session_log(store, one.id)
    write(json_text(log, indent=2) + "\n")
    return len(log["messages"])


def json_text(value: Any, indent: int | None = None) -> str:
    """JSON that is readable, and escaped where a lone half of a surrogate pair could not be written otherwise."""
    text = json.dumps(value, ensure_ascii=False, indent=indent, default=str)
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return json.dumps(value, indent=indent, default=str)
    return text
