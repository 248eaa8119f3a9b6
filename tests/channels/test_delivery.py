from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy import func, select

from everlong.channels.inbox import Inbox
from everlong.channels.outbox import Outbox
from everlong.channels.platform import (
    Place,
    PlatformBusy,
    PlatformRefused,
    PlatformUnreachable,
)
from everlong.store import Store
from everlong.store.schema import channel_answer, channel_update
from everlong.testing import ScriptedModel
from tests.channels.conftest import Clock, Opened, hear
from tests.channels.recorder import RecordingPlatform
from tests.channels.test_queueing import words


def failing(share: float, seed: int = 7) -> Callable[[str, str], None]:
    chance = random.Random(seed)

    def fault(method: str, moment: str) -> None:
        if method != "show_typing" and chance.random() < share:
            raise (
                PlatformBusy("slowly", 0.01)
                if moment == "before" and chance.random() < 0.5
                else PlatformUnreachable("?")
            )

    return fault


async def test_faults_of_the_platform_never_lead_to_a_second_answer(
    opened: Opened, platform: RecordingPlatform, serve: Any
) -> None:
    model = ScriptedModel(words)
    server = serve(model)
    platform.fault = failing(0.3)
    async with opened(server, platform) as channel:
        for number in range(10):
            for chat in ("10", "20"):
                await channel.receive(platform.message(f"{chat}-{number}", chat))
            await channel.settle()
    for chat in ("10", "20"):
        said = [text for text in platform.texts(chat) if not text.startswith("…")]
        assert said == [f"{chat}-{number}" for number in range(10)]
    assert len(model.asked) == 20


async def test_a_long_answer_takes_several_messages_and_a_longer_one_a_file(opened: Opened, serve: Any) -> None:
    platform = RecordingPlatform(text=1_000)
    texts = iter(["a" * 2_500, "b" * 9_000])
    server = serve(lambda _ask: next(texts))
    async with opened(server, platform) as channel:
        for _ in range(2):
            await hear(channel, platform.message("more"))
    assert platform.texts()[:3] == ["a" * 1_000, "a" * 1_000, "a" * 500]
    assert platform.texts()[3:] == ["b" * 1_000, "(The answer goes on in the file.)", "[answer.md]"]
    assert list(platform.shown.values())[-1].data == b"b" * 9_000


@pytest.mark.parametrize("moment", ["before", "after"])
async def test_a_file_whose_fate_is_unknown_is_not_sent_twice(opened: Opened, serve: Any, moment: str) -> None:
    platform = RecordingPlatform(text=1_000)
    server = serve("b" * 9_000)

    def fault(method: str, at: str) -> None:
        if method == "send_file" and at == moment:
            raise PlatformUnreachable("a time-out")

    platform.fault = fault
    async with opened(server, platform) as channel:
        await hear(channel, platform.message("more"))
    assert platform.texts()[-1] == "(The file answer.md may be missing; ask me to send it again.)"
    assert platform.texts().count("[answer.md]") == (1 if moment == "after" else 0)


async def test_an_answer_to_a_chat_without_the_bot_is_given_up_and_others_go_on(
    opened: Opened, platform: RecordingPlatform, store: Store, serve: Any
) -> None:
    server = serve(words)
    lost = Place("telegram", "20")
    async with opened(server, platform) as channel:
        send = platform.send

        async def refuse(place: Place, text: str, **more: Any) -> str:
            if place == lost:
                raise PlatformRefused("the bot was removed")
            return await send(place, text, **more)

        platform.send = refuse  # type: ignore[method-assign]
        await hear(channel, platform.message("one", "20"), platform.message("two", "10"))
        assert channel.outbox.open(lost) == []
    assert platform.texts("10") == ["two"]
    assert store.verify().problems == []


DAY = 86_400.0
HERE = Place("telegram", "10")


def count(store: Store) -> tuple[int, int]:
    """Return how many messages and answers are kept."""
    with store.database.read() as connection:
        tables = (channel_update, channel_answer)
        updates, answers = (
            connection.execute(select(func.count()).select_from(table)).scalar_one() for table in tables
        )
    return updates, answers


async def test_what_was_dealt_with_is_removed_after_thirty_days_and_not_before(
    opened: Opened, platform: RecordingPlatform, store: Store, serve: Any, clock: Clock
) -> None:
    server = serve(ScriptedModel(words))
    event = platform.message("one")
    async with opened(server, platform) as channel:
        await hear(channel, event)
    clock.time += 29 * DAY
    async with opened(server, platform) as channel:
        await channel.tick()
        assert count(store) == (1, 1)
        await channel.receive(event)  # it comes again, and still counts once
        await hear(channel, platform.message("two"))
        assert platform.texts() == ["one", "two"]
        clock.time += 2 * DAY  # while it runs
        await channel.tick()
        assert count(store) == (1, 1)
    assert store.verify().problems == []


async def test_what_still_waits_is_never_removed(
    opened: Opened, platform: RecordingPlatform, store: Store, serve: Any, clock: Clock
) -> None:
    inbox, outbox = Inbox(store, "telegram", "99", clock.now), Outbox(store, "telegram", clock.now)
    outbox.add(HERE, "notice", "for later")
    inbox.keep(platform.message("waiting"), 30)
    clock.time += 90 * DAY
    server = serve(ScriptedModel(words))
    async with opened(server, platform) as channel:
        await channel.settle()
    assert platform.texts() == ["for later", "waiting"]
    inbox.prune(clock.time)
    outbox.prune(clock.time)
    assert count(store) == (0, 1)  # the answer that went out just now
