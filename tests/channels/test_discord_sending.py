"""What the channels do on Discord: messages once each, edits, files, buttons, commands, and Discord's limits."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from everlong.channels.platform import Place, PlatformRefused
from tests.channels.discord_bot import Bot, bot, listening
from tests.channels.discord_stand_in import DiscordStandIn
from tests.waiting import until

SUPPRESS_EMBEDS = 1 << 2


@pytest.fixture
def place(chat: str) -> Place:
    return Place("discord", chat)


@pytest.fixture
def speaking(discord: DiscordStandIn) -> Iterator[Bot]:
    with bot(discord) as made:
        yield made


def test_a_bot_that_may_not_read_messages_is_refused_at_once(discord: DiscordStandIn, speaking: Bot) -> None:
    discord.allows_content = False
    with pytest.raises(PlatformRefused, match="MESSAGE CONTENT INTENT"):
        speaking.do(lambda platform: platform.identify())


def test_the_same_nonce_is_one_message_also_after_a_restart(discord: DiscordStandIn, place: Place) -> None:
    with bot(discord) as first:
        sent = first.do(lambda platform: platform.send(place, "hello", nonce="answer 7"))
    with bot(discord) as second:
        again = second.do(lambda platform: platform.send(place, "hello", nonce="answer 7"))
        other = second.do(lambda platform: platform.send(place, "hello", nonce="answer 8"))
    assert sent == again != other
    assert discord.posted(place.chat) == ["hello", "hello"]


def test_discord_fetches_no_link_of_any_message_of_the_bot(discord: DiscordStandIn, ada: str, place: Place) -> None:
    link = "http://collector.example/?what=was+said"
    with listening(discord) as heard:
        discord.run_command(ada, place.chat, "usage")
        event = until(lambda: heard.events)[0]
        heard.do(lambda platform: platform.acknowledge(event))
        heard.do(lambda platform: platform.send(place, link, replies_to=event.message, nonce="n1"))
        sent = heard.do(lambda platform: platform.send(place, "wait", nonce="n2"))
        heard.do(lambda platform: platform.edit(place, sent, link))
        heard.do(lambda platform: platform.send_file(place, "a.txt", b"a", caption=link, nonce="n3"))
        discord.run_command(ada, place.chat, "stop")
        stop = until(lambda: heard.events[1:])[0]
        heard.do(lambda platform: platform.acknowledge(stop, link))
    posted = discord.posted_messages(place.chat)
    assert [one["content"] for one in posted] == [link] * 3
    shown = [data for made in discord.interactions.values() for data in made.shown]
    assert shown
    assert all(one["flags"] & SUPPRESS_EMBEDS for one in [*posted, *shown])


def test_a_command_has_one_answer_if_the_program_was_killed_after_it(
    discord: DiscordStandIn, ada: str, place: Place
) -> None:
    with listening(discord) as heard:
        discord.run_command(ada, place.chat, "usage")
        event = until(lambda: heard.events)[0]
        heard.do(lambda platform: platform.acknowledge(event))
        first = heard.do(lambda platform: platform.send(place, "the answer", replies_to=event.message, nonce="n"))
    discord.forget_nonces()
    with bot(discord) as restarted:
        again = restarted.do(lambda platform: platform.send(place, "the answer", replies_to=event.message, nonce="n"))
    assert first == again
    assert discord.posted(place.chat) == ["the answer"]


def test_a_command_whose_time_is_over_is_answered_by_a_message(discord: DiscordStandIn, ada: str, place: Place) -> None:
    with listening(discord) as heard:
        made = discord.run_command(ada, place.chat, "usage")
        event = until(lambda: heard.events)[0]
        made.is_expired = True
        with pytest.raises(PlatformRefused, match="Unknown interaction"):
            heard.do(lambda platform: platform.acknowledge(event))
        heard.do(lambda platform: platform.send(place, "late", replies_to=event.message, nonce="n"))
    assert discord.posted(place.chat) == ["late"]


def test_files_are_fetched_up_to_a_limit(discord: DiscordStandIn, ada: str, place: Place) -> None:
    with listening(discord) as heard:
        honest = discord.add_file("a.txt", "text/plain", b"x" * 100)
        lying = discord.add_file("b.txt", "text/plain", b"x" * 300_000, size=10)
        discord.say(ada, place.chat, "", attachments=[honest, lying])
        first, second = until(lambda: heard.events)[0].attachments
        assert heard.do(lambda platform: platform.fetch(first, 100)) == b"x" * 100
        with pytest.raises(PlatformRefused, match=r"a\.txt is larger than 99 bytes"):
            heard.do(lambda platform: platform.fetch(first, 99))
        with pytest.raises(PlatformRefused, match=r"b\.txt is larger than 1000 bytes"):
            heard.do(lambda platform: platform.fetch(second, 1000))
