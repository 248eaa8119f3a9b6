"""Whole compactions from cold: MB of conversation per CPU second, their growth, a second one, and memory.

Bars: at least 20 MB/s with a stubbed summarizer and 3 MB/s with the extractive one, growing linearly; a second
compaction of the same, grown conversation costs what grew; peak extra memory at most the conversation itself.
"""

from __future__ import annotations

import gc
import json
import multiprocessing
import tracemalloc

from bench.conversations import conversation
from bench.measure import best_cpu, exponent, verdict
from everlong import ContextCompressor, Message, SummaryRequest

SIZES = (200, 2_000, 20_000, 100_000)
WINDOW = 128_000


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


def main() -> None:
    """Print the tables."""
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
