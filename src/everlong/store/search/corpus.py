"""The corpus of the search: messages and summaries by their number, and their neighbours.

Knows the store's tables and no search. A document's number is a node's ``seq``, or minus the ``seq`` of a view's item.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from sqlalchemy import Connection

from everlong.errors import StoreDamaged
from everlong.model import (
    EPHEMERAL,
    Message,
    answered_calls,
    begins_with_wrapper,
    called_tools,
    calls_of,
    is_reasoning,
    part_text,
    parts_of,
    read_message,
    tools_of,
)
from everlong.store.content import value_of
from everlong.store.database import ask, in_batches
from everlong.store.search.scope import EVERYTHING, SearchScope

# "Mia: …", "[Mia]: …", "[14 May, 10:05] Mia: …", "Mia said, …"
_SPEAKER = re.compile(
    r"\s*(?:[\[(][^\])\n]{0,60}[\])]\s*)?\[?([^\W\d_][\w.'’-]{0,30}(?: [^\W\d_][\w.'’-]{0,30})?)\]?(?:: | said[,:] )"
)
_LABEL = re.compile("[A-Z][A-Z_]{2,}")
"""A word before a colon that names no person: THOUGHT."""
_MAX_DEPTH = 40


def searchable_text(message: Message) -> str:
    """Return the searchable text of a message, in its order, after the participant's name, as in a transcript."""
    content = message.get("content")
    name = message.get("name")
    if isinstance(content, str) and not name and "tool_calls" not in message:
        return content
    pieces = [f"{name}:"] if isinstance(name, str) and name else []
    pieces += _texts(parts_of(message), 0)
    for call in calls_of(message):
        pieces += (call.name, _argument_text(call.arguments))
    return "\n".join(piece for piece in pieces if piece)


def own_text(message: Message) -> str:
    """Return a message's searchable text without what a client wrapped around the user's words."""
    if message.get("role") != "user":
        return searchable_text(message)
    content = message.get("content")
    is_bare = isinstance(content, str) and "<" not in content and EPHEMERAL not in message
    if is_bare and not begins_with_wrapper(str(content)):  # as nearly all are
        return searchable_text(message)
    if not any(part.get("type") == "tool_result" for part in parts_of(message)):
        read = read_message(message)
        if read.added:
            return read.text
    return searchable_text(message)


def _texts(parts: list[dict[str, Any]], depth: int) -> list[str]:
    found: list[str] = []
    for part in parts:
        if is_reasoning(part) or depth > _MAX_DEPTH:
            continue
        if text := part_text(part):
            found.append(text)
        elif part.get("type") == "tool_use":
            found += (str(part.get("name") or ""), _argument_text(part.get("input")))
        elif part.get("type") == "tool_result":
            found += _texts(parts_of(part), depth + 1)
    return found


def _argument_text(arguments: object) -> str:
    """Return the values of a call's arguments, with their keys; a text that is no JSON as it stands."""
    if isinstance(arguments, str):
        try:
            arguments = json.loads(arguments)
        except (ValueError, RecursionError):
            return str(arguments)
    return "\n".join(all_texts(arguments))


def all_texts(value: object) -> Iterator[str]:
    """Yield every text and number in a value, names included, however deep."""
    waiting = [value]
    while waiting:
        one = waiting.pop()
        if isinstance(one, dict):
            for key in reversed(one):
                waiting += (one[key], key)
        elif isinstance(one, list):
            waiting += reversed(one)
        elif one is not None:
            yield str(one)


def speaker_of(message: Message, text: str) -> str:
    """Return who said a message: the name that it carries, or the one that its text begins with; else nothing."""
    name = message.get("name")
    if isinstance(name, str) and name:
        return name if message.get("role") != "tool" else ""
    begun = _SPEAKER.match(text) if message.get("role") in {"user", "assistant"} else None
    if begun is None or _LABEL.fullmatch(begun[1]):
        return ""
    first, _, second = begun[1].partition(" ")
    # "Root cause:" is a label; a family name has a capital, or the whole name has none.
    return "" if second[:1].islower() and not first[:1].islower() else begun[1]


