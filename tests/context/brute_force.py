"""The least that a conversation can be compacted to, found by trying everything that the contract allows.

A second implementation, as simple as possible and as slow as need be: it writes down every list that the contract
allows for a given input, adds up its tokens and takes the smallest. It knows the contract, the fixed texts and how to
count; it does not know how the package plans, and shares no code with it.

What the contract allows, with a summary: the system prompt with the note, the first exchange or nothing of it, one
summary of at least `LEAST_SUMMARY` tokens with its block of rules, an acknowledgement where roles need one, the latest
user message again where the tail does not hold it, and a tail cut before any message that is no result, its results
shortened as far as they go; calls that are still pending always stay. Without a summary: the list itself, its results
cleared.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from everlong.context import ContextCompressor
from everlong.context.literals import ACKNOWLEDGEMENT, CLEARED_RESULT, COMPACTION_NOTE, SUMMARY_PREFIX
from everlong.context.rules import StandingRules
from everlong.model import Message, with_part_appended
from everlong.tokens import MessageCounter
from tests.context.protocol import latest_request, looks_inserted, words

LEAST_SUMMARY = 40
"""Tokens that every summary's text is given."""
LONGEST_UNCLEARED = 200
"""Characters up to which an old result is left alone."""
SHORTEST_RESULT = 12
"""Tokens of text to which a result can be shortened, at the least."""
LONGEST_GROUP = 8
"""By how many messages a first exchange is tried longer than it must be."""
JOINT = 2
"""Where texts are joined, a counter may see a token or two more."""


def least_possible(repaired: Sequence[Message], counter: MessageCounter, protect_first_n: int = 3) -> int:
    """The tokens of the smallest list that the contract allows for an input that has been repaired."""
    cost = {id(message): counter.count(message) for message in repaired}
    with_summary = (
        _with_summary(repaired, head, start, counter, cost)
        for head in _heads(repaired, counter, protect_first_n)
        for start in _tails(repaired)
    )
    return min(*_without_summary(repaired, counter, cost), *with_summary)


def most_allowed(engine: ContextCompressor, repaired: Sequence[Message]) -> int:
    """The tokens that a result may have: the threshold, or the least that there can be.

    Where the newest request alone is over the threshold, a summary of the usual size may stand beside it.
    """
    least = least_possible(repaired, engine.counter, engine.protect_first_n)
    latest = latest_request(repaired)
    is_over = latest is not None and engine.counter.count(latest) > engine.threshold_tokens
    # What is never lost counts here as if it could be cut to nothing, so a little more is allowed.
    return max(engine.threshold_tokens, least + 60 + (engine.context_length // 20 if is_over else 0))


# -- with a summary ----------------------------------------------------------------------------------------------------


def _with_summary(
    repaired: Sequence[Message], head: Sequence[Message], start: int, counter: MessageCounter, cost: dict[int, int]
) -> int:
    tail = repaired[start:]
    latest = latest_request(repaired)
    repeated = [latest] if latest is not None and not any(message is latest for message in tail) else []
    after = [*repeated, *tail]
    empty = with_part_appended({"role": "user", "content": f"{SUMMARY_PREFIX}\n\n"}, StandingRules().render())
    summary = counter.count(empty) + LEAST_SUMMARY + JOINT
    acknowledgement = counter.count({"role": "assistant", "content": ACKNOWLEDGEMENT})
    return (
        counter.total(head)
        - counter.total([])
        + summary
        + (acknowledgement if _needs_acknowledgement(head, after) else 0)
        + sum(cost[id(message)] for message in repeated)
        + sum(_shortest(message, counter, cost) for message in tail)
    )


def _needs_acknowledgement(head: Sequence[Message], after: Sequence[Message]) -> bool:
    """Whether neither role lets the summary stand between head and what follows."""
    before_role = head[-1]["role"] if head else ""
    next_role = after[0]["role"] if after else ""
    return all(role in (before_role, next_role) for role in ("user", "assistant")) or (
        before_role != "user" and next_role == "user"  # a summary is a user message wherever it can be one
    )


def _heads(repaired: Sequence[Message], counter: MessageCounter, protect_first_n: int) -> Iterator[list[Message]]:
    """The system prompt alone, and with a first exchange, which is as long as protected and has its answer."""
    system = _with_note(_leading_system(repaired))
    yield system
    first = len(system)
    for end in _cuts(repaired):
        exchange = repaired[first:end]
        if len(exchange) < max(1, protect_first_n - 1) or exchange[-1]["role"] == "user":
            continue
        if any(map(looks_inserted, exchange)) or len(exchange) > protect_first_n + LONGEST_GROUP:
            break
        yield [*system, *(_cleared(message, counter) for message in exchange)]


def _leading_system(repaired: Sequence[Message]) -> list[Message]:
    leading: list[Message] = []
    for message in repaired:
        if message["role"] not in ("system", "developer"):
            break
        leading.append(message)
    return leading


def _with_note(system: list[Message]) -> list[Message]:
    if not system or any(COMPACTION_NOTE in words(message) for message in system):
        return system
    content = system[-1].get("content")
    blocks = content if isinstance(content, list) else [{"type": "text", "text": content}] if content else []
    return [*system[:-1], {**system[-1], "content": [*blocks, {"type": "text", "text": COMPACTION_NOTE}]}]


def _cuts(repaired: Sequence[Message]) -> list[int]:
    """Every place where a tail may begin: before what is no result, never after a call that is still pending."""
    first, last = len(_leading_system(repaired)), _pending_start(repaired)
    inside = [i for i in range(first, last) if repaired[i]["role"] not in ("tool", "function")]
    return [*inside, last]


def _tails(repaired: Sequence[Message]) -> list[int]:
    """The cuts whose tail holds no earlier summary, because there is to be only one."""
    cuts = _cuts(repaired)
    return [i for i in cuts if i == cuts[-1] or not any(map(looks_inserted, repaired[i : cuts[-1]]))]


def _pending_start(repaired: Sequence[Message]) -> int:
    end = len(repaired)
    start = end
    while start and repaired[start - 1]["role"] == "tool":
        start -= 1
    calls = repaired[start - 1].get("tool_calls") if start else None
    is_pending = bool(calls) and repaired[start - 1]["role"] == "assistant" and len(calls or []) > end - start
    return start - 1 if is_pending else end


# -- shorter results ---------------------------------------------------------------------------------------------------


def _shortest(message: Message, counter: MessageCounter, cost: dict[int, int]) -> int:
    """A message of the tail with as little as its text can become."""
    if message["role"] != "tool":
        return cost[id(message)]
    return min(cost[id(message)], counter.count({**message, "content": ""}) + SHORTEST_RESULT + JOINT)


def _cleared(message: Message, counter: MessageCounter) -> Message:
    is_text = not isinstance(message.get("content"), list)
    if message["role"] != "tool" or (is_text and len(words(message)) <= LONGEST_UNCLEARED):
        return message
    return min([message, {**message, "content": CLEARED_RESULT}], key=counter.count)


# -- without a summary -------------------------------------------------------------------------------------------------


def _without_summary(repaired: Sequence[Message], counter: MessageCounter, cost: dict[int, int]) -> Iterator[int]:
    """The list itself, its results cleared before any cut and shortened after it; the newest group is never cleared."""
    cleared = [counter.count(_cleared(message, counter)) for message in repaired]
    shortened = [_shortest(message, counter, cost) for message in repaired]
    newest = [start for start in _cuts(repaired) if start < len(repaired)]
    for start in newest or [0]:
        yield sum(cleared[:start]) + sum(shortened[start:])
