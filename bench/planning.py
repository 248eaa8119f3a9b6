"""Planning against its floor: prune, boundaries, assembly and checks, with token counts known.

The floor is the loop printed below, which reads role, content length and the length of each call's name and arguments
once. The bar: at most three times the floor plus a millisecond, from 200 to 100,000 messages.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence

from bench.conversations import conversation
from bench.measure import best_cpu, exponent, verdict
from everlong import ContextCompressor, Message
from everlong.context.compaction import CompactionRun
from everlong.context.invariants import check_all

SIZES = (200, 2_000, 20_000, 100_000)


def floor(messages: Sequence[Message]) -> int:
    """Read every message once."""
    total = 0
    for message in messages:
        if message["role"]:
            content = message["content"]
            total += len(content) if content else 0
            for call in message.get("tool_calls") or ():
                function = call["function"]
                total += len(function["name"]) + len(function["arguments"])
    return total


def planning(engine: ContextCompressor, messages: list[Message], counts: list[int]) -> list[Message]:
    """Do everything of a compaction but counting and writing the summary."""
    compaction = CompactionRun(engine.request_for(messages))
    compaction.known.counts = counts
    result = compaction.assembled("## Goal\n- Build the harbour planner") if compaction.has_new_turns else messages
    if check_all(result, compaction.known.repaired):
        raise AssertionError("the planned list is invalid")
    return result


def main() -> None:
    """Print the table."""
    print("Planning (token counts known) against a loop that reads every message once:\n")
    print(inspect.getsource(floor))
    print(f"{'messages':>9} {'floor ms':>9} {'plan ms':>9} {'ratio':>6} {'allowed ms':>11}")
    costs: list[float] = []
    for size in SIZES:
        messages = conversation(size)
        engine = ContextCompressor(128_000)
        counts = engine.counter.counts(messages)
        low = best_cpu(lambda m=messages: floor(m), 9)  # type: ignore[misc]
        cost = best_cpu(lambda e=engine, m=messages, c=counts: planning(e, m, c), 9)  # type: ignore[misc]
        allowed = 3 * low + 0.001
        costs.append(cost)
        print(
            f"{size:>9,} {low * 1e3:>9.2f} {cost * 1e3:>9.2f} {cost / low:>6.2f} {allowed * 1e3:>11.2f}  "
            f"{verdict(cost, allowed)}"
        )
    print(f"\ngrowth exponent {exponent(SIZES[1:], costs[1:]):.2f} (1 is linear)\n")


if __name__ == "__main__":
    main()
