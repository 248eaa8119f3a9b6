"""Placing the markers of one request of a conversation of 20,000 messages that grew by a turn."""

from __future__ import annotations

import copy
import time

from bench.conversations import conversation
from bench.measure import verdict
from everlong.caching import PromptCache, apply_anthropic_cache_control

_ALLOWED = 0.001


def main() -> None:
    """Print the least of many turns, beside the plain strategy's deep copy."""
    messages = conversation(20_000)
    tools = [{"type": "function", "function": {"name": f"tool_{at}", "description": "x" * 1_200}} for at in range(20)]
    cache = PromptCache("claude-sonnet-4-5", "anthropic", clock=lambda: 0.0)
    start = time.process_time()
    cache.apply({"messages": messages, "tools": tools}, 0.0)
    first = time.process_time() - start
    turns: list[float] = []
    for turn in range(1, 61):
        call = {"id": f"c{turn}", "type": "function", "function": {"name": "look", "arguments": "{}"}}
        result = {"role": "tool", "tool_call_id": f"c{turn}", "content": f"{turn} " * 1_000}
        messages = [*messages, {"role": "assistant", "content": None, "tool_calls": [call]}, result]
        start = time.process_time()
        cache.apply({"messages": messages, "tools": tools}, 30.0 * turn)
        turns.append(time.process_time() - start)
    parsed = copy.deepcopy(messages)
    start = time.process_time()
    cache.apply({"messages": parsed, "tools": tools}, 2_000.0)
    again = time.process_time() - start
    start = time.process_time()
    apply_anthropic_cache_control(messages, native_anthropic=True)
    plain = time.process_time() - start
    best, middle = min(turns), sorted(turns)[len(turns) // 2]
    print("\nPlacing markers in a conversation of 20,000 messages, CPU milliseconds")
    print(f"one turn more: best {best * 1e3:.2f}, median {middle * 1e3:.2f} (allowed 1)  {verdict(middle, _ALLOWED)}")
    print(f"the first request {first * 1e3:.0f}; all messages parsed anew {again * 1e3:.1f}")
    print(f"the plain strategy, which copies everything: {plain * 1e3:.0f}")
