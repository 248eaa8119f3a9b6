"""A model's thinking belongs to the view under which it was thought; under another it is not sent again.

Where a turn is known, it says which view that was; elsewhere what was said before the view came into force was said
under another. Thinking that leads to a call stays, because providers refuse a call without it, and so does thinking
that stands alone. This module only reads.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection, Row, select

from everlong.model import Message, calls_of, is_reasoning, parts_of, with_content
from everlong.store.paths import Segment
from everlong.store.schema import turn
from everlong.store.views import Piece


def without_stale_thinking(
    connection: Connection, path: Sequence[Segment], pieces: Sequence[Piece], shown: Row[Any] | None
) -> list[Piece]:
    """The pieces without thinking that was thought under another view than the one that is shown."""
    if not any(_carries_thinking(piece) for piece in pieces):
        return list(pieces)
    rows = connection.execute(
        select(turn.c.echo_node, turn.c.view_id).where(
            turn.c.branch.in_([part.branch for part in path]), turn.c.echo_node.is_not(None)
        )
    ).all()
    made_under = {bytes(row.echo_node).hex(): row.view_id for row in rows}
    view_id, since = (None, None) if shown is None else (shown.id, shown.ts)

    def is_stale(piece: Piece) -> bool:
        if piece.tag in made_under:
            return bool(made_under[piece.tag] != view_id)
        return since is not None and piece.ts <= since

    return [
        piece._replace(message=without_thinking(piece.message))
        if piece.message is not None and _carries_thinking(piece) and is_stale(piece)
        else piece
        for piece in pieces
    ]


def without_thinking(message: Message) -> Message:
    """The message without its thinking, where that can be taken away."""
    parts = parts_of(message)
    kept = [part for part in parts if not is_reasoning(part)]
    leads_to_call = bool(calls_of(message)) or any(part.get("type") == "tool_use" for part in parts)
    return message if leads_to_call or not kept or len(kept) == len(parts) else with_content(message, kept)


def _carries_thinking(piece: Piece) -> bool:
    message = piece.message
    if not piece.is_raw or message is None or message.get("role") != "assistant":
        return False
    return isinstance(message.get("content"), list) and any(map(is_reasoning, parts_of(message)))
