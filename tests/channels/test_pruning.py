from __future__ import annotations

from typing import Any

from sqlalchemy import func, select

from everlong.channels.inbox import Inbox
from everlong.channels.outbox import Outbox
from everlong.channels.platform import Place
from everlong.store import Store
from everlong.store.schema import channel_answer, channel_update
from everlong.testing import ScriptedModel
from tests.channels.conftest import Clock, Opened, hear
from tests.channels.recorder import RecordingPlatform
from tests.channels.test_queueing import words

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
