"""Whole compactions from cold: MB of conversation per CPU second, their growth, a second one, and memory.

Bars: at least 20 MB/s with a stubbed summarizer and 3 MB/s with the extractive one, growing linearly; a second
compaction of the same, grown conversation costs what grew; peak extra memory at most the conversation itself.

With ``--peers`` the compaction by a model that answers at once is run beside Hermes Agent's, on the same histories.
Bars: at most the peer's CPU if the messages were read as they came, at most five times that from cold; a second
compaction after a growth of a tenth costs at most 15 % of the first; memory as above.
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
WARM_BAR, COLD_BAR, SECOND_BAR = 1.0, 5.0, 0.15
AHEAD_BAR = 0.5
"""CPU milliseconds of reading 4 KB as they come."""
_GROWTH_STEPS = 40


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

    cold: float
    """A first compaction of messages that nobody has read."""
    ahead: float
    """Reading the messages as they come."""
    warm: float
    """A first compaction of messages that were read as they came."""
    second: float
    """The next compaction of the same conversation, grown by a tenth; what grew was read as it came, too."""


def with_model(size: int, repeat: int) -> ModelCost:
    """Return the least costs of compactions with a model that answers at once."""
    grown = conversation(size + size // 10)
    base = grown[:size]
    answer = answer_for(base)
    costs = [_once_with_model(base, grown, answer) for _ in range(repeat)]
    return ModelCost(*map(min, zip(*costs, strict=True)))


def _once_with_model(base: list[Message], grown: list[Message], answer: str) -> ModelCost:
    def fresh_engine() -> ContextCompressor:
        return ContextCompressor(WINDOW, summarizer=CompletionSummarizer(lambda *_: answer, concurrency=1))

    unread, engine = fresh_engine(), fresh_engine()
    cold = best_cpu(lambda: unread.compress(base), 1)
    ahead = best_cpu(lambda: read_ahead(engine, base), 1)
    warm = best_cpu(lambda: engine.compress(base), 1)
    read_ahead(engine, grown)
    return ModelCost(cold, ahead, warm, best_cpu(lambda: engine.compress(grown), 1))


def read_ahead(engine: ContextCompressor, messages: list[Message]) -> None:
    """Let an engine see a conversation grow before it is compacted, and work ahead as a host does between turns."""
    for seen in range(1, _GROWTH_STEPS + 1):
        engine.should_compress_preflight(messages[: len(messages) * seen // _GROWTH_STEPS])
        while engine.work_ahead():
            pass


def beside_peer(sizes: tuple[int, ...]) -> None:
    """Print the costs of compactions with a model beside the peer's."""
    print(f"\nCompactions with a model that answers at once, CPU ms, beside {NAME}:\n")
    try:
        theirs = measure_peer(sizes, REPEATS, WINDOW)
    except Unusable as error:
        print(f"  no figures of {NAME}: {error}\n")
        theirs = {}
    print(
        f"{'messages':>9} {'cold':>9} {'warm':>9} {'peer':>9} {'cold/peer':>10} {'warm/peer':>10}"
        f" {'second':>8} {'its second':>11} {'read ahead, per 4 KB':>21}"
    )
    for size in sizes:
        ours = with_model(size, REPEATS.get(size, 1))
        volume = 1e6 * megabytes(conversation(size))
        told = f"{1e3 * ours.cold:>9.1f} {1e3 * ours.warm:>9.1f}"
        ahead = 1e3 * ours.ahead / volume * 4_000
        share = ours.second / ours.cold
        if size in theirs:
            first, second = theirs[size]
            cold_ratio, warm_ratio = ours.cold / first, ours.warm / first
            held = f"{verdict(warm_ratio, WARM_BAR)} / {verdict(cold_ratio, COLD_BAR)} / {verdict(share, SECOND_BAR)}"
            told += f" {1e3 * first:>9.1f} {cold_ratio:>10.2f} {warm_ratio:>10.2f}"
            told += f" {share:>8.0%} {second / first:>11.0%}"
        else:
            held = verdict(share, SECOND_BAR)
            told += f" {'-':>9} {'-':>10} {'-':>10} {share:>8.0%} {'-':>11}"
        print(f"{size:>9,} {told} {ahead:>18.2f} ms  {held} / {verdict(ahead, AHEAD_BAR)}")
    print(
        "\nwarm: the messages were read as they came, which is printed apart; second: the next compaction of the whole"
        "\nconversation after it grew by a tenth, as a share of the first from cold."
        "\nThe bars are those of warm, cold, second and reading ahead.\n"
    )


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
    print(
        "A stubbed summary of up to two million characters is compared with an extract of every turn, as any is;"
        "\nin the smallest conversation that is nearly all of the work."
    )
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
