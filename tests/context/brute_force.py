"""The least that a conversation can be compacted to, found by trying everything that the contract allows.

A second implementation, as simple as possible and as slow as need be: it writes down every list that the contract
allows for a given input, adds up its tokens and takes the smallest. It knows the contract, the fixed texts and how to
count; it does not know how the package plans, and shares no code with it.

What the contract allows, with a summary: the system prompt with the note, the first request or its two ends, one
summary of at least `LEAST_SUMMARY` tokens with its block of rules, acknowledgements around it where roles need them,
the latest user message and a person's latest request again where the tail does not hold them, and a tail that holds the
newest answer, its results and then its texts shortened as far as they go. Without a summary: the list itself, its
results cleared.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from everlong.context import ContextCompressor
from everlong.context.literals import ACKNOWLEDGEMENT, CLEARED_RESULT, COMPACTION_NOTE, SUMMARY_PREFIX
from everlong.context.rules import StandingRules
from everlong.model import Message, newest_request, with_part_appended
from everlong.tokens import MessageCounter
from tests.context.protocol import latest_request, looks_inserted, looks_like_summary, words

LEAST_SUMMARY = 40
"""Tokens that every summary's text is given."""
LONGEST_UNCLEARED = 200
"""Characters up to which an old result is left alone."""
SHORTEST_RESULT = 12
"""Tokens of text to which a result can be shortened, at the least."""
SHORTEST_TEXT = 48
"""Tokens to which the newest answer can be shortened, at the least."""
SLACK = 60
"""Tokens by which the package may miss the least: it reckons with round numbers for the marks of what is left out."""
JOINT = 2
"""Where texts are joined, a counter may see a token or two more."""


def least_possible(repaired: Sequence[Message], counter: MessageCounter) -> int:
    """The tokens of the smallest list that the contract allows for an input that has been repaired."""
    cost = {id(message): counter.count(message) for message in repaired}
    with_summary = (_with_summary(repaired, start, counter, cost) for start in _tails(repaired))
    return min(*_without_summary(repaired, counter, cost), *with_summary)


def most_allowed(engine: ContextCompressor, repaired: Sequence[Message]) -> int:
    """The tokens that a result may have: the threshold, or the least that there can be.

    Where the newest request alone is over the threshold, a summary of the usual size may stand beside it. Where nothing
    fits, a summary may cost a fifth more than a list without one.
    """
    least = least_possible(repaired, engine.counter)
    is_over = sum(map(engine.counter.count, _asked(repaired))) > engine.threshold_tokens
    ends = 120  # a first request keeps so many tokens
    return max(
        engine.threshold_tokens, int(least / 0.8) + ends + SLACK + (engine.context_length // 20 if is_over else 0)
    )


def _with_summary(repaired: Sequence[Message], start: int, counter: MessageCounter, cost: dict[int, int]) -> int:
    tail = repaired[start:]
    asked = _asked(repaired)
    repeated = [one for one in asked if not any(message is one for message in tail)]
    system = _with_note(_leading_system(repaired))
    request = [message for message in _first_request(repaired, start) if not any(message is one for one in asked)]
    empty = with_part_appended({"role": "user", "content": f"{SUMMARY_PREFIX}\n\n"}, StandingRules().render())
    acknowledgement = counter.count({"role": "assistant", "content": ACKNOWLEDGEMENT})
    after = [*repeated, *tail]
    parted = bool(request) + bool(after and after[0]["role"] == "user")
    return (
        counter.total(system)
        - counter.total([])
        + sum(_shortest(message, counter, cost, LEAST_SUMMARY) for message in request)
        + counter.count(empty)
        + LEAST_SUMMARY
        + JOINT
        + acknowledgement * parted
        + sum(cost[id(message)] for message in repeated)
        + sum(_shortest_of_tail(message, counter, cost) for message in tail)
    )


def _asked(repaired: Sequence[Message]) -> list[Message]:
    """The newest message in role user, and a person's newest request where the newest message is a harness's or data.

    Which one is a person's, the package is asked: telling that is no part of what is tried here.
    """
    latest = latest_request(repaired)
    place = newest_request(repaired, [index for index, message in enumerate(repaired) if looks_like_summary(message)])
    request = None if place is None else repaired[place]
    return [one for one in (request, None if latest is request else latest) if one is not None]


def _first_request(repaired: Sequence[Message], before: int) -> list[Message]:
    """The first user messages in a row, of which none looks like a summary."""
    found: list[Message] = []
    for message in repaired[:before]:
        is_asked = message["role"] == "user" and not looks_like_summary(message)
        if found and not is_asked:
            break
        found += [message] if is_asked else []
    return found


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
    """Every place where a tail may begin: before what is no result, and before the newest answer."""
    first = len(_leading_system(repaired))
    answers = [i for i, m in enumerate(repaired) if m["role"] == "assistant" and not looks_inserted(m)]
    last = max(first, answers[-1]) if answers else len(repaired)
    return [*(i for i in range(first, last) if repaired[i]["role"] not in ("tool", "function")), last]


def _tails(repaired: Sequence[Message]) -> list[int]:
    """The cuts whose tail holds no earlier summary, because there is to be only one."""
    cuts = _cuts(repaired)
    return [i for i in cuts if i == cuts[-1] or not any(map(looks_inserted, repaired[i : cuts[-1]]))]


def _shortest_of_tail(message: Message, counter: MessageCounter, cost: dict[int, int]) -> int:
    """A message of the tail with as little as its text can become."""
    if message["role"] == "tool":
        return _shortest(message, counter, cost, SHORTEST_RESULT)
    if message["role"] == "assistant" and not message.get("tool_calls"):
        return _shortest(message, counter, cost, SHORTEST_TEXT)
    return cost[id(message)]


def _shortest(message: Message, counter: MessageCounter, cost: dict[int, int], text: int) -> int:
    return min(cost[id(message)], counter.count({**message, "content": ""}) + text + JOINT)


def _cleared(message: Message, counter: MessageCounter) -> Message:
    is_text = not isinstance(message.get("content"), list)
    if message["role"] != "tool" or (is_text and len(words(message)) <= LONGEST_UNCLEARED):
        return message
    return min([message, {**message, "content": CLEARED_RESULT}], key=counter.count)


def _without_summary(repaired: Sequence[Message], counter: MessageCounter, cost: dict[int, int]) -> Iterator[int]:
    """The list itself, its results cleared before any cut and shortened after it; the newest group is never cleared."""
    cleared = [counter.count(_cleared(message, counter)) for message in repaired]
    shortened = [_shortest_of_tail(message, counter, cost) for message in repaired]
    newest = [start for start in _cuts(repaired) if start < len(repaired)]
    for start in newest or [0]:
        yield sum(cleared[:start]) + sum(shortened[start:])
