"""What people do on Discord, as the channels hear of it: the real library, against a stand-in on loopback."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest
from discord import MessageType

from everlong.channels.discord_gateway import Feed
from everlong.channels.platform import Inbound, Place, PlatformRefused
from tests.channels.conftest import until as until_soon
from tests.channels.discord_bot import Bot, bot, listening
from tests.channels.discord_stand_in import DiscordStandIn
from tests.waiting import until


@pytest.fixture
def room(discord: DiscordStandIn) -> str:
    """A channel of a server."""
    return discord.add_channel(discord.add_guild())


@pytest.fixture
def heard(discord: DiscordStandIn, room: str) -> Iterator[Bot]:  # noqa: ARG001 - the server is known before the bot comes
    with listening(discord) as made:
        yield made


def test_in_a_server_only_a_mention_or_a_reply_addresses_the_bot(
    discord: DiscordStandIn, ada: str, room: str, heard: Bot
) -> None:
    own = heard.do(lambda platform: platform.send(Place("discord", room), "I am here", nonce="n"))
    role = discord.roles[discord.channels[room]["guild_id"]][0]["id"]
    discord.say(ada, room, "among ourselves")
    discord.say(ada, room, "what is up?", mentions=True)
    discord.say(ada, room, "to your words", message_reference={"message_id": own, "channel_id": room})
    discord.say(ada, room, f"<@&{role}> by your role", mention_roles=[role])
    discord.say(ada, room, "@everyone look", mention_everyone=True)
    until(lambda: len(heard.events) == 5)
    assert heard.texts == ["among ourselves", "what is up?", "to your words", "by your role", "@everyone look"]
    assert [event.is_addressed for event in heard.events] == [False, True, True, True, False]
    assert heard.events[2].replies_to == own
    assert {event.guild for event in heard.events} == {discord.channels[room]["guild_id"]}


def test_a_thread_that_the_bot_was_never_told_of_is_the_same_topic_for_all_events(
    discord: DiscordStandIn, ada: str, room: str, heard: Bot
) -> None:
    thread = discord.add_thread(room)
    discord.say(ada, thread, "after a year")
    discord.say(ada, thread, "after two years")
    until(lambda: len(heard.events) == 2)
    assert {event.place for event in heard.events} == {Place("discord", room, thread)}
    asked = [request for request in discord.requests if request.path == f"/channels/{thread}"]
    assert len(asked) == 1, "the channel is asked for once"


def test_a_wrong_token_is_refused_with_what_to_do(discord: DiscordStandIn) -> None:
    with bot(discord) as made:
        discord.token = "another"  # noqa: S105 - made up
        with pytest.raises(PlatformRefused, match=r"refuses the bot's token.*set DISCORD_BOT_TOKEN"):
            made.do(lambda platform: platform.identify())


def test_an_event_that_cannot_be_read_holds_up_no_other() -> None:
    stored: list[Inbound] = []

    async def receive(event: Inbound) -> None:
        stored.append(event)

    async def talk() -> None:
        client: Any = SimpleNamespace(user=SimpleNamespace(id=1), get_channel=lambda _: None)
        feed = Feed(client, receive)
        broken: Any = SimpleNamespace(author=SimpleNamespace(id=2), channel=SimpleNamespace(id=5), guild=None)
        feed.on_message(broken)
        author = SimpleNamespace(id=2, display_name="Ada", bot=False)
        where = {"channel": SimpleNamespace(id=5), "guild": None, "reference": None, "webhook_id": None}
        said = {"type": MessageType.default, "content": "hello", "created_at": datetime.now(UTC)}
        empty: Any = dict.fromkeys(("attachments", "mentions", "message_snapshots", "role_mentions"), ())
        whole: Any = SimpleNamespace(id=7, author=author, **where, **said, **empty)
        feed.on_message(whole)
        await until_soon(lambda: stored)
        await feed.close()

    asyncio.run(talk())
    assert [(event.kind, event.message) for event in stored] == [("message", "7")]
