"""Scripted sessions whose sent prefix must not move between versions; see test_byte_stability."""

from __future__ import annotations

import hashlib
import json
import tempfile
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from everlong import ContextCompressor
from everlong.caching import PromptCache
from everlong.caching.markers import strip_markers
from everlong.model import with_part_appended
from everlong.store import Store
from everlong.store.teasers import find_teaser
from everlong.wire import sendable, to_anthropic
from tests.caching.requests import Body, reply, step, system, tool_schemas, user
from tests.context.builders import long_session
from tests.store.engines import ScriptedEngine, summarizing


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


def teased() -> Iterator[Body]:
    """A chat whose second request carries a teaser of what its summary has left out."""
    said = [
        user("Let us begin the log."),
        reply("Gladly."),
        user("The spare key of the boathouse lies under the third flowerpot."),
        reply("I will remember it."),
        user("How is the wind?"),
        reply("From the west."),
    ]
    with tempfile.TemporaryDirectory() as folder, Store.open(Path(folder) / "store.db") as store:
        at = store.record([system(), *said], times=[86_400.0 * day for day in range(7)], conversation="teased")
        store.compact(at, ScriptedEngine(summarizing(1, 5, "The log was begun.")))
        for words in ("Go on.", "Where did I say the spare key of the boathouse lies?", "Thank you.", "Good night."):
            at = store.append(at, [user(words)])
            if (teaser := find_teaser(store, at, words)) is not None:
                store.teasers.keep(at, teaser)
            context, told = store.context(at), store.teasers.places(at)
            places = range(len(context), 0, -1)
            yield {
                "messages": [
                    with_part_appended(message, told[place]) if place in told else message
                    for place, message in zip(places, context, strict=True)
                ]
            }
            at = store.append(at, [reply(f"{words} Yes.")])


SESSIONS: dict[str, tuple[str, Callable[[], Iterator[Body]]]] = {
    "plain": ("anthropic", plain),
    "tool_loop": ("anthropic", tool_loop),
    "compacted": ("anthropic", compacted),
    "openrouter": ("openrouter", openrouter),
    "teased": ("anthropic", teased),
}


def sent(name: str) -> list[Body]:
    """The requests of a scripted session, as they are sent."""
    provider, session = SESSIONS[name]
    cache = PromptCache("claude-sonnet-4-5", provider, settings={"strategy": "ledger"}, clock=lambda: 0.0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return [cache.apply(body, 30.0 * at) for at, body in enumerate(session())]


def digest(bodies: list[Body]) -> str:
    """What identifies the bytes that a model is shown, markers apart, in the order in which they are sent."""
    shown: list[Any] = [strip_markers(body) for body in bodies]
    return hashlib.sha256(json.dumps(shown, ensure_ascii=False).encode()).hexdigest()[:32]
