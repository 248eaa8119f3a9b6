"""Recall: passages of earlier messages for a model, originals before what only repeats them.

The agent's tools, the gateway's hidden tools and the tools of the engine ``lcm`` all find and read through this module.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, NamedTuple

from everlong.model import calls_of
from everlong.store.outputs import ReadPage, page_of
from everlong.store.paths import read_message
from everlong.store.search import Filters, Hit, Searcher
from everlong.store.search.corpus import SearchDocument
from everlong.store.search.query import Mode

if TYPE_CHECKING:
    from everlong.store.core import StoreCore

MOST_HITS = 60
"""Hits of all pages together, at most."""

FOUND = "Found for "
"""The first words of a page of hits."""

_READ = 400_000
_QUOTES = '"“”„«»'
_LOOKUPS = frozenset(
    {
        *("recall", "search_sessions", "read_turn", "read_output", "everlong_recall", "everlong_read_turn"),
        *("lcm_grep", "lcm_describe", "lcm_expand", "lcm_expand_query", "lcm_status"),
        *("search_history", "read_conversation", "list_conversations"),
    }
)
_ANSWERS = (FOUND, '{"hits": ', '{"opened": ', '{"passages": ', '{"answer": ')
"""The first words of what these tools answer."""


class Passage(NamedTuple):
    """A hit with the whole text of its message."""

    hit: Hit
    text: str


def find_passages(
    core: StoreCore,
    searcher: Searcher,
    query: str,
    filters: Filters,
    *,
    without: bytes | None = None,
    mode: Mode = "auto",
    most: int = MOST_HITS,
) -> Iterator[Passage]:
    """Yield passages: originals first, then earlier look-ups, then summaries.

    Args:
        core: the store.
        searcher: its search.
        query: what to look for.
        filters: the messages that count.
        without: a message that is in sight anyway.
        mode: how the query is meant; see `Searcher.search`.
        most: how many hits are looked at.
    """

    def find(leave_out: Callable[[SearchDocument], bool]) -> tuple[Hit, ...]:
        found = searcher.search(query, mode=mode, filters=filters, limit=most, leave_out=leave_out).hits
        if not found and mode == "auto" and any(quote in query for quote in _QUOTES):  # rather similar than nothing
            bare = query.translate(dict.fromkeys(map(ord, _QUOTES), " "))
            found = searcher.search(bare, filters=filters, limit=most, leave_out=leave_out).hits
        return found

    summaries: list[Passage] = []
    for hit in find(lambda one: one.id == without or is_lookup(one)):
        if hit.node is None:
            summaries.append(Passage(hit, hit.snippet.text))
        else:
            yield Passage(hit, read_page(core, hit.node, 1, _READ).text)
    for hit in find(lambda one: one.id == without or not is_lookup(one)):
        if hit.node is not None:
            yield Passage(hit, read_page(core, hit.node, 1, _READ).text)
    yield from summaries


def is_lookup(one: SearchDocument) -> bool:
    """Return whether a message is a call of one of the recall tools, or its result; both only repeat others."""
    is_answer = one.role == "tool" and one.text.startswith(_ANSWERS)
    return is_answer or any(_own_name(call.name) in _LOOKUPS for call in calls_of(one.message))


def _own_name(tool: str) -> str:
    """Return the name of a tool without the server's, which clients of MCP put before it: ``mcp__everlong__recall``."""
    return tool.rpartition("__")[2].removeprefix("everlong_") if "everlong_" in tool else tool


def read_page(core: StoreCore, node: bytes, page: int, chars: int) -> ReadPage:
    """Return one page of a message's words, counted from 1; raises `NotStored` if there is no such message."""
    return page_of(read_message(core.database, core.tenant, node), page, chars)
