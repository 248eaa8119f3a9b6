"""Does the engine ``lcm`` stay flat? A conversation of 1,000 to 1,000,000 messages, turn by turn, in a real store.

    python -m bench.lossless.scale [--messages 100000] [--window 32000]

The summarizer is a stub that uses its full budget. At each mark a line tells the engine's CPU time per turn since the
mark before (the store's apart), the largest context, and the memory. The second thousand messages are what later ones
are compared with: in the first, compactions only begin. In the end every message is looked for: each must stand in the
tail or under exactly one summary, and its words must come back byte for byte.
"""

from __future__ import annotations

import argparse
import random
import resource
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import wraps
from itertools import takewhile
from pathlib import Path
from typing import Any

from bench.measure import verdict
from everlong.context import SummaryRequest
from everlong.lossless import LosslessEngine, SummaryNode
from everlong.model import Message, whole_text
from everlong.store.opening import open_database
from everlong.store.store import Store
from everlong.store.summaries import StoredGraph
from everlong.store.tree import Branch

FLAT, MEMORY_MB, INPUT = 1.5, 100, 1.6
COMPLETE = 100_000
"""Messages up to which every single one is read back; of more, a sample."""
SAMPLES = 10_000
MARKS = (1_000, 2_000, 10_000, 100_000, 200_000, 500_000, 1_000_000, 1 << 60)
BATCH = 25
"""Turns that are committed together."""
_WORDS = """
harbour tide gauge crane gate ledger invoice berth pilot tug manifest customs permit schedule repair valve engine dock
cargo container route weather signal buoy chart radio engineer captain storage tariff
""".split()  # noqa: SIM905 - a list of words reads better so


class FullBudget:
    """A summarizer that answers at once and uses all the room that it is given."""

    name = "stub"

    def __init__(self) -> None:
        self.calls = 0

    def summarize(self, request: SummaryRequest) -> str:
        """Return as many words as the budget allows."""
        self.calls += 1
        text = "## Done\n- " + "the tide gauge was read and found in order, " * (request.budget_tokens // 8)
        while request.count(text) > request.budget_tokens and len(text) > 16:
            text = text[: int(len(text) * 0.97)]
        return text


def turns(seed: int = 1) -> Iterator[list[Message]]:
    """Yield turns of four messages: a request, a call, its result, an answer."""
    chance = random.Random(seed)
    pool = [chance.choice(_WORDS) for _ in range(9_973)]
    number = 0
    while True:
        number += 1
        start = number * 89 % (len(pool) - 90)
        words = pool[start : start + 90]
        call = {"id": f"call_{number}", "type": "function"}
        arguments = f'{{"path": "logs/gate_{number}.txt"}}'
        yield [
            {"role": "user", "content": f"Request {number}: look at berth {number % 97}. {' '.join(words[:25])}"},
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [{**call, "function": {"name": "read_file", "arguments": arguments}}],
            },
            {"role": "tool", "tool_call_id": call["id"], "content": f"gate {number}: {' '.join(words[25:65])}"},
            {"role": "assistant", "content": f"Berth {number % 97} is done. {' '.join(words[65:])}"},
        ]


@dataclass
class Clock:
    """CPU seconds of the engine, and of the store when the engine calls it."""

    engine: float = 0.0
    store: float = 0.0

    def timed(self, function: Callable[..., Any], part: str) -> Callable[..., Any]:
        """Return a function whose CPU time is added to a part."""

        @wraps(function)
        def run(*args: Any, **options: Any) -> Any:
            started = time.process_time()
            try:
                return function(*args, **options)
            finally:
                setattr(self, part, getattr(self, part) + time.process_time() - started)

        return run

    @property
    def alone(self) -> float:
        """CPU seconds of the engine without those of the store."""
        return self.engine - self.store


@dataclass
class Mark:
    """The figures at some number of messages."""

    messages: int
    per_turn: float
    """CPU milliseconds of the engine per turn since the mark before, without the store's."""
    largest: int
    rss: float
    rate: float
    """Messages per CPU second of the whole loop since the mark before."""


