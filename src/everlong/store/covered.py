"""What a compaction covered: its summary, the messages that it tells of, and those that stayed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sqlalchemy import select

from everlong.context.literals import is_summary, summary_body
from everlong.errors import NotStored
from everlong.store.paths import Entry, segments_to
from everlong.store.schema import branch, view
from everlong.store.shown_path import count_messages
from everlong.store.views import ViewItem, items_of

if TYPE_CHECKING:
    from everlong.store.compaction import Compaction
    from everlong.store.core import StoreCore
    from everlong.store.shown_path import ShownPath


@dataclass(frozen=True, slots=True)
class Covered:
    """What a compaction covered."""

    summary: str
    """The words of the summary, without the marks around them; empty if its words are gone."""
    summarized: tuple[Entry, ...]
    """The messages that the summary tells of and that no longer stand in the context, oldest first."""
    edited: int
    """The messages that stand there in another form: cleared, shortened or as a stub."""
    kept: int
    """The messages that stayed as they were, of those that the view names."""


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
        path = segments_to(connection, one.branch, max((item.to_depth for item in items), default=0))
        kept = [
            part._replace(low=max(part.low, item.from_depth), high=min(part.high, item.to_depth))
            for item in items
            for part in path
            if item.kind == "keep" and part.low < item.to_depth and part.high > item.from_depth
        ]
        count = sum(count_messages(connection, kept))
    at = core.branch(one.branch)
    gone = [item for item in items if item.kind == "new" and item.to_depth > item.from_depth]
    entries = [entry for item in gone for entry in core.entries(at, item.from_depth, min(item.to_depth, at.depth))]
    return Covered(
        _summary(items),
        tuple(entries),
        sum(item.kind == "edit" for item in items),
        count,
    )


def standing_views(core: StoreCore, path: ShownPath) -> set[int]:
    """Return the views in force at the ends of a conversation's runs, and all that these were made from."""
    found: set[int] = set()
    with core.database.read() as connection:
        ends = select(branch.c.view_id).where(branch.c.id.in_([run.branch for run in path.runs]))
        waiting = {ident for ident in connection.execute(ends).scalars() if ident is not None}
        while waiting:
            found |= waiting
            before = select(view.c.prev, view.c.origin).where(view.c.id.in_(list(waiting)))
            waiting = {ident for row in connection.execute(before) for ident in row if ident is not None} - found
    return found


def is_undone(one: Compaction, standing: set[int]) -> bool:
    """Return whether a compaction was taken back: nothing that is in force was made from it."""
    return one.view_id is not None and one.view_id not in standing


def _summary(items: Sequence[ViewItem]) -> str:
    told = [item.message for item in items if item.kind == "new" and item.message is not None]
    return "\n\n".join(summary_body(message) for message in told if is_summary(message))
