"""The prefix that scripted sessions send is recorded; whoever moves it has to say so.

A provider's cache holds bytes. A change of ours that alters what a session sends makes every user's next request pay in
full, so it must be on purpose. Such a change records the new digests (``python -m tests.caching.test_byte_stability``)
and marks the session below, for the one release, with ``@pytest.mark.moves_cache_prefix(reason="…")`` on its case.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from everlong import ContextCompressor
from everlong.caching import PromptCache
from everlong.caching.markers import strip_markers
from everlong.wire import sendable, to_anthropic
from tests.caching.requests import Body, reply, step, system, tool_schemas, user
from tests.context.builders import long_session

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


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


RECORDED = Path(__file__).parent / "prefixes.json"


MOVED = pytest.mark.moves_cache_prefix(reason="turns lose whole sentences first, and quoted statements are whole")


@pytest.mark.parametrize("name", [pytest.param(name, marks=[MOVED] * (name == "compacted")) for name in SESSIONS])
def test_the_prefix_of_a_scripted_session_moves_only_with_a_reason(name: str, request: pytest.FixtureRequest) -> None:
    recorded = json.loads(RECORDED.read_text(encoding="utf-8"))[name]
    mark = request.node.get_closest_marker("moves_cache_prefix")
    if mark is not None:
        assert mark.kwargs.get("reason"), "moves_cache_prefix needs a reason"
        assert digest(sent(name)) != recorded["before"], f"{name} did not move; remove the mark"
    assert digest(sent(name)) == recorded["digest"], (
        f"the session {name!r} sends other bytes than before, so every cached prompt would be lost; undo that, or "
        "record the new digest and mark the case with moves_cache_prefix(reason=…)"
    )


def record() -> None:
    """Write the digests of this version, keeping the previous ones beside them."""
    old = json.loads(RECORDED.read_text(encoding="utf-8")) if RECORDED.exists() else {}
    new = {}
    for name in SESSIONS:
        now = digest(sent(name))
        was = old.get(name, {})
        before = was.get("before", "") if was.get("digest") == now else was.get("digest", "")
        new[name] = {"digest": now, "before": before}
    RECORDED.write_text(json.dumps(new, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    record()
