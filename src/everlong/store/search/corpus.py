"""The corpus of the search: messages and summaries by their number, and their neighbours.

Knows the store's tables and no search. A document's number is a node's ``seq``, or minus the ``seq`` of a view's item.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from typing import Any

from sqlalchemy import Connection

from everlong.errors import StoreDamaged
from everlong.model import (
    EPHEMERAL,
    Message,
    begins_with_wrapper,
    calls_of,
    is_reasoning,
    part_text,
    parts_of,
    read_message,
)
from everlong.store.content import value_of
from everlong.store.database import Database
from everlong.store.search.index import SearchScope

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
    pieces: list[str] = []
    waiting = [arguments]
    while waiting:
        value = waiting.pop()
        if isinstance(value, dict):
            for key in reversed(value):
                waiting += (value[key], key)
        elif isinstance(value, list):
            waiting += reversed(value)
        elif value is not None:
            pieces.append(str(value))
    return "\n".join(pieces)


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


def tools_of(message: Message) -> list[str]:
    """Return the names of the tools that a message calls or answers for."""
    names = [call.name for call in calls_of(message)]
    names += [str(part.get("name")) for part in parts_of(message) if part.get("type") == "tool_use"]
    if message.get("role") == "tool" and message.get("name"):
        names.append(str(message["name"]))
    return names


def answered_calls(message: Message) -> list[str]:
    """Return the ids of the calls that a message answers."""
    ids = [message.get("tool_call_id")] if message.get("role") == "tool" else []
    ids += [part.get("tool_use_id") for part in parts_of(message) if part.get("type") == "tool_result"]
    return [ident for ident in ids if isinstance(ident, str)]


def called_tools(message: Message) -> dict[str, str]:
    """Return the ids of the calls that a message makes, each with the tool's name."""
    named = {call.id: call.name for call in calls_of(message)}
    for part in parts_of(message):
        if part.get("type") == "tool_use":
            named[str(part.get("id"))] = str(part.get("name"))
    return named


CALL_WITHIN = 64
"""Messages before an answer among which its call is looked for."""

CHUNK = 200
"""Documents read by one statement."""

_MESSAGE = (
    "SELECT n.seq, n.id, n.branch, n.depth, n.role, n.ts, c.bytes, c.codec "
    "FROM {rows} JOIN content c ON c.digest = n.digest WHERE c.state = 'live' AND {where}"
)
_SUMMARY = (
    "SELECT -i.seq, NULL, v.branch, i.to_depth, 'summary', v.ts, c.bytes, c.codec "
    "FROM {rows} JOIN view v ON v.id = i.view JOIN content c ON c.digest = i.digest "
    "WHERE c.state = 'live' AND v.state <> 'void' AND {where}"
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


class Corpus:
    """The documents of a database."""

    def __init__(self, database: Database) -> None:
        self._sql = database.sql

    def load(self, connection: Connection, seqs: Iterable[int], tenant: str | None = None) -> dict[int, SearchDocument]:
        """Return documents by number, without those that are gone, forgotten, damaged or another tenant's."""
        found: dict[int, SearchDocument] = {}
        for chunk in _chunks(seqs):
            messages = [seq for seq in chunk if seq > 0]
            summaries = [-seq for seq in chunk if seq < 0]
            if messages:
                self._read(connection, found, _MESSAGE, "node n", "n", messages, tenant)
            if summaries:
                self._read(connection, found, _SUMMARY, "view_item i", "i", summaries, tenant)
        return found

    def _read(
        self,
        connection: Connection,
        found: dict[int, SearchDocument],
        statement: str,
        rows: str,
        alias: str,
        seqs: list[int],
        tenant: str | None,
    ) -> None:
        where = f"{alias}.seq IN ({','.join('?' * len(seqs))})"
        values: list[Any] = list(seqs)
        if tenant is not None:
            where += f" AND {'n' if alias == 'n' else 'v'}.tenant = ?"
            values.append(tenant)
        sql = self._sql(statement.format(rows=rows, where=where))
        for document in _whole(connection.exec_driver_sql(sql, tuple(values)).fetchall()):
            found[document.seq] = document

    def neighbours(self, connection: Connection, seqs: Iterable[int]) -> dict[int, tuple[int | None, int | None]]:
        """Return for each message the one before and the one after it in the same conversation."""
        found: dict[int, tuple[int | None, int | None]] = {}
        for chunk in _chunks(seq for seq in seqs if seq > 0):
            statement = (
                "SELECT n.seq, (SELECT p.seq FROM node p WHERE p.id = n.parent), "  # noqa: S608 - only marks are put in
                "(SELECT f.seq FROM node f WHERE f.branch = n.branch AND f.depth > n.depth ORDER BY f.depth LIMIT 1) "
                f"FROM node n WHERE n.seq IN ({','.join('?' * len(chunk))})"
            )
            for seq, before, after in connection.exec_driver_sql(self._sql(statement), tuple(chunk)).fetchall():
                found[seq] = (before, after)
        return found

    def pending_numbers(self, connection: Connection, limit: int) -> list[int]:
        """Return the numbers of documents that are not indexed yet, newest first."""
        sql = self._sql("SELECT seq FROM pending ORDER BY abs(seq) DESC, seq LIMIT ?")
        return [row[0] for row in connection.exec_driver_sql(sql, (limit,))]

    def has_pending(self, connection: Connection) -> bool:
        """Return whether anything is stored that is not indexed yet."""
        return connection.exec_driver_sql("SELECT 1 FROM pending LIMIT 1").first() is not None

    def newest(self, connection: Connection) -> int:
        """Return the number of the newest message."""
        return int(connection.exec_driver_sql("SELECT coalesce(max(seq), 0) FROM node").scalar_one())


def in_scope(document: SearchDocument, scope: SearchScope) -> bool:
    """Return whether a document that was read for another reason is in the scope of the search."""
    if scope.role is not None and document.role != scope.role:
        return False
    if scope.since is not None and document.ts < scope.since:
        return False
    if scope.before is not None and document.ts >= scope.before:
        return False
    if scope.upto is not None and document.seq > scope.upto:
        return False
    return scope.stretches is None or any(
        document.branch == stretch.branch and stretch.low < document.depth <= stretch.high
        for stretch in scope.stretches
    )


def _whole(rows: Iterable[Sequence[Any]]) -> Iterator[SearchDocument]:
    """Yield the documents of rows; a damaged one is left to `everlong sessions verify` and hides no other."""
    for seq, ident, branch, depth, role, ts, data, codec in rows:
        try:
            message = value_of(data, codec)
        except StoreDamaged:
            continue
        if isinstance(message, dict):
            yield SearchDocument(seq, None if ident is None else bytes(ident), branch, depth, role, ts, message)


def _chunks(items: Iterable[int]) -> Iterator[list[int]]:
    waiting = iter(items)
    while chunk := list(islice(waiting, CHUNK)):
        yield chunk