@dataclass
class Played:
    """The outcome of a run."""

    marks: list[Mark] = field(default_factory=list)
    cap: int = 0
    over: int = 0
    """Turns whose context was over the cap."""
    raw_tokens: int = 0
    input_tokens: int = 0
    sent_tokens: int = 0
    """Tokens of all requests, one per turn."""
    cached_tokens: int = 0
    """Those of them with which the request before began as well: a provider reads them from its cache."""
    calls: int = 0
    compactions: int = 0
    looping: float = 0.0
    appending: float = 0.0
    unreachable: int = 0
    looked_at: int = 0
    problems: list[str] = field(default_factory=list)


def play(messages: int, window: int, folder: Path) -> Played:
    """Play a conversation of so many messages, and look for all of them."""
    played, clock, stub = Played(), Clock(), FullBudget()
    with Store(open_database(folder / "scale.db", waits_for_disk=False)) as store:
        engine = LosslessEngine(window, summarizer=stub, model="claude-sonnet-5")
        at = store.record([{"role": "system", "content": "You keep the harbour's books."}], conversation="scale")
        place = [at]
        graph = StoredGraph(store, lambda: place[0])
        for name in ("before", "get", "newest", "find", "add", "degraded", "following", "context"):
            setattr(graph, name, clock.timed(getattr(graph, name), "store"))
        engine.attach(graph)
        for name in ("compress", "should_compress", "update_from_response", "work_ahead"):
            setattr(engine, name, clock.timed(getattr(engine, name), "engine"))
        played.cap = engine.pace.room
        at = _drive(store, engine, place, messages, played, clock)
        played.calls, played.input_tokens = stub.calls, engine.author.input_tokens
        _look_for_all(store, engine, at, messages, played)
    return played


def _drive(
    store: Store, engine: LosslessEngine, place: list[Branch], messages: int, played: Played, clock: Clock
) -> Branch:
    counter, tokens, done = engine.counter, 0, 0
    sent: list[Message] = store.context(place[0])
    next_mark, since, largest = MARKS[0], (0, time.process_time(), 0.0), 0
    begun = time.process_time()
    said = turns()
    while done < messages:
        with store.batch():
            for _ in range(BATCH):
                turn = next(said)
                appending = time.process_time()
                at = place[0] = store.append(place[0], turn)
                played.appending += time.process_time() - appending
                done += len(turn)
                added = sum(counter.counts(turn))
                played.raw_tokens += added
                played.cached_tokens += tokens
                tokens += added
                sent += turn
                engine.update_from_response({"prompt_tokens": tokens, "total_tokens": tokens})
                if engine.should_compress():
                    compacted = store.compact(at, engine)
                    played.compactions += compacted.outcome == "compacted"
                    same = _common(sent, compacted.messages)
                    played.cached_tokens -= tokens - added - sum(counter.counts(same))
                    sent = list(compacted.messages)
                    tokens = engine.estimate_tokens(sent)
                else:
                    engine.work_ahead()
                played.sent_tokens += tokens
                largest = max(largest, tokens)
                played.over += tokens > played.cap
        if done >= next_mark or done >= messages:
            used = time.process_time()
            many = done - since[0]
            per_turn = (clock.alone - since[2]) / (many / 4) * 1_000
            played.marks.append(Mark(done, per_turn, largest, _rss(), many / max(1e-9, used - since[1])))
            print(_line(played.marks[-1]), flush=True)
            since, largest = (done, time.process_time(), clock.alone), 0
            next_mark = next(mark for mark in MARKS if mark > done)
    played.looping = time.process_time() - begun
    return place[0]


def _common(before: list[Message], after: list[Message]) -> list[Message]:
    """Return the messages with which both requests begin."""
    pairs = takewhile(lambda pair: pair[0] == pair[1], zip(before, after, strict=False))
    return [message for message, _ in pairs]


def _line(mark: Mark) -> str:
    return (
        f"{mark.messages:>9,} messages  engine {mark.per_turn:6.3f} ms a turn  whole loop {mark.rate:7,.0f} messages/s"
        f"  largest context {mark.largest:>7,}  memory {mark.rss:6.0f} MB"
    )


def _rss() -> float:
    return int(Path("/proc/self/statm").read_text("ascii").split()[1]) * resource.getpagesize() / 1e6


