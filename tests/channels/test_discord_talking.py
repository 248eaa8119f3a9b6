"""Discord from a person's message to the answer: the real library, a real store, a model server, and kill -9."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from everlong.store import Store
from everlong.testing import Answer, Ask, Call, ScriptedModel
from tests.channels.discord_service import DiscordProgram, serving
from tests.channels.discord_stand_in import DiscordStandIn, Fault, discord_stand_in
from tests.waiting import PATIENCE, until


@pytest.fixture
def discord() -> Iterator[DiscordStandIn]:
    with discord_stand_in() as running:
        yield running


@pytest.fixture
def ada(discord: DiscordStandIn) -> str:
    return discord.add_person("ada")


@pytest.fixture
def chat(discord: DiscordStandIn, ada: str) -> str:
    return discord.add_private_chat(ada)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store.db"


def echo(ask: Ask) -> str:
    """Answer with what the person said, without the note behind it."""
    return "You said: " + " / ".join(_said(ask.last_user))


def _said(prompt: str) -> list[str]:
    return [line for line in prompt.splitlines() if line.strip() and not line.startswith("[")]


def answers(discord: DiscordStandIn, chat: str, count: int) -> list[str]:
    """Return the bot's messages of a chat, once there are so many and none is empty."""

    def found() -> list[str]:
        shown = discord.posted(chat)
        return shown if len(shown) >= count and not any(not text or text.endswith("…") for text in shown) else []

    return until(found)


def requests_to(discord: DiscordStandIn, *channels: str) -> list[str]:
    """Return what the bot asked for in some channels, apart from reading."""
    asked = [request for request in discord.requests if request.method != "GET"]
    return [request.path for request in asked if any(channel in request.path for channel in channels)]


def test_messages_are_answered_once_across_a_reconnect_and_a_restart(
    discord: DiscordStandIn, ada: str, chat: str, path: Path, serve: Any
) -> None:
    model = ScriptedModel(echo)
    server = serve(model)
    with serving(discord, path, server.openai_url):
        discord.say(ada, chat, "one")
        answers(discord, chat, 1)
        discord.gateway.is_silent = True
        discord.call(discord.gateway.ask_to_reconnect)
        discord.say(ada, chat, "two")
        discord.gateway.is_silent = False
        answers(discord, chat, 2)
    discord.say(ada, chat, "three")
    discord.say(ada, chat, "four")
    with serving(discord, path, server.openai_url):
        shown = answers(discord, chat, 3)
        discord.say(ada, chat, "five")
        shown = answers(discord, chat, len(shown) + 1)
    words = " / ".join(text.removeprefix("You said: ") for text in shown)
    assert words.split(" / ") == ["one", "two", "three", "four", "five"]
    assert len(model.asked) == len(shown)
    with Store.open(path) as store:
        assert store.conversations.count() == 1
        assert store.verify().problems == []


def test_threads_are_kept_apart(discord: DiscordStandIn, ada: str, path: Path, serve: Any) -> None:
    room = discord.add_channel(discord.add_guild())
    threads = [discord.add_thread(room), discord.add_thread(room, is_told=False)]
    places = [room, *threads]
    server = serve(lambda ask: " | ".join(_said(turn.text)[0] for turn in ask.turns if turn.role == "user"))
    with serving(discord, path, server.openai_url):
        for round_ in ("first", "second"):
            for number, place in enumerate(places):
                discord.say(ada, place, f"{round_} {number}", mentions=True)
            for place in places:
                answers(discord, place, 1 if round_ == "first" else 2)
    for number, place in enumerate(places):
        assert discord.posted(place) == [f"first {number}", f"first {number} | second {number}"]
        replied = [message["message_reference"]["message_id"] for message in discord.posted_messages(place)]
        asked = [key for key, message in discord.messages[place].items() if message["author"]["id"] == ada]
        assert replied == asked


def test_edits_and_deletions_of_waiting_messages_count(
    discord: DiscordStandIn, ada: str, chat: str, path: Path, serve: Any
) -> None:
    is_free = threading.Event()

    def slow(ask: Ask) -> str:
        if "long work" in ask.last_user:
            is_free.wait(PATIENCE)
        return echo(ask)

    model = ScriptedModel(slow)
    server = serve(model)
    with serving(discord, path, server.openai_url, stream=False):
        discord.say(ada, chat, "long work")
        until(lambda: model.asked)
        second = discord.say(ada, chat, "sceond")
        third = discord.say(ada, chat, "not meant for you")
        discord.edit_message(second, "second")
        discord.delete_message(third)
        with Store.open(path) as store:
            _until_stored(store, 5)
        is_free.set()
        shown = answers(discord, chat, 2)
    assert shown == ["You said: long work", "You said: second"]
    assert not any("not meant" in ask.text for ask in model.asked)


def _until_stored(store: Store, count: int) -> None:
    def counted() -> bool:
        with store.database.read() as connection:
            return int(connection.exec_driver_sql("SELECT count(*) FROM channel_update").scalar() or 0) >= count

    until(counted)


