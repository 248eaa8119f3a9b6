"""The lines that a compaction dropped, with the engine's own reasons.

A compaction keeps the figures by which its engine decided. With them the same messages are compacted once more, as they
were then, and each line gets its reason; the page says whether the very same summary came out. Without them (engines of
others, compactions from before) the built-in engine gives the account that it would give today. A line that the stored
result still says is not listed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from sqlalchemy import select

from everlong.context import ContextCompressor
from everlong.context.exchanges import explain_again
from everlong.inspector.pages.compactions import compaction_at, summary_text
from everlong.inspector.pages.now import window_of
from everlong.model import text_of
from everlong.store.paths import segments_to
from everlong.store.schema import session, view
from everlong.store.transcripts import one_line
from everlong.store.views import ViewPiece, items_of, pieces_of, system_of

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from everlong.config import Settings
    from everlong.context.explanation import ExplainedLine
    from everlong.model import Message
    from everlong.store import Compaction, Store
    from everlong.store.shown_path import ShownPath

__all__ = ["DroppedLine", "DroppedPage", "read_dropped"]

_MOST_TOKENS = 250_000
"""A compaction of more tokens is not explained here: it would take too long."""
_MOST_MESSAGES = 3_000
"""As above, in messages: explaining one takes about a millisecond."""
_MOST_LINES = 500
_LEAST_WINDOW = 8_000
_CLIP = 400


Basis = Literal["same", "differs", "today"]
"""The ground of the reasons.

same: the compaction was made once more by its own figures, and the very same summary came out. differs: by its own
figures, and another one came out. today: by the settings of today, because no figures are kept.
"""


class DroppedLine(NamedTuple):
    """A line of the conversation that the model no longer gets, and why."""

    turn: int | None
    role: str
    text: str
    reason: str
    lost: tuple[str, ...]
    """The names in it that are nowhere else."""


@dataclass(frozen=True, slots=True)
class DroppedPage:
    """The lines that a compaction dropped, in the order of the conversation."""

    lines: tuple[DroppedLine, ...]
    dropped: int
    count: int
    is_too_large: bool = False
    basis: Basis = "today"


def read_dropped(store: Store, settings: Settings, ident: str, number: int, *, turn: int | None = None) -> DroppedPage:
    """Return what a compaction dropped, by its number; of one turn only if one is given."""
    done = compaction_at(store, ident, number)
    is_large = (done.tokens_before or 0) > _MOST_TOKENS or done.messages_before > _MOST_MESSAGES
    if done.view_id is None or is_large:
        return DroppedPage((), 0, 0, is_too_large=done.view_id is not None)
    path = store.conversations.path(ident)
    with store.database.read() as connection:
        given = _read(store, connection, done)
    if not given.pieces:
        return DroppedPage((), 0, 0)
    explained, basis = _explain(store, settings, done, given)
    said, shift = given.pieces, len(given.system)
    gone = [line for line in explained if line.fate == "dropped" and one_line(line.text) not in given.still_said]
    turns = {at: _turn(path, done, said, at - shift) for at in {line.message for line in gone}}
    if turn is not None:
        gone = [line for line in gone if turns[line.message] == turn]
    lines = [
        DroppedLine(
            turns[line.message],
            line.role,
            one_line(line.text)[:_CLIP],
            line.reason,
            tuple(dict.fromkeys(name for part in line.parts for name in part.lost))[:8],
        )
        for line in gone[:_MOST_LINES]
    ]
    return DroppedPage(tuple(lines), len(gone), len(explained), basis=basis)


def _explain(
    store: Store, settings: Settings, done: Compaction, given: _Given
) -> tuple[Sequence[ExplainedLine], Basis]:
    """Return the verdict on every line, and its ground."""
    messages = [*given.system, *(piece.message for piece in given.pieces if piece.message is not None)]
    evidence = store.evidence([done.id]).get(done.id)
    if evidence is not None and evidence.figures is not None:
        again = explain_again(messages, evidence.figures, given.summary, done.summarizer)
        return again.lines, "same" if again.is_same else "differs"
    window, _ = window_of(settings, done.model or "")
    window = window or max(_LEAST_WINDOW, 2 * (done.tokens_before or 0))
    engine = ContextCompressor(window, settings=settings.compression, model=done.model)
    return engine.explain(messages, done.tokens_before, force=True).lines, "today"


class _Given(NamedTuple):
    """What an engine was given, and what is left of it."""

    system: list[Message]
    pieces: list[ViewPiece]
    still_said: str
    """The words that the result still says, on one line."""
    summary: str


def _read(store: Store, connection: Connection, done: Compaction) -> _Given:
    """Return what the engine was given for a compaction."""
    made: Any = connection.execute(select(view).where(view.c.id == done.view_id, view.c.tenant == store.tenant)).first()
    if made is None:
        return _Given([], [], "", "")
    depth = max(made.saw_depth, made.cover_depth)
    if done.child is not None:
        begun = connection.execute(select(session.c.from_depth).where(session.c.id == done.child)).scalar()
        depth = max(depth, begun or 0)
    path = segments_to(connection, done.branch, depth)
    before: Any = connection.execute(select(view).where(view.c.id == made.prev)).first() if made.prev else None
    pieces = pieces_of(connection, store.reader, path, before, depth)
    items = items_of(connection, store.reader, made.id)
    told = " ".join(one_line(text_of(item.message)) for item in items if item.message is not None)
    system = system_of(connection, store.reader, done.branch, before).messages()
    return _Given(system, [piece for piece in pieces if piece.message is not None], told, summary_text(items))


def _turn(path: ShownPath, done: Compaction, pieces: Sequence[ViewPiece], index: int) -> int | None:
    return path.turn_at(done.branch, pieces[index].to_depth) if 0 <= index < len(pieces) else None