_CALL_WITHIN = 64
"""Messages before an answer among which its call is looked for."""

_CHUNK = 200
"""Documents read by one statement."""

_COLUMNS = (
    "n.seq, n.id, n.branch, n.depth, n.role, n.ts, c.bytes, c.codec",
    "-i.seq, NULL, v.branch, i.to_depth, 'summary', v.ts, c.bytes, c.codec",
)


@dataclass
class SearchDocument:
    """One document with its message; the text is made when it is first needed."""

    seq: int
    id: bytes | None
    branch: int
    depth: int
    role: str
    ts: float
    message: Message

    @cached_property
    def text(self) -> str:
        """The searchable text."""
        return searchable_text(self.message)

    @cached_property
    def own_text(self) -> str:
        """The text without what a client wrapped around a person's words: it is ranked and shown by this."""
        return own_text(self.message)

    @cached_property
    def speaker(self) -> str:
        """The speaker, if known."""
        return speaker_of(self.message, self.text)


def load_documents(
    connection: Connection, seqs: Iterable[int], scope: SearchScope = EVERYTHING
) -> dict[int, SearchDocument]:
    """Return documents by number, without those that are gone, forgotten, damaged or out of the scope."""
    wanted = list(seqs)
    found: dict[int, SearchDocument] = {}
    for source in scope.sources():
        columns, content = _COLUMNS[source.low < 0], "n.digest" if source.low > 0 else "i.digest"
        own = [abs(seq) for seq in wanted if source.low <= seq <= source.high]
        for some in in_batches(own, _CHUNK):
            rows = ask(
                connection,
                f"SELECT {columns} FROM {source.rows} JOIN content c ON c.digest = {content} "  # noqa: S608 - our own
                f"WHERE c.state = 'live' AND {source.where} "
                f"AND {source.seq.removeprefix('-')} IN ({','.join(map(str, some))})",
                source.values,
            )
            found.update((one.seq, one) for one in _whole(rows) if scope.holds(one.branch, one.depth))
    return found


def neighbours(connection: Connection, seqs: Iterable[int]) -> dict[int, tuple[int | None, int | None]]:
    """Return for each message the one before and the one after it in the same conversation."""
    found: dict[int, tuple[int | None, int | None]] = {}
    for some in in_batches([seq for seq in seqs if seq > 0], _CHUNK):
        statement = (
            "SELECT n.seq, (SELECT p.seq FROM node p WHERE p.id = n.parent), "  # noqa: S608 - only numbers
            "(SELECT f.seq FROM node f WHERE f.branch = n.branch AND f.depth > n.depth ORDER BY f.depth LIMIT 1) "
            f"FROM node n WHERE n.seq IN ({','.join(map(str, some))})"
        )
        found.update((seq, (before, after)) for seq, before, after in ask(connection, statement))
    return found


def is_of_tool(connection: Connection, document: SearchDocument, tool: str) -> bool:
    """Return whether a document is a call of a tool, or an answer to one: the call stands shortly before it."""
    if tool in tools_of(document.message):
        return True
    wanted, seq = set(answered_calls(document.message)), document.seq
    for _ in range(_CALL_WITHIN):
        before = neighbours(connection, [seq])[seq][0] if wanted else None
        if before is None:
            break
        seq = before
        for one in load_documents(connection, [seq]).values():
            named = called_tools(one.message)
            if tool in {named.get(ident) for ident in wanted}:
                return True
            wanted -= named.keys()
    return False


def _whole(rows: Iterable[Sequence[Any]]) -> Iterator[SearchDocument]:
    """Yield the documents of rows; a damaged one is left to `everlong sessions verify` and hides no other."""
    for seq, ident, branch, depth, role, ts, data, codec in rows:
        try:
            message = value_of(data, codec)
        except StoreDamaged:
            continue
        if isinstance(message, dict):
            yield SearchDocument(seq, None if ident is None else bytes(ident), branch, depth, role, ts, message)