def _look_for_all(store: Store, engine: LosslessEngine, at: Branch, messages: int, played: Played) -> None:
    """Read messages back through the frontier and the tail; count those that are not there, or differ."""
    graph = store.graph(at)
    context = store.context(at)
    frontier = engine.frontier(context)
    covered = sum(node.made.messages for node in frontier)
    expected = turns()
    if messages <= COMPLETE:
        found = (message for node in frontier for message in _under(graph, node))
        tail = iter(context[-(messages - covered) :] if messages > covered else [])
        for message in _flat(expected, messages):
            there = next(found, None) or next(tail, None)
            played.looked_at += 1
            played.unreachable += there is None or whole_text(there) != whole_text(message)
    else:
        played.problems += store.verify().problems
        chance = random.Random(2)
        wanted = set(chance.sample(range(covered), SAMPLES))
        for number, message in enumerate(_flat(expected, covered)):
            if number in wanted:
                played.looked_at += 1
                played.unreachable += not _is_reached(graph, frontier, number, message)
    if messages <= COMPLETE:
        played.problems += store.verify().problems


def _flat(said: Iterator[list[Message]], count: int) -> Iterator[Message]:
    given = 0
    for turn in said:
        for message in turn:
            if given == count:
                return
            given += 1
            yield message


def _under(graph: StoredGraph, node: SummaryNode) -> Iterator[Message]:
    """Yield the messages under a summary, opened level by level as the tools do."""
    if not node.made.children:
        yield from (message for _, message in graph.messages(node.made.after, node.made.last))
        return
    for child in graph.newest(node.made.children):
        if child is not None:
            yield from _under(graph, child)


def _is_reached(graph: StoredGraph, frontier: list[SummaryNode], number: int, message: Message) -> bool:
    """Return whether a message comes back by going down from the frontier and paging through its words."""
    nodes: list[SummaryNode | None] = list(frontier)
    while True:
        for node in nodes:
            if node is None:
                return False
            if number < node.made.messages:
                break
            number -= node.made.messages
        else:
            return False
        if not node.made.children:
            break
        nodes = graph.newest(node.made.children)
    ids = graph.message_ids(node.made.after, node.made.last, number, 1)
    if not ids:
        return False
    text, page = "", 1
    while (read := graph.read(ids[0], page, 200)) is not None and read.text:
        text, page = text + read.text, page + 1
    return text == whole_text(message)


def report(played: Played, messages: int) -> bool:
    """Print the verdicts; return whether every bar was held."""
    first, last = played.marks[min(1, len(played.marks) - 1)], played.marks[-1]
    growth = last.per_turn / max(1e-9, first.per_turn)
    memory = last.rss - first.rss
    read = played.input_tokens / max(1, played.raw_tokens)
    print(f"engine CPU per turn, last against the second thousand: {growth:.2f} <= {FLAT} {verdict(growth, FLAT)}")
    print(f"whole loop: {played.looping:.1f} s of CPU, {played.looping / played.appending:.1f} times the appends alone")
    print(f"turns over the cap of {played.cap:,} tokens: {played.over} {verdict(played.over, 0)}")
    print(f"memory grew by {memory:.0f} MB {verdict(memory, MEMORY_MB)} (bar {MEMORY_MB})")
    print(
        f"summarizer read {read:.2f} of {played.raw_tokens:,} raw tokens {verdict(read, INPUT)} (bar {INPUT})", end=" "
    )
    print(f"in {played.calls:,} calls for {played.compactions:,} compactions")
    share = played.cached_tokens / max(1, played.sent_tokens)
    anew = played.sent_tokens - played.cached_tokens - played.raw_tokens
    print(
        f"cache: {share:.1%} of {played.sent_tokens:,} tokens in requests stood in the request before; compactions made"
        f" {anew / max(1, played.raw_tokens):.2f} of the raw tokens anew"
    )
    print(f"out of reach: {played.unreachable} of {played.looked_at:,} looked for {verdict(played.unreachable, 0)}")
    print(f"problems of the store: {len(played.problems)} {verdict(len(played.problems), 0)}")
    for problem in played.problems[:5]:
        print(f"  {problem}")
    held = growth <= FLAT and memory <= MEMORY_MB and read <= INPUT
    return held and not (played.over or played.unreachable or played.problems) and messages >= first.messages


def main(arguments: list[str] | None = None) -> int:
    """Play and tell; 1 where a bar was missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--messages", type=int, default=10_000)
    parser.add_argument("--window", type=int, default=32_000)
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder:
        played = play(options.messages, options.window, Path(folder))
    return 0 if report(played, options.messages) else 1


if __name__ == "__main__":
    sys.exit(main())
