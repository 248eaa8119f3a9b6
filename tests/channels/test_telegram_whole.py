"""From a message in Telegram to the answer there: the real library, store and client, on stand-ins of both servers."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from typing import Any

import pytest

from everlong.channels.platform import Place
from everlong.channels.service import Channel, ChannelClock
from everlong.channels.telegram import TelegramPlatform
from everlong.channels.telegram_markup import utf16_length
from everlong.store import Store
from everlong.testing import Answer, Ask, Call as ToolCall, ModelServer, ScriptedModel
from tests.channels.conftest import Clock, opener_for, run, settings_for, until
from tests.channels.telegram_stand_in import BOT_NAME, TOKEN, Call, Fault, Shown, TelegramStandIn, stand_in
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


def words(ask: Ask) -> str:
    """The newest message without the notes behind it."""
    return "\n".join(line for line in ask.last_user.splitlines() if line and not line.startswith("["))


def texts(api: TelegramStandIn, chat: int, topic: int | None = None) -> list[str]:
    return [one.text for one in api.shown(chat, topic)]


async def heard(api: TelegramStandIn, channel: Channel) -> None:
    """Wait until everything that people said is stored, answered and delivered."""
    await until(lambda: not api.waiting())
    await channel.settle()


def conversations(store: Store) -> int:
    return len(store.conversations.newest(100))


def once(method: str, fault: Fault) -> Callable[[Call], Fault | None]:
    left = [fault]
    return lambda call: left.pop() if call.method == method and left else None


def play(work: Callable[[], Awaitable[None]]) -> None:
    run(work)


# -- places ------------------------------------------------------------------------------------------------------------
def test_each_topic_has_its_own_conversation_and_gets_its_own_answers(
    api: TelegramStandIn, open_bot: Open, store: Store, serve: Any
) -> None:
    api.group(FORUM, topics=(7, 8))

    async def talk() -> None:
        async with open_bot(serve(words)) as channel:
            for topic in (7, 8, None, 7):
                api.say(FORUM, ADA, f"@{BOT_NAME} in {topic}", topic=topic)
                await heard(api, channel)

    play(talk)
    assert texts(api, FORUM, 7) == ["in 7", "in 7"]
    assert texts(api, FORUM, 8) == ["in 8"]
    assert texts(api, FORUM) == ["in None"]
    assert conversations(store) == 3


def test_a_phantom_thread_does_not_split_a_group(
    api: TelegramStandIn, open_bot: Open, store: Store, serve: Any
) -> None:
    async def talk() -> None:
        async with open_bot(serve(words)) as channel:
            first = api.say(GROUP, ADA, f"@{BOT_NAME} one")
            await heard(api, channel)
            answer = api.shown(GROUP)[0].id
            api.say(GROUP, BOB, "two", reply_to=answer, phantom_thread=first)
            await heard(api, channel)

    play(talk)
    assert texts(api, GROUP) == ["one", "two"]
    assert conversations(store) == 1


def test_a_topic_stays_with_its_conversation_after_a_compaction(
    api: TelegramStandIn, open_bot: Open, store: Store, serve: Any
) -> None:
    api.group(FORUM, topics=(7,))

    def answer(ask: Ask) -> str:
        return words(ask) if "tools" in ask.body or len(ask.turns) > 1 else "## Goal\nTalk about the harbour."

    async def talk() -> None:
        async with open_bot(serve(answer)) as channel:
            for number in range(8):
                api.say(FORUM, ADA, f"@{BOT_NAME} fact {number}: {'harbour ' * 150}", topic=7)
                await heard(api, channel)
            api.say(FORUM, ADA, "/compress", topic=7)
            await heard(api, channel)
            bound = channel.places.get(Place("telegram", str(FORUM), "7")).conversation
            api.say(FORUM, ADA, f"@{BOT_NAME} after it", topic=7)
            await heard(api, channel)
            assert channel.places.get(Place("telegram", str(FORUM), "7")).conversation == bound

    play(talk)
    assert texts(api, FORUM, 7)[-1] == "after it"
    assert conversations(store) == 1
    assert texts(api, FORUM) == []


def test_a_group_that_becomes_a_supergroup_goes_on(
    api: TelegramStandIn, open_bot: Open, store: Store, serve: Any
) -> None:
    api.group(-5, is_super=False)

    async def talk() -> None:
        async with open_bot(serve(words)) as channel:
            api.say(-5, ADA, f"@{BOT_NAME} before")
            await heard(api, channel)
            api.upgrade(-5, GROUP)
            api.say(GROUP, ADA, f"@{BOT_NAME} after")
            await heard(api, channel)

    play(talk)
    assert texts(api, -5) == ["before"]
    assert texts(api, GROUP) == ["after"]
    assert conversations(store) == 1


def test_an_answer_follows_a_group_that_moves_while_the_model_thinks(
    api: TelegramStandIn, open_bot: Open, store: Store, serve: Any
) -> None:
    api.group(-5, is_super=False)

    def move(ask: Ask) -> str:
        api.upgrade(-5, GROUP)
        return words(ask)

    async def talk() -> None:
        async with open_bot(serve(move)) as channel:
            api.say(-5, ADA, f"@{BOT_NAME} where are we?")
            await until(lambda: texts(api, GROUP) == ["where are we?"])
            await heard(api, channel)

    play(talk)
    assert [text for text in texts(api, -5) if text != "…"] == []
    assert conversations(store) == 1


# -- strangers ---------------------------------------------------------------------------------------------------------
def test_strangers_get_nothing(api: TelegramStandIn, open_bot: Open, store: Store, serve: Any) -> None:
    model = ScriptedModel(words)
    api.private_chat(MALLORY)
    api.group(-77, title="A foreign group")

    async def talk() -> None:
        async with open_bot(serve(model)) as channel:
            before = sum(api.counts[method] for method in ("sendMessage", "sendChatAction", "answerCallbackQuery"))
            api.say(MALLORY, MALLORY, "/start")
            api.say(MALLORY, MALLORY, "hello?")
            api.say(-77, MALLORY, f"@{BOT_NAME} hello?")
            api.say(-77, MALLORY, "/help")
            number = api.say(MALLORY, MALLORY, "hello!")
            api.edit(MALLORY, number, "HELLO!")
            await heard(api, channel)
            after = sum(api.counts[method] for method in ("sendMessage", "sendChatAction", "answerCallbackQuery"))
            assert before == after

    play(talk)
    assert not model.asked
    assert api.all_shown() == []
    assert conversations(store) == 0


def test_a_forwarded_command_is_no_command(api: TelegramStandIn, open_bot: Open, store: Store, serve: Any) -> None:
    model = ScriptedModel(words)
    origin = {"type": "user", "sender_user": {"id": MALLORY, "is_bot": False, "first_name": "M"}, "date": 1}

    async def talk() -> None:
        async with open_bot(serve(model)) as channel:
            api.say(ADA, ADA, "remember the harbour")
            await heard(api, channel)
            api.say(ADA, ADA, "/reset", forward_origin=origin)
            await heard(api, channel)

    play(talk)
    assert texts(api, ADA) == ["remember the harbour", "<forwarded>\n/reset\n</forwarded>"]
    assert "the words of somebody else" in model.asked[-1].last_user
    assert conversations(store) == 1


def test_chatter_of_a_group_is_not_answered(api: TelegramStandIn, open_bot: Open, serve: Any) -> None:
    model = ScriptedModel(words)

    async def talk() -> None:
        async with open_bot(serve(model)) as channel:
            api.say(GROUP, ADA, "chatter")
            api.say(GROUP, ADA, "/help@another_bot")
            await heard(api, channel)

    play(talk)
    assert not model.asked
    assert texts(api, GROUP) == []


# -- approvals ---------------------------------------------------------------------------------------------------------
def test_a_button_counts_only_for_the_person_who_asked(api: TelegramStandIn, open_bot: Open, serve: Any) -> None:
    def answer(ask: Ask) -> Any:
        is_asked = ask.turns[-1].role == "user"
        return Answer(calls=[ToolCall("write_file", {"path": "a.txt", "content": "x"})]) if is_asked else "done"

    async def talk() -> None:
        async with open_bot(serve(answer)) as channel:
            api.say(GROUP, ADA, f"@{BOT_NAME} write it")

            def question() -> Shown | None:
                return next((one for one in api.shown(GROUP) if one.buttons), None)

            asked: Shown = await until(question)
            yes = next(iter(asked.buttons.values()))
            by_bob = api.press(GROUP, asked.id, BOB, yes)
            by_mallory = api.press(GROUP, asked.id, MALLORY, yes)
            await until(lambda: not api.waiting())
            assert question() is not None
            assert "Only the person who asked" in (api.answers[by_bob] or "")
            assert by_mallory not in api.answers
            by_ada = api.press(GROUP, asked.id, ADA, yes)
            await until(lambda: "done" in texts(api, GROUP))
            assert by_ada in api.answers
            assert question() is None
            late = api.press(GROUP, asked.id, ADA, yes)
            await heard(api, channel)
            assert "no longer open" in (api.answers[late] or "")

    play(talk)


# -- what is said ------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    "text", ["x" * 4096, "😀" * 2048, "שלום עולם " * 409, "مرحبا بالعالم " * 290, "a_b*[c](d)`e`<f>&amp;"]
)
def test_the_longest_and_strangest_messages_are_answered(
    api: TelegramStandIn, open_bot: Open, serve: Any, text: str
) -> None:
    model = ScriptedModel(lambda ask: f"```\n{words(ask)}\n```")

    async def talk() -> None:
        async with open_bot(serve(model)) as channel:
            api.say(ADA, ADA, text)
            await heard(api, channel)

    play(talk)
    shown = texts(api, ADA)
    assert "".join(shown).replace("\n", "") == text.strip()
    assert all(utf16_length(one) <= 4096 for one in shown)


def test_a_file_of_50_megabytes_gets_one_clear_reply(api: TelegramStandIn, open_bot: Open, serve: Any) -> None:
    model = ScriptedModel(words)
    api.add_file("big", b"x", size=50_000_000)
    document = {"file_id": "big", "file_unique_id": "b", "file_name": "film.mkv", "file_size": 50_000_000}

    async def talk() -> None:
        async with open_bot(serve(model)) as channel:
            api.say(ADA, ADA, document=document)
            await heard(api, channel)

    play(talk)
    (reply,) = texts(api, ADA)
    assert "film.mkv" in reply


def test_a_picture_reaches_the_model(api: TelegramStandIn, open_bot: Open, serve: Any) -> None:
    model = ScriptedModel(lambda _: "a red square")
    pixel = bytes.fromhex(
        "89504e470d0a1a0a0000000d49484452000000010000000108020000009077"
        "53de0000000c49444154789c63f8cfc0000003010100c9fe92ef0000000049454e44ae426082"
    )
    api.add_file("p", pixel)
    photo = [{"file_id": "p", "file_unique_id": "p", "width": 1, "height": 1, "file_size": len(pixel)}]

    async def talk() -> None:
        async with open_bot(serve(model)) as channel:
            api.say(ADA, ADA, photo=photo, caption="what is this?")
            await heard(api, channel)

    play(talk)
    assert texts(api, ADA) == ["a red square"]
    assert "image_url" in str(model.asked[-1].body["messages"][-1])


def test_voice_is_declined_politely(api: TelegramStandIn, open_bot: Open, serve: Any) -> None:
    model = ScriptedModel(words)

    async def talk() -> None:
        async with open_bot(serve(model)) as channel:
            api.say(ADA, ADA, voice={"file_id": "v", "file_unique_id": "v", "duration": 3, "file_size": 9})
            await heard(api, channel)

    play(talk)
    (reply,) = texts(api, ADA)
    assert "voice" in reply.lower()


def test_a_flood_is_declined_once_and_holds_up_nobody(api: TelegramStandIn, open_bot: Open, serve: Any) -> None:
    may_end = threading.Event()

    def answer(ask: Ask) -> str:
        if "start" in ask.last_user:
            assert may_end.wait(PATIENCE)
        return f"{words(ask).count('flood')} heard" if "flood" in words(ask) else words(ask)

    model = ScriptedModel(answer)
    api.private_chat(BOB)

    async def talk() -> None:
        async with open_bot(serve(model)) as channel:
            api.say(ADA, ADA, "start")
            await until(lambda: model.asked)
            for number in range(150):
                api.say(ADA, ADA, f"flood {number}")
            api.say(BOB, BOB, "and me?")
            await until(lambda: texts(api, BOB) == ["and me?"])
            may_end.set()
            await heard(api, channel)

    play(talk)
    shown = texts(api, ADA)
    assert len(shown) == 3
    assert len([one for one in shown if "more than I can take in" in one]) == 1
    assert "30 heard" in shown
    assert len(model.asked) == 3


def test_edits_and_messages_that_meet_a_busy_agent_count(api: TelegramStandIn, open_bot: Open, serve: Any) -> None:
    may_end = threading.Event()

    def answer(ask: Ask) -> str:
        if ask.last_user.startswith("one"):
            assert may_end.wait(PATIENCE)
        return words(ask)

    model = ScriptedModel(answer)

    async def talk() -> None:
        async with open_bot(serve(model)) as channel:
            api.say(ADA, ADA, "one")
            await until(lambda: model.asked)
            number = api.say(ADA, ADA, "tow")
            api.say(ADA, ADA, "three")
            api.edit(ADA, number, "two")
            await until(lambda: not api.waiting())
            may_end.set()
            await heard(api, channel)

    play(talk)
    assert texts(api, ADA) == ["one", "two\nthree"]
    assert len(model.asked) == 2


def test_commands_complete_and_work(api: TelegramStandIn, open_bot: Open, serve: Any) -> None:
    async def talk() -> None:
        async with open_bot(serve(words)) as channel:
            api.say(ADA, ADA, f"/help@{BOT_NAME}")
            await heard(api, channel)

    play(talk)
    names = {command["command"] for command in api.commands}
    wanted = {"new", "reset", "compress", "undo", "usage", "context", "history", "search", "title", "resume", "model"}
    assert wanted | {"memory", "help", "stop"} <= names
    (reply,) = texts(api, ADA)
    assert "/compress" in reply


# -- faults ------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("method", ["sendMessage", "editMessageText", "getUpdates", "sendChatAction"])
@pytest.mark.parametrize("fault", ["busy", "error", "before", "after"])
def test_a_fault_costs_at_most_an_empty_message(
    api: TelegramStandIn, open_bot: Open, serve: Any, method: str, fault: Fault
) -> None:
    model = ScriptedModel(words)
    api.faults = once(method, fault)

    async def talk() -> None:
        async with open_bot(serve(model)) as channel:
            api.say(ADA, ADA, "hello")
            await until(lambda: "hello" in texts(api, ADA))
            await heard(api, channel)

    play(talk)
    assert [text for text in texts(api, ADA) if text != "…"] == ["hello"]
    assert len(api.shown(ADA)) == (2 if (method, fault) == ("sendMessage", "after") else 1)
    assert len(model.asked) == 1


def test_a_blocked_bot_goes_on_for_others(api: TelegramStandIn, open_bot: Open, serve: Any) -> None:
    api.private_chat(BOB)

    def answer(ask: Ask) -> str:
        api.chats[ADA].refuses = "Forbidden: bot was blocked by the user"
        return words(ask)

    async def talk() -> None:
        async with open_bot(serve(answer)) as channel:
            api.say(ADA, ADA, "bye")
            await heard(api, channel)
            api.say(BOB, BOB, "hello")
            await heard(api, channel)
            api.chats[ADA].refuses = ""
            api.say(BOB, BOB, "still there?")
            await heard(api, channel)

    play(talk)
    assert texts(api, BOB) == ["hello", "still there?"]


def test_a_closed_topic_is_not_answered_elsewhere(api: TelegramStandIn, open_bot: Open, serve: Any) -> None:
    chat = api.group(FORUM, topics=(7,))

    def answer(ask: Ask) -> str:
        chat.closed.add(7)
        return words(ask)

    async def talk() -> None:
        async with open_bot(serve(answer), stream=False) as channel:
            api.say(FORUM, ADA, f"@{BOT_NAME} hello", topic=7)
            await heard(api, channel)

    play(talk)
    assert texts(api, FORUM) == []


def test_a_placeholder_that_was_deleted_is_replaced(api: TelegramStandIn, open_bot: Open, serve: Any) -> None:
    def delete(call: Call) -> Fault | None:
        if call.method == "editMessageText" and len(api.called("editMessageText")) == 1:
            api.chats[ADA].messages.pop(int(call.parameters["message_id"]))
        return None

    api.faults = delete

    async def talk() -> None:
        async with open_bot(serve(words)) as channel:
            api.say(ADA, ADA, "hello")
            await heard(api, channel)

    play(talk)
    assert texts(api, ADA) == ["hello"]


def test_a_restart_while_the_model_thinks_answers_once(
    api: TelegramStandIn, open_bot: Open, store: Store, serve: Any
) -> None:
    may_end = threading.Event()

    def answer(ask: Ask) -> str:
        if len(model.asked) == 1:
            may_end.wait(PATIENCE)
        return words(ask)

    model = ScriptedModel(answer)
    server = serve(model)

    async def talk() -> None:
        async with open_bot(server, is_killed=True):
            api.say(ADA, ADA, "hello")
            await until(lambda: model.asked)
        async with open_bot(server) as channel:
            await until(lambda: "hello" in texts(api, ADA))
            api.say(ADA, ADA, "and now?")
            await heard(api, channel)
        may_end.set()

    play(talk)
    assert [text for text in texts(api, ADA) if text != "…"] == ["hello", "and now?"]
    assert conversations(store) == 1


def test_an_update_that_comes_again_is_answered_once(api: TelegramStandIn, open_bot: Open, serve: Any) -> None:
    model = ScriptedModel(words)
    server = serve(model)

    async def talk() -> None:
        api.say(ADA, ADA, "hello")
        again = dict(api._updates[0])
        async with open_bot(server) as channel:
            await heard(api, channel)
        with api._lock:
            api._updates.append(again)
        async with open_bot(server) as channel:
            api.say(ADA, ADA, "next")
            await heard(api, channel)

    play(talk)
    assert texts(api, ADA) == ["hello", "next"]
    assert len(model.asked) == 2