def test_a_command_is_answered_where_discord_waits_for_it(
    discord: DiscordStandIn, ada: str, chat: str, path: Path, serve: Any
) -> None:
    server = serve(echo)
    with serving(discord, path, server.openai_url):
        until(lambda: discord.commands)
        made = discord.run_command(ada, chat, "help")
        shown = answers(discord, chat, 1)
        assert made.is_answered
    assert len(shown) == 1
    assert "/compress" in shown[0]
    assert discord.posted_messages(chat)[0]["interaction_metadata"]["id"] == made.id
    assert {"new", "compress", "undo", "help"} <= {command["name"] for command in discord.commands}


def test_only_the_person_who_asked_may_press(discord: DiscordStandIn, ada: str, path: Path, serve: Any) -> None:
    bea = discord.add_person("bea")
    room = discord.add_channel(discord.add_guild())

    def careful(ask: Ask) -> Answer:
        if ask.results:
            return Answer(f"Done: {'refused' not in ask.results[-1][1].lower()}")
        return Answer("", [Call("write_file", {"path": "note.txt", "content": "words"}, "call_1")])

    server = serve(careful)
    with serving(discord, path, server.openai_url, stream=False):
        discord.say(ada, room, "write a note", mentions=True)
        question = until(lambda: _with_buttons(discord, room))
        label = question["components"][0]["components"][0]["label"]
        foreign = discord.press(bea, question["id"], label)
        until(lambda: foreign.is_answered)
        assert _with_buttons(discord, room), "the question is still open"
        assert foreign.shown, "only she sees that it is not for her"
        discord.press(ada, question["id"], label)
        until(lambda: "Done: True" in discord.posted(room))


def _with_buttons(discord: DiscordStandIn, channel: str) -> dict[str, Any]:
    return next((message for message in discord.posted_messages(channel) if message["components"]), {})


def test_strangers_bots_and_foreign_servers_get_nothing(
    discord: DiscordStandIn, ada: str, chat: str, path: Path, serve: Any
) -> None:
    stranger = discord.add_person("mallory")
    robot = discord.add_person("robot")
    discord.people[robot]["bot"] = True
    private = discord.add_private_chat(stranger)
    foreign = discord.add_channel(discord.add_guild("somewhere else"))
    model = ScriptedModel(echo)
    server = serve(model)
    with serving(discord, path, server.openai_url, users=[ada, robot]):
        discord.say(stranger, private, "let me in")
        discord.say(stranger, private, "x" * 4_000)
        discord.say(stranger, foreign, "hello?", mentions=True)
        discord.say(robot, foreign, "I am a bot", mentions=True)
        command = discord.run_command(stranger, foreign, "memory")
        message = discord.say(stranger, private, "gone")
        discord.edit_message(message, "changed")
        discord.delete_message(message)
        discord.say(ada, chat, "hello")
        assert answers(discord, chat, 1) == ["You said: hello"]
    assert requests_to(discord, private, foreign) == []
    assert not command.is_answered
    assert len(model.asked) == 1
    with Store.open(path) as store, store.database.read() as connection:
        stored = connection.exec_driver_sql("SELECT count(*) FROM channel_update").scalar()
    assert stored == 1


def test_a_forwarded_command_is_words(discord: DiscordStandIn, ada: str, chat: str, path: Path, serve: Any) -> None:
    model = ScriptedModel("I see.")
    shot = {"type": 0, "content": "/new", "embeds": [], "attachments": [], "timestamp": "2026-01-01T00:00:00+00:00"}
    server = serve(model)
    with serving(discord, path, server.openai_url):
        discord.say(
            ada,
            chat,
            "",
            message_snapshots=[{"message": {**shot, "edited_timestamp": None, "flags": 0}}],
            message_reference={"type": 1, "message_id": "1", "channel_id": "1"},
        )
        assert answers(discord, chat, 1) == ["I see."]
    assert len(model.asked) == 1


def test_the_limits_of_discord_are_kept_with_a_long_answer(
    discord: DiscordStandIn, ada: str, chat: str, path: Path, serve: Any
) -> None:
    for kind in ("POST messages", "PATCH messages"):
        discord.limits[kind] = (2, 0.4)
    text = "\n\n".join(f"Paragraph {number}: " + "word " * 60 for number in range(20))
    server = serve(text)
    with serving(discord, path, server.openai_url):
        discord.say(ada, chat, "tell me everything")
        shown = answers(discord, chat, 4)
    assert discord.refused_for_speed == 0
    assert all(len(piece) <= 2_000 for piece in shown)
    assert [f"Paragraph {number}:" in "\n".join(shown) for number in range(20)] == [True] * 20


def test_a_kill_between_sending_and_storing_leaves_one_answer(
    discord: DiscordStandIn, ada: str, chat: str, path: Path, serve: Any
) -> None:
    model = ScriptedModel(echo)
    server = serve(model)
    discord.faults.append(Fault("POST", "/messages", delay=5.0))
    program = DiscordProgram(discord, path, server.openai_url, stream=False)
    try:
        discord.say(ada, chat, "hello")
        until(lambda: discord.posted(chat))  # Discord has it; the program does not know yet
    finally:
        program.kill()
    discord.say(ada, chat, "are you there?")
    _end_lease(path)
    with serving(discord, path, server.openai_url):
        shown = answers(discord, chat, 2)
    assert shown == ["You said: hello", "You said: are you there?"]
    assert len(model.asked) == 2


def _end_lease(path: Path) -> None:
    """Let the minute pass after which the right of a killed process ends."""
    with Store.open(path) as store:
        store.database.write(lambda connection: connection.exec_driver_sql("DELETE FROM lease"))
