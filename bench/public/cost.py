"""CPU of a compaction, and the input cost of whole sessions with a prompt cache.

CPU is that of the package's process, without the stubbed model's and without the translation of messages into the
package's classes. The cost is that of `everlong.caching`'s simulator of Anthropic's cache, in tokens at the price of a
fresh one, with the same markers for all (the system prompt and the last three messages), and of the calls to the model
that summarizes, at the same prices.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench.conversations import conversation
from bench.public.keeping import at_most, conversations
from bench.public.peers import Adapter, Failed
from bench.public.processes import in_processes
from bench.retention.data import Conversation
from bench.retention.methods import body_tokens
from everlong.caching import PromptCache
from everlong.caching.simulation import CacheSimulator, Totals
from everlong.model import Message, leading_system_count

__all__ = ["ROOM", "SIZES", "TRIGGER", "measure_cache", "measure_cpu"]

SIZES = (200, 1_000, 5_000)
SUMMARY = 2_000
"""Tokens of the model's answers there."""
REPEATS = {200: 3, 1_000: 2, 5_000: 1}
TRIGGER, ROOM = 32_000, 10_000
MODEL = "claude-sonnet-4-5"
STEP_SECONDS = 30.0
OUTPUT_PRICE = 5.0
"""Of a token, beside a fresh one of the input."""
SLIDING = "sliding window"


def measure_cpu(methods: Sequence[str]) -> dict[str, Any]:
    """Return the CPU milliseconds of a first compaction by method and number of messages, with default settings."""
    results, done = in_processes("cpu", SIZES, methods, _cpu, jobs=1)
    rows: dict[str, dict[str, float]] = {}
    for name, size, spent in results:
        rows.setdefault(name, {})[str(size)] = round(1e3 * spent, 2)
    return {"failures": done.failures, "rows": [{"method": name, **found} for name, found in rows.items()]}


def _cpu(size: int, adapter: Adapter) -> list[tuple[str, int, float]]:
    messages = conversation(size)
    try:
        spent = min(adapter.compact(messages, room=None, summary=SUMMARY).cpu for _ in range(REPEATS[size]))
    except Failed as error:
        adapter.failures.append(f"{size:,} messages: {error}")
        return []
    return [(adapter.method.name, size, spent)]


def measure_cache(folders: Sequence[Path], methods: Sequence[str], jobs: int = 2, most: int = 0) -> dict[str, Any]:
    """Return the input cost of recorded sessions by method, in fresh tokens for each request."""
    _, chosen = conversations(folders)
    long = [one for one in chosen if one.kind != "chats" and body_tokens(one.messages) > TRIGGER]
    long = at_most(long, most, lambda one: (one.kind, one.name))
    long.sort(key=lambda one: -len(one.messages))
    results, done = in_processes("cache", long, methods, play_session, jobs)
    rows = []
    for name in methods:
        mine = [result for result in results if result["method"] == name]
        if not mine:
            continue
        requests = sum(one["requests"] for one in mine)
        rows.append(
            {
                "method": name,
                "sessions": len(mine),
                "requests": requests,
                "compactions": sum(one["compactions"] for one in mine),
                "cost": sum(one["cost"] for one in mine) / requests,
                "summaries": sum(one["summaries"] for one in mine) / requests,
                "prompt": sum(one["prompt"] for one in mine) / requests,
                "read": sum(one["read"] for one in mine) / sum(one["prompt"] for one in mine),
            }
        )
    return {"failures": {name: len(reasons) for name, reasons in done.failures.items()}, "rows": rows}


def play_session(session: Conversation, adapter: Adapter) -> list[dict[str, Any]]:
    """Return the costs of one session with one method: a request before each message of the assistant."""
    simulator = CacheSimulator(MODEL, "anthropic")
    cache = PromptCache(MODEL, "anthropic", settings={"strategy": "system_and_3"}, clock=lambda: 0.0)
    room = TRIGGER if adapter.method.name == SLIDING else ROOM  # a window that slides does so with every request
    start = leading_system_count(session.messages)
    context: list[Message] = list(session.messages[:start])
    tokens = compactions = requests = 0
    summaries = 0.0
    for message in session.messages[start:]:
        if message.get("role") == "assistant":
            if tokens > TRIGGER and (made := adapter.fit(context, room)) is not None:
                context, tokens = list(made.messages), body_tokens(made.messages)
                compactions += 1
                summaries += sum(asked + OUTPUT_PRICE * said for asked, said in made.calls)
            sent = [{key: value for key, value in one.items() if not key.startswith("_")} for one in context]
            at = STEP_SECONDS * requests
            simulator.send(cache.apply({"messages": sent, "tools": []}, at), at)
            requests += 1
        context.append(message)
        tokens += body_tokens([message])
    totals: Totals = simulator.totals
    return [
        {
            "method": adapter.method.name,
            "requests": requests,
            "compactions": compactions,
            "cost": totals.cost + summaries,
            "summaries": summaries,
            "prompt": totals.prompt,
            "read": totals.read,
        }
    ]
