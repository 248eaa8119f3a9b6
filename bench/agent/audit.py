"""Checks of a store after a session in which everything failed: nothing lost, nothing twice, everything in order."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from bench.agent.requests import Job
from everlong.model import Message, calls_of, text_of
from everlong.store import Store
from everlong.store.paths import Entry
from everlong.store.sessions import Session

__all__ = ["audited"]


def audited(store: Store, session: str, done: Sequence[Job], calls: Iterable[str]) -> list[str]:
    """Return all faults of a session, given its acknowledged requests and calls."""
    line = store.conversations.parts(session)
    ends = {one.branch for one in line}
    problems = list(store.verify().problems)
    if len(ends) != 1 or None in ends:
        return [*problems, f"the lineage of {session} is on the branches {sorted(map(str, ends))}"]
    entries = store.entries(store.branch(next(iter(ends)) or 0))
    messages = [entry.message for entry in entries]
    problems += _lineage(store, line, entries)
    problems += _requests(messages, done)
    problems += _calls(messages, calls)
    left_open = [turn.id for one in line for turn in store.turns.of_session(one.id) if turn.status == "open"]
    return problems + ([f"turns {left_open} were never finished"] if left_open else [])


def _lineage(store: Store, line: Sequence[Session], entries: Sequence[Entry]) -> list[str]:
    """Check that each session continues the one before it, and that together they have every message once."""
    problems: list[str] = []
    parents = [one.parent for one in line]
    if parents != [None, *(one.id for one in line[:-1])]:
        problems.append(f"the sessions do not continue one another: {parents}")
    odd = [one for one in line[:-1] if one.end_reason != "compression"]
    problems += [f"session {one.id} was continued and ended as {one.end_reason!r}" for one in odd]
    listed = [entry.id for one in line for entry in store.sessions.entries(one.id)]
    if listed != [entry.id for entry in entries]:
        twice = [ident.hex() for ident, count in Counter(listed).items() if ident is not None and count > 1]
        problems.append(f"sessions list {len(listed)} messages of {len(entries)}, and {twice[:3]} more than once")
    return problems


def _requests(messages: Sequence[Message], done: Sequence[Job]) -> list[str]:
    """Check that every finished request was said once, in order, with its answer right before the next."""
    said = [(place, text_of(message)) for place, message in enumerate(messages) if message["role"] == "user"]
    texts = [text for _, text in said]
    wanted = [job.prompt for job in done]
    if texts[: len(wanted)] != wanted:
        first = next((n for n, (a, b) in enumerate(zip(texts, wanted, strict=False)) if a != b), len(texts))
        return [f"request {first} is {texts[first : first + 1]} in the store, and {wanted[first : first + 1]} was done"]
    ends = [place for place, _ in said[1:]] + [len(messages)]
    return [
        f"HB-{job.ticket} ends with {text_of(messages[end - 1])[:80]!r}"
        for job, end in zip(done, ends, strict=False)
        if text_of(messages[end - 1]) != job.answer
    ]


def _calls(messages: Sequence[Message], acknowledged: Iterable[str]) -> list[str]:
    """Check that every call has one result right behind it, and that the acknowledged ones are there."""
    made: Counter[str] = Counter()
    problems: list[str] = []
    for place, message in enumerate(messages):
        idents = [call.id for call in calls_of(message)]
        made.update(idents)
        behind = [one.get("tool_call_id") for one in messages[place + 1 : place + 1 + len(idents)]]
        if behind != idents:
            problems.append(f"calls {idents} are followed by results of {behind}")
    problems += [f"call {ident} is there {made[ident]} times" for ident in acknowledged if made[ident] != 1]
    return problems
