"""Hits as they are shown: where something was said, by whom and when, and the words around it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from sqlalchemy import Connection

from everlong.store.search.corpus import Loaded
from everlong.store.search.query import Query
from everlong.store.search.snippets import Snippet, snippet
from everlong.store.shown_path import Place, locate


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
    """The conversation that shows it, by its id; None where none does, as for what was taken back."""
    title: str | None
    branch: int
    turn: int
    """Its place in the conversation, in blocks from its first word; in its branch where no conversation shows it."""
    role: str
    speaker: str
    at: float
    """When it was said, in seconds since 1970."""
    snippet: Snippet
    is_match: bool
    """False where it was found for what stands right before or after it."""
    status: Literal["cancelled", "failed"] | None = None
    """How a reply ended that broke off; its turn is that of its request."""

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
            "status": self.status,
        }


@dataclass(frozen=True, slots=True)
class Page:
    """Some hits in order, the cursor of the next page (None after the last), and whether time ran out on the way."""

    hits: tuple[Hit, ...]
    cursor: str | None
    is_partial: bool


def hits_of(
    connection: Connection, tenant: str, shown: Sequence[Shown], query: Query, weights: dict[str, float]
) -> list[Hit]:
    """Return hits for the documents of a page."""
    places = [Place(item.document.branch, item.document.depth, item.document.id) for item in shown]
    located = locate(connection, tenant, places)
    hits: list[Hit] = []
    for (document, is_match), place in zip(shown, places, strict=True):
        where = located.get(place)
        hits.append(
            Hit(
                seq=document.seq,
                node=document.id,
                session=where.conversation if where else None,
                title=where.title if where else None,
                branch=document.branch,
                turn=where.turn if where else document.depth,
                role=document.role,
                speaker=document.speaker,
                at=document.ts,
                snippet=_snippet(document, query, weights),
                is_match=is_match,
                status=where.status if where else None,
            )
        )
    return hits


def _snippet(document: Loaded, query: Query, weights: dict[str, float]) -> Snippet:
    """Return words around a match that a person, a model or a tool said; a client's only where nothing else matches."""
    own = snippet(document.own_text, query, weights)
    return own if own.marks or document.own_text == document.text else snippet(document.text, query, weights)
