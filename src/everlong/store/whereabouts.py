"""Whereabouts: where something was said, whether the model still gets it, and what a compaction covered.

For each message with the words: the conversation, the turn, and what the model gets in its place. For a compaction: its
summary, the messages that it tells of, and those that stayed. Reads only.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from sqlalchemy import func, select

from everlong.context.literals import is_summary, summary_body
from everlong.context.oversized import is_stub
from everlong.errors import NotStored
from everlong.model import CLEARED_RESULT, Message, text_of, whole_text
from everlong.store.compaction import SeenContext, see, view_at
from everlong.store.paths import Entry, leads_through, message_of
from everlong.store.schema import branch, content, node, view
from everlong.store.search import Filters
from everlong.store.search.query import normal
from everlong.store.shown_path import ShownPath, find_message
from everlong.store.tree import Branch
from everlong.store.views import ID_DIGITS, ViewItem, items_of

if TYPE_CHECKING:
    from everlong.store import Store
    from everlong.store.compaction import Compaction
    from everlong.store.core import StoreCore
    from everlong.store.search import Hit


State = Literal[
    "in context",
    "in summary",
    "stub",
    "shortened",
    "cleared",
    "summarized",
    "left out",
    "taken back",
    "outside",
    "broken off",
    "forgotten",
]
"""The state of a message. The model gets it word for word only ``in context``; ``in summary`` means that the
summary in its place still says the words. ``left out``: its client no longer sends it. ``taken back``: the conversation
no longer shows it. ``outside``: no conversation shows it. ``broken off``: a reply that the conversation does not go on
with."""

_QUOTES = dict.fromkeys(map(ord, '"“”„«»'), " ")
_MORE = 4
"""Hits that are read for each that is wanted, because summaries are found too."""
_LINE = 160


@dataclass(frozen=True, slots=True)
class Whereabouts:
    """One message, where it was said, and what has become of it."""

    node: bytes
    conversation: str | None
    """The conversation that shows it, by its id; None if none does."""
    title: str | None
    turn: int
    role: str
    at: float
    text: str
    """The words of the message around those that were looked for, on one line."""
    state: State
    now: str | None = None
    """The line that the model gets in its place, if that still says the words."""

    @property
    def id(self) -> str:
        """The short id by which the message can be read."""
        return self.node.hex()[:ID_DIGITS]

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        return {
            "id": self.id,
            "node": self.node.hex(),
            "session": self.conversation,
            "title": self.title,
            "turn": self.turn,
            "role": self.role,
            "at": self.at,
            "text": self.text,
            "state": self.state,
            "now": self.now,
        }


def find_whereabouts(store: Store, words: str, *, session: str | None = None, limit: int = 5) -> list[Whereabouts]:
    """Return the best places where some words were said, with what has become of each.

    Messages with the whole phrase come before those with some of its words. The id of a message finds that message,
    even if its words are forgotten.

    Args:
        store: The store.
        words: The words, or the id of a message.
        session: Only in this conversation, by its id; the state is that of this conversation.
        limit: The most places.
    """
    reader = _Reader(store, words)
    if (named := _named(store, words, session)) is not None:
        return [named if isinstance(named, Whereabouts) else reader.whereabouts(named, session)]
    return [reader.whereabouts(_place_of(hit), session) for hit in _hits(store, words, session, limit)]


def count_forgotten(store: Store) -> int:
    """Return the number of messages whose words were forgotten; no search finds them."""
    query = (
        select(func.count())
        .select_from(node.join(content, node.c.digest == content.c.digest))
        .where(node.c.tenant == store.tenant, content.c.tenant == store.tenant, content.c.state == "forgotten")
    )
    with store.database.read() as connection:
        return int(connection.execute(query).scalar_one())


class _Place(NamedTuple):
    """A message that was found."""

    node: bytes
    conversation: str | None
    title: str | None
    turn: int
    role: str
    at: float
    text: str
    is_broken: bool = False


def _place_of(hit: Hit) -> _Place:
    assert hit.node is not None  # noqa: S101 - summaries are left out
    told = (hit.node, hit.session, hit.title, hit.turn, hit.role, hit.at, hit.snippet.text)
    return _Place(*told, is_broken=hit.status is not None)


def _hits(store: Store, words: str, session: str | None, limit: int) -> list[Hit]:
    filters = Filters(session=session)
    for mode in ("phrase", "auto"):
        found = store.search(words, mode=mode, filters=filters, limit=min(1_000, _MORE * limit)).hits
        said = [hit for hit in found if hit.node is not None and hit.is_match]
        if said:
            return said[:limit]
    return []


def _named(store: Store, words: str, session: str | None) -> _Place | Whereabouts | None:
    """Return the message that an id names; None if the words are no id of one."""
    try:
        found = find_message(store, words)
    except NotStored:
        return None
    conversation = session or found.session
    title = None if conversation is None else store.conversations.get(conversation).title
    with store.database.read() as connection:
        row = connection.execute(
            select(content.c.bytes, content.c.codec, content.c.state, content.c.stub)
            .join(node, node.c.digest == content.c.digest)
            .where(node.c.id == found.node, content.c.tenant == store.tenant)
        ).one()
    if row.state == "forgotten":
        about = (found.node, conversation, title, found.turn, found.role, found.at)
        return Whereabouts(*about, text="", state="forgotten")
    return _Place(
        found.node, conversation, title, found.turn, found.role, found.at, _clip(whole_text(message_of(*row)))
    )


class _Current(NamedTuple):
    """A conversation as it is sent now."""

    path: ShownPath
    seen: SeenContext | None
    """The context; None if no view is in force, because then every message is sent word for word."""


class _Reader:
    """Reads conversations, each once."""

    def __init__(self, store: Store, words: str) -> None:
        self._store = store
        self._words = normal(words.translate(_QUOTES))
        self._known: dict[str, _Current | None] = {}

    def whereabouts(self, place: _Place, session: str | None) -> Whereabouts:
        """Return what has become of a message."""
        conversation = session or place.conversation
        told = (place.node, conversation, place.title, place.turn, place.role, place.at, _clip(place.text))
        if place.is_broken:
            return Whereabouts(*told, state="broken off")
        if conversation is None:
            return Whereabouts(*told, state="outside")
        current = self._current(conversation)
        if current is None:
            return Whereabouts(*told, state="taken back")
        with self._store.database.read() as connection:
            row = connection.execute(select(node.c.branch, node.c.depth).where(node.c.id == place.node)).first()
            if row is None or not current.path.runs:
                return Whereabouts(*told, state="taken back")
            last = current.path.runs[-1]
            if not leads_through(last.path, row.branch, row.depth):
                state: State = "taken back" if current.path.run_of(row.branch, row.depth) is None else "left out"
                return Whereabouts(*told, state=state)
        if current.seen is None:
            return Whereabouts(*told, state="in context")
        state, now = self._state(current.seen, place.node, row.depth)
        return Whereabouts(*told, state=state, now=now)

    def _current(self, conversation: str) -> _Current | None:
        if conversation not in self._known:
            self._known[conversation] = self._read(conversation)
        return self._known[conversation]

    def _read(self, conversation: str) -> _Current | None:
        store = self._store
        path = store.conversations.path(conversation)
        if not path.runs:
            return None
        last = path.runs[-1]
        at: Branch = store.branch(last.branch, last.high)
        with store.database.read() as connection:
            is_raw = view_at(connection, at) is None
        return _Current(path, None if is_raw else see(store, at))

    def _state(self, seen: SeenContext, ident: bytes, depth: int) -> tuple[State, str | None]:
        """Return what the model gets in the place of a message, and the line of it that says the words."""
        tag = ident.hex()
        if any(piece.is_raw and piece.tag == tag for piece in seen.pieces):
            return "in context", None
        own = next((one for one in seen.pieces if one.from_depth < depth <= one.to_depth and not one.is_raw), None)
        if own is not None and own.kind == "edit" and own.message is not None:
            return became_of(own.message), self._line_in(own.message, self._words)
        said = self._store.read(ident, 1, 1_000_000).text
        literals = [piece.message for piece in seen.pieces if piece.kind == "new" and piece.message is not None]
        if said and any(f"\n{said}\n" in f"\n{text_of(message)}\n" for message in literals):
            return "in context", None  # the newest request stands again after the summary
        line = next((found for message in literals if (found := self._line_in(message, said)) is not None), None)
        return ("in summary", line) if line is not None else ("summarized", None)

    def _line_in(self, message: Message, said: str) -> str | None:
        """Return the line of a message that says the words as ``said`` says them, or None."""
        source = normal(said)
        wanted = [self._words] if _has(source, self._words) else self._words.split()
        for line in text_of(message).splitlines():
            told = normal(line)
            if self._words and all(_has(told, words) and _is_of(source, told, words) for words in wanted):
                return _clip(line)
        return None


def _has(text: str, words: str) -> bool:
    """Return whether a text has the words, and not as a part of longer ones: "day 5" is not in "day 53"."""
    return re.search(rf"(?<![0-9a-z]){re.escape(words)}(?![0-9a-z])", text) is not None


def _is_of(source: str, told: str, words: str) -> bool:
    """Return whether words of a line come from a source: berths are told of many days.

    A long number, a name of several parts and three words are of it; others need a neighbour that it has there too.
    """
    count = len(words.split())
    if re.search(r"\d{3}|\w[._/-]\w", words) or count > 2 or (count == 2 and source.strip(" .!?") == words):
        return True
    pattern = re.compile(rf"(?:(\w+)\W+)?(?<![0-9a-z]){re.escape(words)}(?![0-9a-z])(?:\W+(\w+))?")
    here = {(at, one) for found in pattern.finditer(source) for at, one in enumerate(found.groups()) if one}
    return any((at, one) in here for found in pattern.finditer(told) for at, one in enumerate(found.groups()))


def became_of(message: Message) -> Literal["stub", "cleared", "shortened"]:
    """Return what a message became that an edit of a view put in its place."""
    if is_stub(message):
        return "stub"
    return "cleared" if text_of(message) == CLEARED_RESULT else "shortened"


def _clip(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _LINE else f"{line[:_LINE].rstrip()} …"


@dataclass(frozen=True, slots=True)
class Covered:
    """The messages that a compaction summarized and changed, with its summary."""

    summary: str
    """The words of the summary, without the marks around them; empty if its words are gone."""
    summarized: tuple[Entry, ...]
    """The messages that the summary tells of and that no longer stand in the context, oldest first."""
    edited: int
    """The messages that stand there in another form: cleared, shortened or as a stub."""


def covered_by(core: StoreCore, one: Compaction) -> Covered:
    """Return what a compaction covered.

    Raises:
        NotStored: the store no longer has its view.
    """
    with core.database.read() as connection:
        known = select(view.c.id).where(view.c.id == one.view_id, view.c.tenant == core.tenant)
        if one.view_id is None or connection.execute(known).first() is None:
            raise NotStored("the store no longer has what this compaction did")
        items = items_of(connection, core.reader, one.view_id)
    at = core.branch(one.branch)
    gone = [item for item in items if item.kind == "new" and item.to_depth > item.from_depth]
    entries = [entry for item in gone for entry in core.entries(at, item.from_depth, min(item.to_depth, at.depth))]
    return Covered(summary_of(items), tuple(entries), sum(item.kind == "edit" for item in items))


def standing_views(core: StoreCore, path: ShownPath) -> set[int]:
    """Return the views in force at the ends of a conversation's runs, all that they came from, and forgotten ones."""
    found: set[int] = set()
    with core.database.read() as connection:
        ends = select(branch.c.view_id).where(branch.c.id.in_([run.branch for run in path.runs]))
        waiting = {ident for ident in connection.execute(ends).scalars() if ident is not None}
        while waiting:
            found |= waiting
            before = select(view.c.prev, view.c.origin).where(view.c.id.in_(list(waiting)))
            waiting = {ident for row in connection.execute(before) for ident in row if ident is not None} - found
        forgotten = view.c.branch.in_([run.branch for run in path.runs]), view.c.state == "void"
        found |= set(connection.execute(select(view.c.id).where(*forgotten)).scalars())
    return found


def is_undone(one: Compaction, standing: set[int]) -> bool:
    """Return whether a compaction was taken back: nothing that is in force was made from it, and nobody forgot it."""
    return one.view_id is not None and one.view_id not in standing


def summary_of(items: Sequence[ViewItem]) -> str:
    """Return the words of the summaries among the items of a view."""
    told = [item.message for item in items if item.kind == "new" and item.message is not None]
    return "\n\n".join(summary_body(message) for message in told if is_summary(message))
