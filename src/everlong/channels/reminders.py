"""Reminders and look-ups: the tools that only an agent in a channel has.

A reminder is stored with its time and survives restarts. The search sees the conversations of its own place only:
whoever talks in one chat must not read another.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from itertools import zip_longest
from typing import TYPE_CHECKING, Annotated

from pydantic import Field
from sqlalchemy import Connection, and_, func, insert, select

from everlong.agent.tools.context import ToolContext
from everlong.agent.tools.history import HITS, show_passages
from everlong.agent.tools.signature import tool
from everlong.channels.places import ChatPlaces, is_at, place_columns, storable_text
from everlong.channels.platform import Place
from everlong.errors import NotStored, ToolError
from everlong.store.recall import Passage, find_passages
from everlong.store.schema import channel_reminder
from everlong.store.search import Filters

if TYPE_CHECKING:
    from everlong.agent import Tool
    from everlong.store import Store

__all__ = ["Reminders", "search_tool"]

_MOST_REMINDERS = 100
"""Reminders that may wait in one place."""
_MOST_CHARS = 1_000
_MOST_YEARS = 10
_MOST_CONVERSATIONS = 20
"""Conversations of a place that a search looks through, the newest."""


class Reminders:
    """The reminders of all places."""

    def __init__(self, store: Store, clock: Callable[[], float]) -> None:
        self._database, self._tenant = store.database, store.tenant
        self._clock = clock

    def add(self, place: Place, text: str, due: float) -> None:
        """Store a reminder; `ToolError` if too many wait there already."""

        def work(connection: Connection) -> None:
            here = is_at(channel_reminder, self._tenant, place)
            if connection.execute(select(func.count()).where(here)).scalar_one() >= _MOST_REMINDERS:
                raise ToolError(f"{_MOST_REMINDERS} reminders wait in this chat already")
            values = {**place_columns(self._tenant, place), "text": _stored_text(text), "due": due}
            connection.execute(insert(channel_reminder).values(**values, ts=self._clock()))

        self._database.write(work)

    def waiting(self, place: Place) -> list[tuple[float, str]]:
        """Return the reminders of a place, the next one first."""
        table = channel_reminder
        query = select(table.c.due, table.c.text).where(is_at(table, self._tenant, place)).order_by(table.c.due)
        with self._database.read() as connection:
            return [(row.due, row.text) for row in connection.execute(query)]

    def cancel(self, place: Place, text: str) -> int:
        """Remove the reminders of a place with this text; return how many there were."""
        table = channel_reminder
        gone = table.delete().where(and_(is_at(table, self._tenant, place), table.c.text == _stored_text(text)))
        return self._database.write(lambda connection: connection.execute(gone).rowcount)

    def tool_for(self, place: Place) -> Tool:
        """Return the tool ``remind_me`` of a place."""

        def remind_me(text: str, at: str | None = None, in_minutes: float | None = None, cancel: bool = False) -> str:
            """Send a message to this chat at a later time, or cancel one. Give ``at`` or ``in_minutes``.

            Args:
                text: What to say then, in the user's language.
                at: The local date and time, such as 2026-03-01T09:00.
                in_minutes: Minutes from now.
                cancel: True to cancel the reminder with exactly this text.
            """
            now = self._clock()
            if cancel:
                return f"cancelled {self.cancel(place, text)} reminders; {self._list(place)}"
            if not text.strip():
                raise ToolError("say what to remind of")
            due = self._due(at, in_minutes, now)
            self.add(place, text, due)
            return f"set for {self._show(due)}; now it is {self._show(now)}; {self._list(place)}"

        return tool(remind_me, describe=lambda args: f"remind_me {args.get('text', '')}")

    def _due(self, at: str | None, in_minutes: float | None, now: float) -> float:
        if (at is None) == (in_minutes is None):
            raise ToolError(f"give either at or in_minutes; now it is {self._show(now)}")
        if in_minutes is not None:
            due = now + 60 * in_minutes
        else:
            try:
                when = datetime.fromisoformat(str(at))
            except ValueError as error:
                raise ToolError(f"{at!r} is no date and time such as 2026-03-01T09:00") from error
            due = when.timestamp()
        if not now < due < now + _MOST_YEARS * 366 * 86_400:
            raise ToolError(f"that is not within the next {_MOST_YEARS} years; now it is {self._show(now)}")
        return due

    def _show(self, at: float) -> str:
        return f"{datetime.fromtimestamp(at).astimezone():%Y-%m-%d %H:%M}"

    def _list(self, place: Place) -> str:
        waiting = self.waiting(place)
        listed = "; ".join(f"{self._show(due)} {text}" for due, text in waiting[:10])
        return f"waiting here: {listed}" if waiting else "none waits here"


def _stored_text(text: str) -> str:
    """Return the text of a reminder as it is stored, so that the same words cancel it."""
    return storable_text(text).strip()[:_MOST_CHARS]


def search_tool(store: Store, places: ChatPlaces, place: Place) -> Tool:
    """Return the tool ``search_sessions`` of a place, which finds what was said in its own conversations."""

    def search_sessions(  # noqa: D417 - the docstring is what the model reads, and the context is handed in
        query: str,
        context: ToolContext,
        limit: Annotated[int, Field(ge=1, le=20)] = HITS,
        page: Annotated[int, Field(ge=1)] = 1,
    ) -> str:
        """Find what was said in this chat before, also in its earlier conversations.

        Args:
            query: Words of what you look for; what must be there word for word stands in double quotes.
            limit: How many hits a page has.
            page: Which page of the hits.
        """
        found: list[list[Passage]] = []
        for name in places.conversations(place)[:_MOST_CONVERSATIONS]:
            try:
                found.append(list(find_passages(store, store.searcher, query, Filters(session=name))))
            except NotStored:  # forgotten meanwhile
                continue
        best_first = (one for rank in zip_longest(*found) for one in rank if one is not None)
        return show_passages(context, query, best_first, page, limit)

    return tool(search_sessions, describe=lambda args: f"search_sessions {args.get('query', '')}")
