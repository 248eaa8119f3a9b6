"""Discord from a person's message to the answer: the real library, a real store, a model server, and kill -9."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from everlong.store import Store
from everlong.testing import Answer, Ask, Call, ScriptedModel
from tests.channels.discord_service import DiscordProgram, serving
from tests.channels.discord_stand_in import DiscordStandIn, Fault
from tests.waiting import until


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
    with serving(discord, path, server.openai_url):
        discord.say(ada, chat, "three")
        shown = answers(discord, chat, 3)
    assert shown == ["You said: one", "You said: two", "You said: three"]
    assert len(model.asked) == len(shown)
    with Store.open(path) as store:
        assert store.conversations.count() == 1
        assert store.verify().problems == []


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
        discord.say(ada, chat, "hello")
        assert answers(discord, chat, 1) == ["You said: hello"]
    assert requests_to(discord, private, foreign) == []
    assert not command.is_answered
    assert len(model.asked) == 1
    with Store.open(path) as store, store.database.read() as connection:
        stored = connection.exec_driver_sql("SELECT count(*) FROM channel_update").scalar()
    assert stored == 1


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
    _end_lease(path)
    with serving(discord, path, server.openai_url):
        discord.say(ada, chat, "are you there?")
        shown = answers(discord, chat, 2)
    assert shown == ["You said: hello", "You said: are you there?"]
    assert len(model.asked) == 2


def _end_lease(path: Path) -> None:
    """Let the minute pass after which the right of a killed process ends."""
    with Store.open(path) as store:
        store.database.write(lambda connection: connection.exec_driver_sql("DELETE FROM lease"))
