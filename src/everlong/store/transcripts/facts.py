"""What stands above a transcript: a session's name and its facts, for people."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import TYPE_CHECKING

from everlong.store.transcripts.clean import one_line

if TYPE_CHECKING:
    from everlong.store.session import Session


def moment(seconds: float) -> str:
    """A time on the clock of the reader; a time that no clock knows as the number that it is."""
    try:
        return f"{datetime.fromtimestamp(seconds).astimezone():%Y-%m-%d %H:%M:%S}"
    except (ValueError, OverflowError, OSError):
        return str(seconds)


def name_of(session: Session) -> str:
    """A session's title, or its id where it has none."""
    return one_line(session.title or "") or session.id


def facts_of(session: Session) -> Iterator[tuple[str, str]]:
    """What is known about a session, as names and values; what is not known is left out."""
    yield "session", session.id
    yield "source", one_line(session.source)
    for name, value in (("model", session.model), ("user", session.user)):
        if value:
            yield name, one_line(value)
    yield "started", moment(session.started)
    if session.ended is not None:
        yield "ended", f"{moment(session.ended)} ({one_line(session.end_reason or 'no reason given')})"
    if session.parent:
        yield "continues", session.parent
    if session.api_calls:
        used = f"{session.input_tokens:,} in, {session.output_tokens:,} out, {session.cache_read_tokens:,} from caches"
        yield "tokens", f"{used}, {session.api_calls:,} calls"
    if session.cost:
        yield "cost", f"${session.cost:.4f}"
