"""Commands that look something up: what was said, what it cost, what is remembered, where the window goes."""

from __future__ import annotations

import re
from datetime import datetime
from itertools import zip_longest
from typing import TYPE_CHECKING, NamedTuple

from everlong.agent.commands.registry import ChatError, Desk
from everlong.errors import NotStored
from everlong.model import counted, is_system

if TYPE_CHECKING:
    from everlong.agent import Agent
    from everlong.store.search import Hit

_MOST_HITS = 10
_MOST_SEARCHED = 20
"""Conversations that are searched one by one, the newest."""
_BAR_COLUMNS = 40
_MARKS = re.compile(r'</?(?:user_rules|forwarded|file)(?: path="([^"]*)")?>')
_FIGURE_COLUMNS = 42
"""Columns of the figures beside a bar."""


def search(desk: Desk, words: str) -> None:
    """Find what was said in this or any conversation; with a number, open what was found."""
    store = desk.agent.conversation.store
    if not words:
        raise ChatError("say what to look for: /search WORDS; then /search NUMBER opens a hit")
    if words.isdecimal() and 0 < int(words) <= len(desk.found):  # a larger number is a word like others
        text = store.read(desk.found[int(words) - 1]).text
        desk.show.line(_without_marks(text) if text.startswith("<user_rules>") else text)
        return
    hits = [hit for hit in _find(desk, words) if hit.node is not None][:_MOST_HITS]
    desk.found = [hit.node for hit in hits if hit.node is not None]
    for number, hit in enumerate(hits, 1):
        when = datetime.fromtimestamp(hit.at).astimezone()
        where = f'in "{hit.title}"' if hit.title else f"in {hit.session or 'no conversation'}"
        where += f" ({hit.status})" if hit.status else ""
        desk.show.line(f"{number}  {when:%Y-%m-%d %H:%M}  {hit.speaker or hit.role}, {where}", "bold")
        text = _without_marks(hit.snippet.text) if hit.role == "user" else hit.snippet.text
        desk.show.line(f"   {' '.join(text.split())}")
    if not hits:
        desk.show.line("nothing was found")


def _without_marks(text: str) -> str:
    """Return words of a person without the marks that the chat puts around rules, files and forwarded words."""
    return _MARKS.sub(lambda mark: f"{mark[1]}:" if mark[1] else "", text).strip()


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
    desk.show.line(text or "nothing is remembered yet")


# -- where the window goes ---------------------------------------------------------------------------------------------


def context(desk: Desk, words: str) -> None:
    """Draw where the window goes."""
    from rich.table import Table  # noqa: PLC0415 - the prompt comes before this is loaded
    from rich.text import Text  # noqa: PLC0415 - as above

    del words
    agent = desk.agent
    parts = window_parts(agent)
    window = agent.engine.context_length
    widest = max(1, min(_BAR_COLUMNS, desk.show.console.width - _FIGURE_COLUMNS))
    table = Table(box=None, pad_edge=False, show_header=False)
    for justify in ("left", "right", "right", "left", "left"):
        table.add_column(justify=justify)
    for part in parts:
        share = part.tokens / max(1, window)
        bar = "█" * max(1 if part.tokens else 0, round(share * widest))
        about = counted(part.messages, "message") if part.messages else ""
        table.add_row(part.name, f"{part.tokens:,}", f"{100 * share:.1f} %", Text(bar, style=part.style), about)
    desk.show.console.print(table)
    threshold = agent.engine.threshold_tokens
    desk.show.line(
        f"window {window:,} tokens; compaction at {threshold:,}; {agent.compactor.count} so far in this chat"
    )
    _show_threshold_reasons(desk)


def _show_threshold_reasons(desk: Desk) -> None:
    """Show why the threshold is where it is, and which compactions were put off, with the figures."""
    from everlong.plugins.guard import compressor_of  # noqa: PLC0415 - the prompt comes before this is loaded

    engine = compressor_of(desk.agent.engine)
    if engine is None:
        return
    for told in [*engine.budgets.grounds.explain(), *engine.pace.explain(engine.budgets.threshold_tokens)]:
        desk.show.line(told, "dim")
    for told in [*(one.explain() for one in engine.held_back), *(one.explain() for one in engine.left_alone)]:
        desk.show.line(told, "yellow")


class WindowPart(NamedTuple):
    """One part of the window."""

    name: str
    tokens: int
    messages: int
    style: str


def window_parts(agent: Agent) -> list[WindowPart]:
    """Return the parts of the window, in the order in which they are sent; they add up to the window."""
    from everlong.context.literals import is_summary  # noqa: PLC0415 - the prompt comes before this is loaded
    from everlong.plugins.guard import compressors_in  # noqa: PLC0415 - as above
    from everlong.tokens import MessageCounter, counter_for  # noqa: PLC0415 - as above

    engine, conversation = agent.engine, agent.conversation
    counting = compressors_in(engine)
    counter = counting[0].counter if counting else MessageCounter(counter_for(None))
    memory_text = agent.memory.prompt_block() if agent.memory is not None else ""
    tools = counter.count_tools(agent.tools.toolbox.schemas())
    memory = counter.count_text(memory_text) if memory_text and memory_text in conversation.system_prompt else 0
    system = summary = tail = summaries = rest = 0
    for message, tokens in zip(conversation.messages, counter.counts(conversation.messages), strict=True):
        if is_system(message):
            system += tokens
        elif is_summary(message):
            summary, summaries = summary + tokens, summaries + 1
        else:
            tail, rest = tail + tokens, rest + 1
    known = tools + system + summary + tail
    used = max(known, agent.compactor.tokens)
    parts = [
        WindowPart("system", system - memory, 0, "blue"),
        WindowPart("tools", tools, 0, "cyan"),
        WindowPart("memory", memory, 0, "magenta"),
        WindowPart("summary", summary, summaries, "yellow"),
        WindowPart("tail", tail + used - known, rest, "green"),
    ]
    return [*parts, WindowPart("free", max(0, engine.context_length - used), 0, "dim")]
