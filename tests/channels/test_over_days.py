from __future__ import annotations

import threading
from typing import Any

import pytest

from everlong.channels import service
from everlong.channels.platform import Place
from everlong.store import Store
from everlong.testing import Ask, ScriptedModel
from tests.channels.conftest import ON_SQLITE_AND_IN_SOAK_ON_BOTH, Opened, hear
from tests.channels.recorder import RecordingPlatform
from tests.waiting import PATIENCE

HERE = Place("telegram", "10")


@pytest.mark.spec("7.2", "7.7")
@ON_SQLITE_AND_IN_SOAK_ON_BOTH
async def test_a_compaction_never_changes_what_a_topic_is_bound_to(
    opened: Opened, platform: RecordingPlatform, store: Store, serve: Any
) -> None:
    long = "Some words about the harbour and its ships. " * 60
    model = ScriptedModel(lambda ask: "## Goal\nTalk." if "summar" in ask.last_user[:400].lower() else long)
    server = serve(model, window=16_000)
    place = Place("telegram", "-7", "33")
    async with opened(server, platform, window=16_000) as channel:
        await hear(channel, platform.message("begin", "-7", topic="33"))
        bound = channel.places.get(place).conversation
        for number in range(24):
            await hear(channel, platform.message(f"{number}: {long}", "-7", topic="33"))
        assert channel.places.get(place).conversation == bound
    async with opened(server, platform, window=16_000) as channel:
        await hear(channel, platform.message("after a restart", "-7", topic="33"))
        assert channel.places.get(place).conversation == bound
    assert len(platform.texts("-7", "33")) == len(platform.shown) == 26
    assert len(store.conversations.parts(str(bound))) > 2
    assert store.verify().problems == []


@pytest.mark.spec("4.2")
@ON_SQLITE_AND_IN_SOAK_ON_BOTH
async def test_a_compaction_that_takes_too_long_leaves_the_conversation_as_it_was(
    opened: Opened, platform: RecordingPlatform, store: Store, serve: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service, "COMPACTION_SECONDS", 1.0)
    long = "Some words about the harbour and its ships. " * 100
    may_end = threading.Event()

    def say(ask: Ask) -> str:
        if "summar" in ask.last_user.lower():
            may_end.wait(PATIENCE)
        return "fine"

    server = serve(say, window=200_000)
    about = {"compression": {"threshold": 0.99, "protect_last_n": 2}}
    async with opened(server, platform, window=16_000, **about) as channel:
        notices: list[str] = []
        for number in range(30):
            await hear(channel, platform.message(f"{number}: {long}"))
            before = channel.places.get(HERE).conversation
            seat = channel.conversations.take(HERE)
            notices += seat.notices
            channel.conversations.give_back(seat)
            if notices:
                break
        may_end.set()
        assert "a compaction took longer than 1 seconds" in notices[0]
        assert platform.texts() == ["fine"] * (number + 1)
        assert store.compactions() == []
    (one,) = store.conversations.newest(5)
    assert one.id == before
    said = [line.entry.message for line in store.conversations.lines(one.id)]
    assert len([message for message in said if message["role"] == "user"]) == number + 1
