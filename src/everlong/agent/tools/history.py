"""``recall``, ``search_sessions``, ``read_turn``, ``read_output``: earlier messages in their own words.

With these an agent gets back what a compaction removed from its sight. Originals come before what only repeats them:
earlier look-ups, and summaries.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from everlong.agent.text import outside_name
from everlong.agent.tools.context import ToolContext
from everlong.config.trust import is_folder_trusted
from everlong.context.rules import standing_rules
from everlong.errors import NotStored, ToolError
from everlong.model import Message
from everlong.store import Conversation, Store
from everlong.store.imports import FOUND_IN
from everlong.store.outputs import ReadPage
from everlong.store.recall import FOUND, Passage, find_passages
from everlong.store.search import Filters
from everlong.store.search.snippets import passages
from everlong.store.shown_path import find_message, latest_request, message_after

HITS = 6
"""Hits on a page of `recall`."""

PASSAGE = 1_400
"""Characters of a hit that are shown; of a long message, those around the words of the query."""

REPLY = 500
LEAST_REPLY = 100
"""Most and least characters of the answer that is shown behind a found question."""

_READ = 400_000
_LAST_PAGE = 1_000_000
_ID_DIGITS = 12

Page = Annotated[int, Field(ge=1)]


def recall(query: str, context: ToolContext, page: Page = 1) -> str:
    """Find what was said earlier in this conversation, also what is no longer in sight because it was summarized.

    Gives passages in their own words, best first: messages, tool calls and tool results. Use it before you ask the user
    for something they told you, and before you do something a second time.

    Args:
        query: Words of what you look for, such as names, paths or numbers. A question works too. What must be there
            word for word stands in double quotes.
        page: Which page of the hits.
    """
    request: bytes | None
    try:
        if context.upto is not None:
            request, scope = context.upto.head, Filters(path=(context.upto.id, context.upto.depth))
        else:
            request, scope = latest_request(context.store, context.session_id), Filters(session=context.session_id)
        # The newest request is in sight, and full of the query's words.
        found = find_passages(context.store, context.store.searcher, query, scope, without=request)
    except NotStored:
        return "[nothing of this conversation is stored yet; all of it is in sight]"
    return show_passages(context, query, found, page, HITS)


def search_sessions(
    query: str,
    context: ToolContext,
    limit: Annotated[int, Field(ge=1, le=20)] = HITS,
    page: Page = 1,
    session: str | None = None,
    role: Literal["user", "assistant", "tool"] | None = None,
) -> str:
    """Find what was said in any conversation that is stored, also in earlier ones with this user.

    Args:
        query: Words of what you look for; what must be there word for word stands in double quotes.
        limit: How many hits a page has.
        page: Which page of the hits.
        session: Only in the conversation with this id.
        role: Only what was said by the user, by the assistant, or what tools gave.
    """
    found = find_passages(context.store, context.store.searcher, query, Filters(session=session, role=role))
    return show_passages(context, query, found, page, limit)


def read_turn(id: str, context: ToolContext, page: Page = 1) -> str:  # noqa: A002 - what the model calls it
    """Read a whole message of an earlier part of a conversation by the id that recall or search_sessions gave.

    Args:
        id: The id of the message, or of a standing rule ("rule-…").
        page: Which page of a long message.
    """
    if id.strip().lower().startswith("rule-"):
        return _read_rule(context, id.strip().lower())
    found = find_message(context.store, id)
    read = context.store.read(found.node, page, context.page_chars)
    heading = f"[{_place(context.store, found.role, found.at, found.session, found.turn)}{_pages(read, page)}]"
    kept = [f'[the whole output: read_output(id="{one}", page=1)]' for one in context.store.outputs.of(found.node)]
    return "\n".join([heading, read.text, *kept])


def _read_rule(context: ToolContext, wanted: str) -> str:
    """Return the text of a standing rule, from the message in which the user gave it."""
    for message in _messages_backwards(context):
        found = next((rule for rule in standing_rules([message]).lines if rule.id == wanted), None)
        if found is not None:
            return f"[a standing rule of the user]\n{found.text}"
    raise ToolError(f"there is no rule {wanted} in this conversation")


def _messages_backwards(context: ToolContext) -> Iterator[Message]:
    """Yield the stored messages of a conversation, from the newest back."""
    if context.upto is not None:
        yield from (entry.message for entry in reversed(context.store.entries(context.upto)))
        return
    session: str | None = context.session_id
    while session:
        yield from (entry.message for entry in reversed(context.store.sessions.entries(session)))
        session = context.store.sessions.get(session).parent


def read_output(id: str, context: ToolContext, page: Page = 1) -> str:  # noqa: A002 - as above
    """Read a page of a tool's output of which the result shows only beginning and end.

    Args:
        id: The id that stands where the output was cut.
        page: Which page; the result showed the first one.
    """
    read = context.store.outputs.read(id.strip().lower(), page, context.page_chars)
    return f"[output {id}{_pages(read, page)}]\n{read.text}"


def _pages(read: ReadPage, page: int) -> str:
    if page > max(1, read.pages):
        raise ToolError(f"there is no page {page}; it has {read.pages}")
    if read.pages <= 1:
        return ""
    more = f"; page={page + 1} goes on" if page < read.pages else ", the last one"
    return f", page {page} of {read.pages}{more}"


# -- finding ----------------------------------------------------------------------------------------------------------


def show_passages(context: ToolContext, query: str, found: Iterator[Passage], page: int, limit: int) -> str:
    """Return one page of passages as the model reads them."""
    first = (min(page, _LAST_PAGE) - 1) * limit
    shown = list(islice(found, first, first + limit + 1))
    has_more = len(shown) > limit
    shown = shown[:limit]
    if not shown:
        return f"[nothing more for {query!r}]" if page > 1 else f"[nothing found for {query!r}; try other words]"
    room = min(PASSAGE, max(200, (context.output_chars - 400) // len(shown) - 200))
    heading = f"{FOUND}{query!r}" + (f" (page={page + 1} has more)" if has_more else "") + ":"
    known = {one.hit.node for one in shown}
    return "\n\n".join([heading, *(_entry(context, one, query, room, known) for one in shown)])


def _entry(context: ToolContext, one: Passage, query: str, room: int, known: set[bytes | None]) -> str:
    hit, store = one.hit, context.store
    lines = [f"[{_place(store, hit.role, hit.at, hit.session, hit.turn, hit.title)}{_ident(hit.node)}]"]
    lines.append(passages(one.text, query, room))
    if hit.node is not None and len(one.text) > room:
        lines.append(f"[{len(one.text):,} characters in all; read_turn gives the rest]")
    elif hit.node is not None and hit.role == "user" and "?" in one.text and room - len(one.text) >= LEAST_REPLY:
        after = message_after(store, hit.node, context.upto or hit.session or "")
        if after is not None and after not in known:  # the question is found, but not its answer
            reply = passages(store.read(after, 1, _READ).text, query, min(REPLY, room - len(one.text)))
            lines.append(f"[and then{_ident(after)}]\n{reply}")
    return "\n".join(lines)


def _ident(node: bytes | None) -> str:
    return "" if node is None else f", id {node.hex()[:_ID_DIGITS]}"


def _place(store: Store, role: str, at: float, session: str | None, turn: int, title: str | None = None) -> str:
    when = datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M UTC")
    where = f", session {session}" if session else ""
    named = f" ({outside_name(title)})" if title else ""
    foreign = ""
    with suppress(NotStored):  # deleted in this moment
        foreign = foreign_file(store.conversations.get(session)) if session else ""
    return ", ".join(filter(None, [f"{role}, {when}{where}{named}, message {turn}", foreign]))


def foreign_file(one: Conversation) -> str:
    """Return in words where a conversation was found; empty if its words are the user's: no folder brought its file.

    Logs where their clients keep them are the user's own. A file that was found elsewhere counts once its folder is
    trusted.
    """
    found_in = (one.origin or {}).get(FOUND_IN)
    with suppress(OSError, RuntimeError):  # links in a circle
        if found_in is None or (Path(str(found_in)).is_absolute() and is_folder_trusted(Path(str(found_in)))):
            return ""
    return f'from a file found in "{outside_name(str(found_in), 200)}", not from the user'
