from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from everlong.channels.commands import CHANNEL_COMMANDS
from everlong.channels.platform import Person, Place
from everlong.store import Store
from everlong.testing import Answer, Ask, Call, ScriptedModel
from tests.channels.conftest import Opened, hear
from tests.channels.recorder import ADA, RecordingPlatform
from tests.channels.test_queueing import words

HERE = Place("telegram", "10")


@pytest.mark.spec("8", "11")
async def test_the_commands_of_the_chat_work_in_a_channel(
    opened: Opened, platform: RecordingPlatform, store: Store, serve: Any
) -> None:
    server = serve(words)

    async def say(channel: Any, text: str) -> str:
        await hear(channel, platform.message(text))
        return platform.texts()[-1]

    async with opened(server, platform) as channel:
        assert "/compress [focus]" in await say(channel, "/help")
        await say(channel, "The harbour opens at nine")
        assert "window" in await say(channel, "/context")
        assert "calls" in await say(channel, "/usage")
        assert await say(channel, "/usage all") == "say /usage"
        assert "nothing was compacted" in await say(channel, "/history")
        assert "harbour" in await say(channel, "/search harbour")
        assert "Ships and boats" in await say(channel, "/title\nShips and boats")
        assert "Ships" in await say(channel, "/title Ships")
        assert "tokens" in await say(channel, "/model")
        assert "nothing to compact" in await say(channel, "/compress")
        assert "remembered" in await say(channel, "/memory")
        assert "taken back" in await say(channel, "/undo")
        assert "there is no command /fly" in await say(channel, "/fly")
        assert "A new conversation" in await say(channel, "/new")
        assert "Ships" in await say(channel, "/resume")
        assert "This goes on: Ships" in await say(channel, "/resume Ships")
    assert {one.name for one in CHANNEL_COMMANDS} >= {"new", "reset", "stop", "help", "search", "resume", "model"}
    assert store.verify().problems == []


async def test_only_people_who_are_let_in_by_name_choose_the_model_of_a_group(
    opened: Opened, platform: RecordingPlatform, serve: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTHER_API_KEY", "made-up")
    server = serve(words)
    member = Person("7", "Mallory")
    settings = {"channels": {"telegram": {"users": ["1"], "chats": ["10"]}}}
    more = {"providers": {"other": {"base_url": server.openai_url, "key_variable": "OTHER_API_KEY"}}}
    async with opened(server, platform, **settings, **more) as channel:

        async def say(text: str, person: Person) -> str:
            await hear(channel, platform.message(text, person=person, is_private=False))
            return platform.texts()[-1]

        await say("hello", member)
        assert "tokens" in await say("/model", member)
        assert "let in by name" in await say("/model other:custom-model", member)
        assert channel.places.get(HERE).model is None
        assert "now with" in await say("/model other:custom-model", ADA)
        assert channel.places.get(HERE).model == "other:custom-model"
        assert channel.access.admit(platform.message(channel.access.make_code(), "77", member))
        assert "now with" in await say("/model other:custom-model", member)


@pytest.mark.parametrize("engine", ["compressor", "lcm"])
async def test_nobody_finds_or_resumes_the_conversation_of_another_chat(
    engine: str, opened: Opened, platform: RecordingPlatform, serve: Any
) -> None:
    tool = "lcm_grep" if engine == "lcm" else "search_sessions"

    def say(ask: Ask) -> Answer | str:
        if ask.results:
            return ask.results[-1][1]
        if "look up" in ask.last_user:
            return Answer("", [Call(tool, {"query": "treasure", **({"scope": "all"} if engine == "lcm" else {})})])
        return words(ask)

    server = serve(ScriptedModel(say))
    async with opened(server, platform, context={"engine": engine}) as channel:
        await hear(channel, platform.message("The treasure is on Mauritius", "20"))
        secret = channel.places.get(Place("telegram", "20")).conversation
        for text in (
            "hello",
            "/search treasure",
            "/resume",
            f"/resume {secret}",
            "/resume The treasure",
            "look up",
        ):
            await hear(channel, platform.message(text, "10"))
        assert channel.places.get(HERE).conversation != secret
    assert not any("Mauritius" in text for text in platform.texts("10"))
    assert "nothing was found" in platform.texts("10")[1]


@pytest.mark.spec("12.8")
async def test_a_forgotten_conversation_leaves_nothing_in_channels(
    opened: Opened, platform: RecordingPlatform, store: Store, serve: Any, tmp_path: Path
) -> None:
    from everlong.channels.platform import Attachment  # noqa: PLC0415 - only here

    server = serve(ScriptedModel("noted"))
    platform.files["t"] = b"the cellar key"
    async with opened(server, platform) as channel:
        document = Attachment("document", "key.txt", "text/plain", 14, "t")
        await hear(channel, platform.message("The cellar is green", attachments=(document,)))
        bound = channel.places.get(HERE).conversation
        received = tmp_path / "home" / "channels" / "telegram" / "10" / "received"
        assert len(list(received.iterdir())) == 1
        store.conversations.forget(str(bound))
        assert list(received.iterdir()) == []
        record = channel.places.get(HERE)
        assert (record.conversation, channel.places.conversations(HERE)) == (None, [])
        await hear(channel, platform.message("hello again"))
        assert platform.texts() == ["noted", "noted"]
    store.database.close()
    assert b"cellar" not in (tmp_path / "store.db").read_bytes()
