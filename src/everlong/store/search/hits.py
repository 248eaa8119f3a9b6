"""Hits as they are shown: where something was said, by whom and when, and the words around it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from sqlalchemy import Connection

from everlong.store.search.corpus import Corpus, Loaded, SessionRow
from everlong.store.search.query import Query
from everlong.store.search.snippets import Snippet, snippet


class Shown(NamedTuple):
    """A document of a page, and whether it matches itself or stands beside something that does."""

    document: Loaded
    is_match: bool


@dataclass(frozen=True, slots=True)
class Hit:
    """One message or summary that was found."""

    seq: int
    """Its number; negative for a summary."""
    node: bytes | None
    """The message's id; None for a summary."""
    session: str | None
    title: str | None
    branch: int
    turn: int
    """Its place in the session, in blocks from the session's beginning; without a session, in its branch."""
    role: str
    speaker: str
    at: float
    """When it was said, in seconds since 1970."""
    snippet: Snippet
    is_match: bool
    """False where it was found for what stands right before or after it."""

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {
            "session": self.session,
            "title": self.title,
            "turn": self.turn,
            "role": self.role,
            "speaker": self.speaker,
            "at": self.at,
            "node": self.node.hex() if self.node else None,
            "snippet": self.snippet.text,
            "marks": [list(mark) for mark in self.snippet.marks],
            "is_match": self.is_match,
        }


@dataclass(frozen=True, slots=True)
class Page:
    """Some hits in order, the cursor of the next page (None after the last), and whether time ran out on the way."""

    hits: tuple[Hit, ...]
    cursor: str | None
    is_partial: bool


def hits_of(
    connection: Connection,
    corpus: Corpus,
    tenant: str,
    shown: Sequence[Shown],
    query: Query,
    weights: dict[str, float],
) -> list[Hit]:
    """Hits for the documents of a page."""
    sessions = corpus.sessions(connection, tenant, {item.document.branch for item in shown})
    hits: list[Hit] = []
    for document, is_match in shown:
        session = _session_of(document, sessions)
        hits.append(
            Hit(
                seq=document.seq,
                node=document.id,
                session=session.id if session else None,
                title=session.title if session else None,
                branch=document.branch,
                turn=document.depth - (session.from_depth if session else 0),
                role=document.role,
                speaker=document.speaker,
                at=document.ts,
                snippet=snippet(document.text, query, weights),
                is_match=is_match,
            )
        )
    return hits


def _session_of(document: Loaded, sessions: Sequence[SessionRow]) -> SessionRow | None:
    """The session that a message was said in: the last on its branch that reaches over it."""
    found = None
    for session in sessions:
        is_before_end = session.to_depth is None or document.depth <= session.to_depth
        if session.branch == document.branch and session.from_depth < document.depth and is_before_end:
            found = session
    return found
