"""Whole compactions from cold: MB of conversation per CPU second, their growth, a second one, and memory.

Bars: at least 20 MB/s with a stubbed summarizer and 3 MB/s with the extractive one, growing linearly; a second
compaction of the same, grown conversation costs what grew; peak extra memory at most the conversation itself.

With ``--peers`` the compaction by a model that answers at once is run beside Hermes Agent's, on the same histories.
Bars: at most twice the peer's CPU, three times that below 2,000 messages.
"""

from __future__ import annotations

import argparse
import gc
import json
import multiprocessing
import tracemalloc
from typing import NamedTuple

from bench.conversations import conversation
from bench.gateway.peers import Unusable
from bench.hermes_peer import NAME, answer_for, measure_peer
from bench.measure import best_cpu, exponent, verdict
from everlong import CompletionSummarizer, ContextCompressor, Message, SummaryRequest

SIZES = (200, 2_000, 20_000, 100_000)
WINDOW = 128_000
REPEATS = {200: 9, 2_000: 3, 20_000: 2, 100_000: 1}
PEER_BAR, SMALL_BAR, SMALL = 2.0, 3.0, 2_000
"""The most CPU, as a multiple of the peer's, and of conversations with fewer messages than ``SMALL``."""


class Stub:
    """A summarizer that costs nothing."""

    name = "stub"

    def summarize(self, request: SummaryRequest) -> str:
        """Return always the same text."""
        del request
        return "## Goal\n- Build the harbour planner"


def megabytes(messages: list[Message]) -> float:
    """Return the size of a conversation as JSON text."""
    return sum(len(json.dumps(message)) for message in messages) / 1e6


def cold(messages: list[Message], *, stubbed: bool, repeat: int) -> float:
    """Return the CPU seconds of a first compaction by a fresh engine."""

    def work() -> None:
        ContextCompressor(WINDOW, summarizer=Stub() if stubbed else None).compress(messages)

    return best_cpu(work, repeat)


def second(messages: list[Message], grown: list[Message]) -> tuple[float, float]:
    """Return the CPU seconds of a first compaction and of a second one of the grown conversation."""
    engine = ContextCompressor(WINDOW)
    first = best_cpu(lambda: engine.compress(messages), 1)
    return first, best_cpu(lambda: engine.compress(grown), 1)


def memory(size: int) -> tuple[int, int]:
    """Return the bytes of a conversation as Python objects, and those of a compaction beyond it at its peak."""
    text = json.dumps(conversation(size))
    gc.collect()
    tracemalloc.start()
    loaded = json.loads(text)
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.reset_peak()
    ContextCompressor(WINDOW).compress(loaded)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return held, peak - held


class ModelCost(NamedTuple):
    """The CPU seconds of compactions with a model that answers at once."""

    first: float
    """A compaction of messages that nobody has read."""
    second: float
    """The next compaction of the same conversation, grown by a tenth."""


def with_model(size: int, repeat: int) -> ModelCost:
    """Return the least costs of compactions with a model that answers at once."""
    grown = conversation(size + size // 10)
    answer = answer_for(grown[:size])
    costs = [_once_with_model(grown[:size], grown, answer) for _ in range(repeat)]
    return ModelCost(*map(min, zip(*costs, strict=True)))


def _once_with_model(base: list[Message], grown: list[Message], answer: str) -> ModelCost:
    engine = ContextCompressor(WINDOW, summarizer=CompletionSummarizer(lambda *_: answer, concurrency=1))
    first = best_cpu(lambda: engine.compress(base), 1)
    return ModelCost(first, best_cpu(lambda: engine.compress(grown), 1))


def beside_peer(sizes: tuple[int, ...]) -> None:
    """Print the costs of compactions with a model beside the peer's."""
    print(f"\nCompactions with a model that answers at once, CPU ms, beside {NAME}:\n")
    try:
        theirs = measure_peer(sizes, REPEATS, WINDOW)
    except Unusable as error:
        print(f"  no figures of {NAME}: {error}\n")
        theirs = {}
    print(f"{'messages':>9} {'first':>9} {'second':>9} {'its first':>10} {'its second':>11} {'first/its':>10}")
    for size in sizes:
        ours = with_model(size, REPEATS.get(size, 1))
        told = f"{size:>9,} {1e3 * ours.first:>9.1f} {1e3 * ours.second:>9.1f}"
        if size in theirs:
            first, second = theirs[size]
            held = verdict(ours.first / first, SMALL_BAR if size < SMALL else PEER_BAR)
            told += f" {1e3 * first:>10.1f} {1e3 * second:>11.1f} {ours.first / first:>10.2f}  {held}"
        print(told)
    print("\nsecond: the next compaction of the whole conversation after it grew by a tenth.\n")


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--peers", action="store_true", help="measure Hermes Agent on the same histories")
    parser.add_argument("--sizes", type=int, nargs="*", default=list(SIZES), help="numbers of messages")
    options = parser.parse_args()
    if options.peers:
        beside_peer(tuple(options.sizes))
    else:
        print_tables()


def print_tables() -> None:
    """Print throughput, growth, second compactions and memory."""
    print("Whole compactions from cold, MB of conversation per CPU second:\n")
    print(f"{'messages':>9} {'MB':>6} {'stubbed':>8} {'extractive':>11}")
    costs: dict[bool, list[float]] = {True: [], False: []}
    sizes: list[float] = []
    for size in SIZES:
        messages = conversation(size)
        volume = megabytes(messages)
        sizes.append(volume)
        for stubbed in (True, False):
            repeat = {200: 9, 100_000: 2}.get(size, 3)
            costs[stubbed].append(cold(messages, stubbed=stubbed, repeat=repeat))
        fast, slow = volume / costs[True][-1], volume / costs[False][-1]
        held = f"{verdict(fast, 20, at_least=True)} / {verdict(slow, 3, at_least=True)}"
        print(f"{size:>9,} {volume:>6.1f} {fast:>8.1f} {slow:>11.1f}  {held}")
    for stubbed, name in ((True, "stubbed"), (False, "extractive")):
        print(
            f"growth exponent from {SIZES[1]:,} on, {name}: {exponent(sizes[1:], costs[stubbed][1:]):.2f} (1 is linear)"
        )

    messages = conversation(22_000)
    base = messages[:20_000]
    first, again = second(base, messages)
    print(f"\na second compaction of the same conversation, grown by 10 %: {again / first:.0%} of the first")
    _, same = second(base, base)
    print(f"of the same conversation, not grown: {same / first:.0%}")

    # In a process of its own, where nothing is remembered from the work above.
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        in_memory, extra = pool.apply(memory, (len(base),))
    print(
        f"\npeak extra memory: {extra / 1e6:.1f} MB for a conversation that takes {in_memory / 1e6:.1f} MB in memory "
        f"({megabytes(base):.1f} MB as text)  {verdict(extra, in_memory)}\n"
    )


if __name__ == "__main__":
    main()
