"""The lines that a compaction dropped, with the engine's own reasons.

A stored compaction has no reasons for single lines, so the built-in engine compacts the same messages once more and
explains itself. A line that the stored result still says is not listed, whoever wrote the summary.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from sqlalchemy import select

from everlong.context import ContextCompressor
from everlong.inspector.pages.compactions import compaction_at
from everlong.inspector.pages.now import window_of
from everlong.model import text_of
from everlong.store.paths import segments_to
from everlong.store.schema import session, view
from everlong.store.transcripts import one_line
from everlong.store.views import ViewPiece, items_of, pieces_of

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from everlong.config import Settings
    from everlong.store import Compaction, Store
    from everlong.store.shown_path import ShownPath

__all__ = ["DroppedLine", "DroppedPage", "read_dropped"]

_MOST_TOKENS = 250_000
"""A compaction of more tokens is not explained here: it would take too long."""
_MOST_LINES = 500
_LEAST_WINDOW = 8_000
_CLIP = 400


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


def read_dropped(store: Store, settings: Settings, ident: str, number: int) -> DroppedPage:
    """Return what a compaction dropped, by its number."""
    done = compaction_at(store, ident, number)
    if done.view_id is None or (done.tokens_before or 0) > _MOST_TOKENS:
        return DroppedPage((), 0, 0, is_too_large=done.view_id is not None)
    path = store.conversations.path(ident)
    with store.database.read() as connection:
        pieces, still_said = _read(store, connection, done)
    said = [piece for piece in pieces if piece.message is not None]
    if not said:
        return DroppedPage((), 0, 0)
    window, _ = window_of(settings, done.model or "")
    window = window or max(_LEAST_WINDOW, 2 * (done.tokens_before or 0))
    engine = ContextCompressor(window, settings=settings.compression, model=done.model)
    explained = engine.explain(
        [piece.message for piece in said if piece.message is not None], done.tokens_before, force=True
    )
    gone = [line for line in explained.lines if line.fate == "dropped" and one_line(line.text) not in still_said]
    lines = [
        DroppedLine(
            _turn(path, done, said, line.message),
            line.role,
            one_line(line.text)[:_CLIP],
            line.reason,
            tuple(dict.fromkeys(name for part in line.parts for name in part.lost))[:8],
        )
        for line in gone[:_MOST_LINES]
    ]
    return DroppedPage(tuple(lines), len(gone), len(explained.lines))


def _read(store: Store, connection: Connection, done: Compaction) -> tuple[list[ViewPiece], str]:
    """Return what the engine was given, and the words that the result still says, on one line."""
    made: Any = connection.execute(select(view).where(view.c.id == done.view_id, view.c.tenant == store.tenant)).first()
    if made is None:
        return [], ""
    depth = max(made.saw_depth, made.cover_depth)
    if done.child is not None:
        begun = connection.execute(select(session.c.from_depth).where(session.c.id == done.child)).scalar()
        depth = max(depth, begun or 0)
    path = segments_to(connection, done.branch, depth)
    before: Any = connection.execute(select(view).where(view.c.id == made.prev)).first() if made.prev else None
    pieces = pieces_of(connection, store.reader, path, before, depth)
    items = items_of(connection, store.reader, made.id)
    told = " ".join(one_line(text_of(item.message)) for item in items if item.message is not None)
    return pieces, told


def _turn(path: ShownPath, done: Compaction, pieces: Sequence[ViewPiece], index: int) -> int | None:
    return path.turn_at(done.branch, pieces[index].to_depth) if 0 <= index < len(pieces) else None
