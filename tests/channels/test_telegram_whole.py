"""From a message in Telegram to the answer there: the real library, store and client, on stand-ins of both servers."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from typing import Any

import pytest

from everlong.channels.service import Channel, ChannelClock
from everlong.channels.telegram import TelegramPlatform
from everlong.store import Store
from everlong.testing import Ask, ModelServer, ScriptedModel
from tests.channels.conftest import Clock, opener_for, settings_for, until
from tests.channels.telegram_stand_in import BOT_NAME, TOKEN, Fault, TelegramStandIn, once, stand_in
from tests.channels.test_queueing import words
from tests.waiting import PATIENCE

ADA, BOB, MALLORY = 1, 2, 666
GROUP, FORUM = -1001, -1002
Open = Callable[..., AbstractAsyncContextManager[Channel]]


@pytest.fixture
def api() -> Iterator[TelegramStandIn]:
    with stand_in() as server:
        server.private_chat(ADA, "Ada")
        server.group(GROUP)
        yield server


@pytest.fixture
def open_bot(api: TelegramStandIn, store: Store, clock: Clock) -> Open:
    """Open a channel that polls the stand-in; opened again, it is a restart."""

    @asynccontextmanager
    async def open_one(server: ModelServer, *, is_killed: bool = False, **channels: Any) -> AsyncIterator[Channel]:
        own = {"api_base": api.address}
        settings = settings_for(server.window, channels={"telegram": own, **channels})
        platform = TelegramPlatform(TOKEN, settings.channels.telegram, poll_seconds=1)
        channel = Channel(
            platform,
            store,
            settings,
            settings.channels.telegram,
            asyncio.Semaphore(8),
            ChannelClock(clock.now, clock.sleep),
            opener_for(server),
        )
        await channel.start()
        polling = asyncio.ensure_future(channel.run())
        try:
            yield channel
        finally:
            polling.cancel()
            with suppress(asyncio.CancelledError):
                await polling
            await channel.stop(0.0 if is_killed else 20.0)

    return open_one


def texts(api: TelegramStandIn, chat: int, topic: int | None = None) -> list[str]:
    return [one.text for one in api.shown(chat, topic)]


async def heard(api: TelegramStandIn, channel: Channel) -> None:
    """Wait until everything that people said is stored, answered and delivered."""
    await until(lambda: not api.waiting())
    await channel.settle()


def conversations(store: Store) -> int:
    return len(store.conversations.newest(100))


async def test_each_topic_has_its_own_conversation_and_gets_its_own_answers(
    api: TelegramStandIn, open_bot: Open, store: Store, serve: Any
) -> None:
    api.group(FORUM, topics=(7, 8))
    async with open_bot(serve(words)) as channel:
        for topic in (7, 8, None, 7):
            api.say(FORUM, ADA, f"@{BOT_NAME} in {topic}", topic=topic)
            await heard(api, channel)
    assert texts(api, FORUM, 7) == ["in 7", "in 7"]
    assert texts(api, FORUM, 8) == ["in 8"]
    assert texts(api, FORUM) == ["in None"]
    assert conversations(store) == 3


@pytest.mark.parametrize(
    ("method", "fault"),
    [
        *(("sendMessage", fault) for fault in ("busy", "error", "before", "after")),
        *(("editMessageText", fault) for fault in ("busy", "after")),
        *(("getUpdates", fault) for fault in ("error", "before")),
        ("sendChatAction", "after"),
    ],
)
async def test_a_fault_costs_at_most_an_empty_message(
    api: TelegramStandIn, open_bot: Open, serve: Any, method: str, fault: Fault
) -> None:
    model = ScriptedModel(words)
    api.faults = once(method, fault)
    async with open_bot(serve(model)) as channel:
        api.say(ADA, ADA, "hello")
        await until(lambda: "hello" in texts(api, ADA))
        await heard(api, channel)
    assert [text for text in texts(api, ADA) if text != "…"] == ["hello"]
    assert len(api.shown(ADA)) == (2 if (method, fault) == ("sendMessage", "after") else 1)
    assert len(model.asked) == 1


async def test_a_closed_topic_is_not_answered_elsewhere(api: TelegramStandIn, open_bot: Open, serve: Any) -> None:
    chat = api.group(FORUM, topics=(7,))

    def answer(ask: Ask) -> str:
        chat.closed.add(7)
        return words(ask)

    async with open_bot(serve(answer), stream=False) as channel:
        api.say(FORUM, ADA, f"@{BOT_NAME} hello", topic=7)
        await heard(api, channel)
    assert texts(api, FORUM) == []


async def test_a_restart_while_the_model_thinks_answers_once(
    api: TelegramStandIn, open_bot: Open, store: Store, serve: Any
) -> None:
    may_end = threading.Event()

    def answer(ask: Ask) -> str:
        if len(model.asked) == 1:
            may_end.wait(PATIENCE)
        return words(ask)

    model = ScriptedModel(answer)
    server = serve(model)
    async with open_bot(server, is_killed=True):
        api.say(ADA, ADA, "hello")
        await until(lambda: model.asked)
    async with open_bot(server) as channel:
        await until(lambda: "hello" in texts(api, ADA))
        api.say(ADA, ADA, "and now?")
        await heard(api, channel)
    may_end.set()
    assert [text for text in texts(api, ADA) if text != "…"] == ["hello", "and now?"]
    assert conversations(store) == 1
