from __future__ import annotations

import threading
from datetime import UTC, datetime
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from everlong.channels import service
from everlong.channels.platform import Place
from everlong.channels.resets import reset_reason
from everlong.store import Store
from everlong.testing import Ask, ScriptedModel
from tests.channels.conftest import ON_SQLITE_AND_IN_SOAK_ON_BOTH, Clock, Opened, run
from tests.channels.recorder import RecordingPlatform
from tests.channels.test_queueing import words
from tests.waiting import PATIENCE

HERE = Place("telegram", "10")


def at(text: str, zone: str = "UTC") -> float:
    return datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(zone)).timestamp()


@pytest.mark.parametrize(
    ("rule", "active", "now", "is_due"),
    [
        ("never", "2026-01-01T00:00", "2027-01-01T00:00", False),
        ("idle:8", "2026-01-01T00:00", "2026-01-01T07:59", False),
        ("idle:8", "2026-01-01T00:00", "2026-01-01T08:00", True),
        ("daily:04:00", "2026-01-01T03:59", "2026-01-01T04:00", True),
        ("daily:04:00", "2026-01-01T04:00", "2026-01-02T03:59", False),
        ("daily:04:00", "2026-01-01T23:00", "2026-01-02T03:59", False),
        ("daily:04:00", "2026-01-01T23:00", "2026-01-02T04:01", True),
        ("daily:23:30", "2026-01-01T23:00", "2026-01-02T00:10", True),
    ],
)
def test_a_reset_is_due_by_its_rule(rule: str, active: str, now: str, *, is_due: bool) -> None:
    assert (reset_reason(rule, at(active), at(now), UTC) is not None) == is_due


@pytest.mark.spec("1.4")
@ON_SQLITE_AND_IN_SOAK_ON_BOTH
def test_an_idle_reset_keeps_the_message_that_triggers_it_and_says_what_it_did(
    opened: Opened, platform: RecordingPlatform, store: Store, serve: Any, clock: Clock
) -> None:
    model = ScriptedModel(lambda ask: f"heard {words(ask)} after {len([t for t in ask.turns if t.role == 'user'])}")
    server = serve(model)

    async def talk() -> None:
        async with opened(server, platform, channels={"reset": "idle:8"}) as channel:
            for text in ("one", "two"):
                await channel.receive(platform.message(text))
                await channel.settle()
            before = channel.places.get(HERE).conversation
            clock.time += 9 * 3_600
            await channel.receive(platform.message("three"))
            await channel.settle()
            after = channel.places.get(HERE).conversation
            assert after != before
            texts = platform.texts()
            assert texts[:2] == ["heard one after 1", "heard two after 2"]
            assert "New conversation after 9 hours of silence" in texts[2]
            assert str(before) in texts[2]
            assert texts[3:] == ["heard three after 1"]
            (old,) = store.conversations.parts(str(before))
            assert old.end_reason == "reset"
            await channel.receive(platform.message(f"/resume {before}"))
            await channel.receive(platform.message("four"))
            await channel.settle()
            assert platform.texts()[-1] == "heard four after 3"

    run(talk)


@pytest.mark.spec("7.2", "7.7")
@ON_SQLITE_AND_IN_SOAK_ON_BOTH
def test_a_compaction_never_changes_what_a_topic_is_bound_to(
    opened: Opened, platform: RecordingPlatform, store: Store, serve: Any
) -> None:
    long = "Some words about the harbour and its ships. " * 60
    model = ScriptedModel(lambda ask: "## Goal\nTalk." if "summar" in ask.last_user[:400].lower() else long)
    server = serve(model, window=16_000)
    place = Place("telegram", "-7", "33")

    async def talk() -> None:
        async with opened(server, platform, window=16_000) as channel:
            await channel.receive(platform.message("begin", "-7", topic="33"))
            await channel.settle()
            bound = channel.places.get(place).conversation
            for number in range(24):
                await channel.receive(platform.message(f"{number}: {long}", "-7", topic="33"))
                await channel.settle()
            assert channel.places.get(place).conversation == bound
        async with opened(server, platform, window=16_000) as channel:
            await channel.receive(platform.message("after a restart", "-7", topic="33"))
            await channel.settle()
            assert channel.places.get(place).conversation == bound
        assert len(platform.texts("-7", "33")) == len(platform.shown) == 26
        assert len(store.conversations.parts(str(bound))) > 2

    run(talk)
    assert store.verify().problems == []


@pytest.mark.spec("4.2")
@ON_SQLITE_AND_IN_SOAK_ON_BOTH
def test_a_compaction_that_takes_too_long_leaves_the_conversation_as_it_was(
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

    async def talk() -> None:
        about = {"compression": {"threshold": 0.99, "protect_last_n": 2}}
        async with opened(server, platform, window=16_000, **about) as channel:
            notices: list[str] = []
            for number in range(30):
                await channel.receive(platform.message(f"{number}: {long}"))
                await channel.settle()
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

    run(talk)
