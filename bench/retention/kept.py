"""What a compaction never loses, played as a host plays it. ``--kept``.

Every conversation grows message by message through one engine, in windows of four sizes, and is compacted whenever the
engine says so before a request. After each compaction these must be there: the beginning and the end of the first
request, the newest assistant message with its calls and their results, and, after the summary, the newest request word
for word. The size of each result is told as a share of the threshold.
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

from bench.retention.data import Conversation
from everlong.context import ContextCompressor
from everlong.context.literals import is_acknowledgement, is_summary
from everlong.context.text import one_line
from everlong.model import Message, calls_of, newest_request, text_of

WINDOWS = (8_000, 16_000, 32_000, 64_000)
LEAST_LEFT, MOST_LEFT = 0.45, 0.60
"""The share of the threshold that a result takes where the history has it."""
_SUMMARY = 300
"""Tokens of the words around a summary, and of a short one."""
_ENDS = 60
"""Characters of a text by which it is found again."""


class Played(NamedTuple):
    """One compaction on the way."""

    conversation: str
    window: int
    at: int
    """The messages of the conversation so far."""
    outcome: str
    share: float
    """The size of the result, as a share of the threshold."""
    least: float
    most: float
    """The sizes between which it may be, of the same."""
    missing: tuple[str, ...]

    @property
    def is_off(self) -> bool:
        """True if the size is outside its bounds."""
        return not self.least <= self.share <= self.most

    def line(self) -> str:
        """Return one line on the compaction."""
        missing = f"  MISSING: {'; '.join(self.missing)}" if self.missing else ""
        size = f"{self.share:.2f} of the threshold" + (" (off)" if self.is_off else "")
        return f"{self.conversation} window {self.window:,} message {self.at}: {self.outcome}, {size}{missing}"


def play(conversation: Conversation, window: int) -> list[Played]:
    """Return every compaction of a conversation that grows in a window."""
    engine = ContextCompressor(window)
    context: list[Message] = []
    played: list[Played] = []
    for at, message in enumerate(conversation.messages):
        if message["role"] == "assistant" and engine.should_compress_preflight(context):
            result = engine.compress(context)
            report = engine.last_report
            assert report is not None  # noqa: S101 - compress always leaves one
            share = engine.estimate_tokens(result) / engine.threshold_tokens
            missing = tuple(find_missing(conversation.messages[:at], result))
            bounds = _bounds(engine, context, report.boundaries.tail_start)
            played.append(Played(conversation.name, window, at, report.outcome, share, *bounds, missing))
            context = result
        context.append(message)
    return played


def _bounds(engine: ContextCompressor, context: Sequence[Message], tail_start: int) -> tuple[float, float]:
    """Return the bounds of a result's size, as shares of the threshold.

    It may be less if one group more, with its results left out, would be too much or is a summary. It may be more by
    what the newest group has above a tail, and if what must stay is more.
    """

    def share(messages: Sequence[Message]) -> float:
        return engine.estimate_tokens(messages) / engine.threshold_tokens

    start = tail_start - 1
    while start > 0 and context[start]["role"] == "tool":
        start -= 1
    group = [context[start], *({**message, "content": ""} for message in context[start + 1 : tail_start])]
    is_history = start > 0 and not is_summary(context[start]) and not is_acknowledgement(context[start])
    newest = newest_answer(context)
    tail = context[len(context) if newest is None else newest :]
    requests = [index for index, message in enumerate(context) if message["role"] == "user"]
    wanted = {*requests[:1], newest_request(context)}
    needed = [m for index, m in enumerate(context) if m["role"] == "system" or (index in wanted and m not in tail)]
    excess = max(0.0, share(tail) - engine.budgets.tail_tokens / engine.threshold_tokens)
    least = min(LEAST_LEFT, MOST_LEFT - share(group)) if is_history else 0.0
    return least, max(MOST_LEFT + excess, share([*needed, *tail]) + _SUMMARY / engine.threshold_tokens)


def find_missing(messages: Sequence[Message], result: Sequence[Message]) -> list[str]:
    """Return what a result lacks of the conversation that it stands for, in plain words."""
    summary = next((index for index, message in enumerate(result) if is_summary(message)), None)
    shown = [message for index, message in enumerate(result) if index != summary]
    found: list[str] = []
    opening = next((message for message in messages if message["role"] == "user"), {})
    first = one_line(text_of(opening))
    said = [one_line(text_of(message)) for message in shown]
    found += [
        f"the {name} of the first request"
        for name, end in (("beginning", first[:_ENDS]), ("end", first[-_ENDS:]))
        if not any(end.strip() in text for text in said)
    ]
    found += _missing_answer(messages, shown)
    newest = newest_request(messages)
    after = result if summary is None else result[summary + 1 :]
    if newest is not None and text_of(messages[newest]) not in map(text_of, after):
        found.append(f"the newest request (message {newest}) after the summary")
    return found


def _missing_answer(messages: Sequence[Message], shown: Sequence[Message]) -> list[str]:
    newest = newest_answer(messages)
    if newest is None:
        return []
    text, calls = text_of(messages[newest]).strip(), {call.id for call in calls_of(messages[newest])}
    wanted = (text[:_ENDS], text[-_ENDS:])
    kept = (
        message
        for message in shown
        if message["role"] == "assistant"
        and all(end in text_of(message) for end in wanted)
        and calls <= {call.id for call in calls_of(message)}
    )
    if next(kept, None) is None:
        return [f"the newest assistant message ({newest})"]
    answered = {message.get("tool_call_id") for message in messages[newest + 1 :]} & calls
    gone = answered - {message.get("tool_call_id") for message in shown}
    return [f"{len(gone)} results of the newest assistant message ({newest})"] if gone else []


def newest_answer(messages: Sequence[Message]) -> int | None:
    """Return the index of the newest assistant message that is no acknowledgement of a summary."""
    places = range(len(messages) - 1, -1, -1)
    own = (at for at in places if messages[at]["role"] == "assistant" and not is_acknowledgement(messages[at]))
    return next((at for at in own if not is_summary(messages[at])), None)


def run_kept(conversations: Sequence[Conversation], jobs: int) -> int:
    """Play all conversations, print every compaction, and return 1 if anything was lost."""
    found: list[Played] = []
    with multiprocessing.get_context("spawn").Pool(jobs) as pool:
        for window in WINDOWS:
            mine = [one for made in pool.imap(partial(play, window=window), conversations) for one in made]
            for one in mine:
                print(one.line())
            found += mine
    print(f"\n{'window':>8} {'compactions':>11} {'lost something':>15} {'least':>6} {'mean':>6} {'most':>6} {'off':>5}")
    for window in WINDOWS:
        mine = [one for one in found if one.window == window]
        if mine:
            shares = [one.share for one in mine]
            print(
                f"{window:>8,} {len(mine):>11,} {sum(bool(one.missing) for one in mine):>15,} {min(shares):>6.2f} "
                f"{sum(shares) / len(shares):>6.2f} {max(shares):>6.2f} {sum(one.is_off for one in mine):>5,}"
            )
    print(
        f"off: outside of {LEAST_LEFT:.2f} to {MOST_LEFT:.2f} of the threshold, though whole groups and what must stay "
        "would allow it; a compaction at a message is one before it is sent"
    )
    return 1 if any(one.missing for one in found) else 0
