"""Commands that look something up: what was said, what tools gave, what it cost, what is remembered."""

from __future__ import annotations

from datetime import datetime
from itertools import zip_longest
from typing import TYPE_CHECKING

from everlong.agent.commands.registry import ChatError, Desk, pick
from everlong.errors import NotStored

if TYPE_CHECKING:
    from everlong.store.search import Hit

_MOST_HITS = 10
_MOST_SEARCHED = 20
"""Conversations that are searched one by one, the newest."""


def search(desk: Desk, words: str) -> None:
    """Find what was said in this or any conversation; with a number, open what was found."""
    store = desk.agent.conversation.store
    if not words:
        raise ChatError("say what to look for: /search WORDS; then /search NUMBER opens a hit")
    if words.isdigit() and desk.found:
        page = store.read(pick(desk.found, words))
        desk.show.text(page.text)
        return
    hits = [hit for hit in _find(desk, words) if hit.node is not None][:_MOST_HITS]
    desk.found = [hit.node for hit in hits if hit.node is not None]
    for number, hit in enumerate(hits, 1):
        when = datetime.fromtimestamp(hit.at).astimezone()
        where = hit.title or hit.session or "in no conversation"
        where += f" ({hit.status})" if hit.status else ""
        desk.show.line(f"{number}  {when:%Y-%m-%d %H:%M}  {hit.speaker or hit.role}, {where}", "bold")
        desk.show.line(f"   {' '.join(hit.snippet.text.split())}")
    if not hits:
        desk.show.line("nothing was found")


def _find(desk: Desk, words: str) -> list[Hit]:
    """Return what is found in the conversations that may be searched, best first."""
    from everlong.store.search import Filters  # noqa: PLC0415 - the prompt comes before this is loaded

    store = desk.agent.conversation.store
    if desk.scope is None:
        return list(store.search(words, limit=_MOST_HITS).hits)
    found = []
    for name in desk.scope[:_MOST_SEARCHED]:
        try:
            found.append(store.search(words, filters=Filters(session=name), limit=_MOST_HITS).hits)
        except NotStored:  # forgotten meanwhile
            continue
    return [hit for rank in zip_longest(*found) for hit in rank if hit is not None]


def usage(desk: Desk, words: str) -> None:
    """Show what this conversation cost, or all conversations, as the providers reported it."""
    from everlong.agent.accounting import account  # noqa: PLC0415 - only where it is asked for
    from everlong.agent.commands.books import print_books  # noqa: PLC0415 - as above

    if words not in {"", "all"}:
        raise ChatError("say /usage, or /usage all")
    conversation = desk.agent.conversation
    if conversation.session is None:
        raise ChatError("nothing was said yet")
    first = None if words else conversation.store.conversations.get(conversation.session.id).parts[0]
    print_books(account(conversation.store, desk.settings, by="model", session=first), desk.show.console)


def memory(desk: Desk, words: str) -> None:
    """Show what is remembered from session to session."""
    del words
    manager = desk.agent.memory
    text = manager.prompt_block() if manager is not None else ""
    desk.show.text(text or "nothing is remembered yet")
