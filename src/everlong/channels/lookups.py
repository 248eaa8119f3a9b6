"""The look-up tool of an agent in a channel.

It sees the conversations of its own place only: whoever talks in one chat must not read another.
"""

from __future__ import annotations

from itertools import zip_longest
from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from everlong.agent.tools.context import ToolContext
from everlong.agent.tools.history import HITS, show_passages
from everlong.agent.tools.signature import tool
from everlong.channels.places import ChatPlaces
from everlong.channels.platform import Place
from everlong.errors import NotStored
from everlong.store.recall import Passage, find_passages
from everlong.store.search import Filters

if TYPE_CHECKING:
    from everlong.agent import Tool
    from everlong.store import Store

__all__ = ["search_tool"]

_MOST_CONVERSATIONS = 20
"""Conversations of a place that a search looks through, the newest."""


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
