"""Pauses of a chat: an idle conversation is compacted while its cache is warm, or once it is cold."""

from __future__ import annotations

from typing import Any

import pytest

from everlong.channels.platform import Place
from everlong.store import Store
from everlong.testing import Ask
from tests.channels.conftest import MODEL, Clock, Opened, run
from tests.channels.recorder import RecordingPlatform

LONG = "Some words about the harbour and its ships. " * 50
HERE = Place("telegram", "10")


def say(ask: Ask) -> str:
    return "## Goal\nTalk about ships." if "summar" in ask.last_user.lower() else "fine"


@pytest.mark.parametrize(
    ("choice", "times"),
    [("warm", (200.0, 280.0, 281.0, 700.0)), ("cold", (290.0, 301.0, 302.0, 700.0))],
)
def test_an_idle_conversation_is_compacted_when_it_costs_least(
    opened: Opened,
    platform: RecordingPlatform,
    store: Store,
    serve: Any,
    clock: Clock,
    choice: str,
    times: tuple[float, ...],
) -> None:
    server = serve(say, window=100_000)
    about: dict[str, Any] = {"agent": {"idle_compaction": True}}
    if choice == "cold":  # another model writes summaries: it reads nothing of the conversation's cache
        about["providers"] = {"small": {"base_url": server.openai_url}}
        about["auxiliary"] = {"compression": {"provider": "small", "model": MODEL}}
        about["models"] = {MODEL: {"context_length": 16_000}, f"small:{MODEL}": {"context_length": 64_000}}

    async def talk() -> None:
        async with opened(server, platform, window=16_000, **about) as channel:
            for number in range(40):
                await channel.receive(platform.message(f"{number}: {LONG}"))
                await channel.settle()
                seat = channel.conversations.take(HERE)
                tokens, threshold = seat.agent.compactor.tokens, seat.agent.engine.threshold_tokens
                channel.conversations.give_back(seat)
                if tokens > 0.8 * threshold:
                    break
            answered, bound = clock.time, channel.places.get(HERE).conversation
            assert store.compactions() == []
            reasons = []
            for idle in times:
                clock.time = answered + idle
                await channel.tick()
                await channel.settle()
                reasons.append([done.reason for done in store.compactions()])
            assert reasons == [[], ["idle"], ["idle"], ["idle"]]
            assert channel.places.get(HERE).conversation == bound
            await channel.receive(platform.message("go on"))
            await channel.settle()
        assert platform.texts()[-1] == "fine"

    run(talk)
    assert server.rejections == []
