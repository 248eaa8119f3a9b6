"""What stands above a transcript and inside it: a conversation's name and facts, and what its marks say, for people."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import TYPE_CHECKING

from everlong.model import text_of
from everlong.store.conversations import Conversation
from everlong.store.transcripts.clean import one_line

if TYPE_CHECKING:
    from everlong.store.conversations import Line, Mark
    from everlong.store.session import Session


def moment(seconds: float) -> str:
    """A time on the clock of the reader; a time that no clock knows as the number that it is."""
    try:
        return f"{datetime.fromtimestamp(seconds).astimezone():%Y-%m-%d %H:%M:%S}"
    except (ValueError, OverflowError, OSError):
        return str(seconds)


def name_of(one: Conversation | Session) -> str:
    """Return the title of a conversation or of a part, or its id where it has none."""
    return one_line(one.title or "") or one.id


def facts_of(one: Conversation | Session) -> Iterator[tuple[str, str]]:
    """Yield what is known about a conversation or a part, as names and values; what is not known is left out."""
    yield "session", one.id
    yield "source", one_line(one.source)
    for name, value in (("client", one.client), ("folder", one.folder), ("model", one.model), ("user", one.user)):
        if value:
            yield name, one_line(value)
    yield "started", moment(one.started)
    if isinstance(one, Conversation):
        yield from _facts_of_whole(one)
    else:
        yield from _facts_of_part(one)
    if one.api_calls:
        used = f"{one.input_tokens:,} in, {one.output_tokens:,} out, {one.cache_read_tokens:,} from caches"
        yield "tokens", f"{used}, {one.api_calls:,} calls"
    if one.cost:
        yield "cost", f"${one.cost:,.2f}" if one.cost >= 1 else f"${one.cost:,.4f}"


def _facts_of_whole(one: Conversation) -> Iterator[tuple[str, str]]:
    yield "active", moment(one.active)
    if one.ended is not None:
        yield "ended", f"{moment(one.ended)} ({one_line(one.end_reason or 'no reason given')})"
    if one.works_for:
        yield "forked from" if one.kind == "main" else "works for", one.works_for
    agents = f", {one.agents:,} {'agent' if one.agents == 1 else 'agents'} worked for it" if one.agents else ""
    yield "messages", f"{one.messages:,}{agents}"
    if one.compactions:
        yield "compacted", f"{one.compactions:,} {'time' if one.compactions == 1 else 'times'}"


def _facts_of_part(one: Session) -> Iterator[tuple[str, str]]:
    if one.ended is not None:
        yield "ended", f"{moment(one.ended)} ({one_line(one.end_reason or 'no reason given')})"
    if one.parent:
        yield "continues", one.parent


def compaction_line(mark: Mark) -> str:
    """Say in a line what a compaction did: when, tokens before and after, which engine."""
    done = mark.compaction
    pieces = [f"compacted {moment(mark.at)}"]
    if done is not None:
        if done.tokens_before is not None and done.tokens_after is not None:
            pieces.append(f"{done.tokens_before:,} → {done.tokens_after:,} tokens")
        pieces += [f"{done.messages_before:,} → {done.messages_after:,} messages", one_line(done.engine)]
        if done.fallback:
            pieces.append(f"fell back: {one_line(done.fallback)}")
    return " · ".join(pieces)


def broken_words(line: Line) -> str:
    """Say how a reply broke off; nothing for a whole message."""
    if line.status is None:
        return ""
    count = len(text_of(line.entry.message).split())
    reason = f": {one_line(line.error)[:200]}" if line.status == "failed" and line.error else ""
    return f"{line.status} after {count:,} {'word' if count == 1 else 'words'}{reason}"
