"""Scripted sessions whose sent prefix must not move between versions; see test_byte_stability."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator
from typing import Any

from everlong import ContextCompressor
from everlong.caching import PromptCache
from everlong.caching.markers import strip_markers
from everlong.wire import sendable, to_anthropic
from tests.caching.requests import Body, reply, step, system, tool_schemas, user
from tests.context.builders import long_session


def plain() -> Iterator[Body]:
    """A chat without tools."""
    messages = [system(), user("What is the tide today?")]
    for turn in range(4):
        yield {"messages": list(messages)}
        messages += [reply(f"High at {turn}:00."), user(f"And on day {turn + 2}?")]


def tool_loop() -> Iterator[Body]:
    """An agent's loop in the Anthropic format."""
    messages = [system(), user("Check the berths.")]
    for turn in range(4):
        prompt, listed = to_anthropic(messages)
        yield {"system": prompt, "tools": tool_schemas(), "messages": sendable(listed)}
        messages += step(turn, width=turn + 1)


def compacted() -> Iterator[Body]:
    """A session that is compacted on the way."""
    engine = ContextCompressor(16_000)
    session = long_session(40)
    for end in range(20, len(session), 8):
        messages = session[:end]
        if engine.should_compress_preflight(messages):
            messages = engine.compress(messages)
        yield {"messages": messages, "tools": tool_schemas()}


def openrouter() -> Iterator[Body]:
    """The loop through OpenRouter."""
    messages = [system(), user("Check the berths.")]
    for turn in range(4):
        yield {"messages": list(messages)}
        messages += step(turn, width=2)


SESSIONS: dict[str, tuple[str, Callable[[], Iterator[Body]]]] = {
    "plain": ("anthropic", plain),
    "tool_loop": ("anthropic", tool_loop),
    "compacted": ("anthropic", compacted),
    "openrouter": ("openrouter", openrouter),
}


def sent(name: str) -> list[Body]:
    """The requests of a scripted session, as they are sent."""
    provider, session = SESSIONS[name]
    cache = PromptCache("claude-sonnet-4-5", provider, settings={"strategy": "ledger"}, clock=lambda: 0.0)
    return [cache.apply(body, 30.0 * at) for at, body in enumerate(session())]


def digest(bodies: list[Body]) -> str:
    """What identifies the bytes that a model is shown, markers apart, in the order in which they are sent."""
    shown: list[Any] = [strip_markers(body) for body in bodies]
    return hashlib.sha256(json.dumps(shown, ensure_ascii=False).encode()).hexdigest()[:32]
