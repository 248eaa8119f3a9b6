"""Resets end a session once, for engine and memory, also when a kill comes between; putting an agent away ends none."""

from __future__ import annotations

from typing import Any

import pytest

from everlong.channels.platform import Place
from everlong.context import ContextCompressor
from everlong.memory import manager
from everlong.model import Message
from everlong.store import Store
from everlong.testing import Answer, Ask, Call, ScriptedModel
from tests.channels.conftest import ON_SQLITE_AND_IN_SOAK_ON_BOTH, Opened, hear
from tests.channels.recorder import RecordingPlatform
from tests.channels.test_queueing import words
from tests.memory.providers import Diary

pytestmark = ON_SQLITE_AND_IN_SOAK_ON_BOTH
HERE = Place("telegram", "10")


class Killed(BaseException):
    """Ends the work of a place as a kill does: nothing after it is stored."""


class Ends:
    """The session ends that engines were told of."""

    def __init__(self) -> None:
        self.told: list[tuple[str, list[str]]] = []

    def engines(self) -> dict[str, Any]:
        ends = self

        class Listening(ContextCompressor):
            def on_session_end(self, session_id: str, messages: list[Message]) -> None:
                ends.told.append((session_id, [message["role"] for message in messages]))

        return {"listening": Listening}


@pytest.fixture
def ends() -> Ends:
    return Ends()


@pytest.fixture
def diary(monkeypatch: pytest.MonkeyPatch) -> Diary:
    """An external memory provider, as an installed package offers one."""
    made = Diary()
    monkeypatch.setattr("everlong.memory.manager.external_provider", lambda *_: made)
    return made


def say(ask: Ask) -> Answer | str:
    """Answer a flush with a note for the diary, anything else with the words of the person."""
    if "worth keeping" in ask.last_user:
        return Answer("", [Call("diary_write", {"text": "They live in Vienna"})])
    return words(ask).splitlines()[0]


@pytest.fixture(autouse=True)
def _short_sessions_are_flushed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(manager, "FLUSH_MIN_TURNS", 1)


@pytest.mark.spec("1.4", "7.3")
@pytest.mark.parametrize("way", ["/new", "/reset"])
async def test_a_reset_tells_engine_and_memory_once_and_flushes(
    opened: Opened,
    platform: RecordingPlatform,
    serve: Any,
    ends: Ends,
    diary: Diary,
    way: str,
) -> None:
    about: dict[str, Any] = {
        "memory": {"enabled": True, "provider": "diary"},
        "context": {"engine": "listening"},
    }
    server = serve(ScriptedModel(say))
    async with opened(server, platform, engines=ends.engines(), **about) as channel:
        for text in ("I live in Vienna", "two"):
            await hear(channel, platform.message(text))
        before = channel.places.get(HERE).conversation
        assert ends.told == []
        await hear(channel, platform.message(way))
        await hear(channel, platform.message("three"))
        assert channel.places.get(HERE).conversation != before
        assert ends.told == [(before, ["system", "user", "assistant", "user", "assistant"])]
    assert len(ends.told) == 1
    kinds = [call[0] for call in diary.calls]
    assert kinds.count("on_session_end") == 1
    assert ("on_session_end", 5) in diary.calls
    assert ("diary_write", {"text": "They live in Vienna"}) in diary.calls
    assert kinds.index("diary_write") < kinds.index("on_session_end")


@pytest.mark.parametrize("way", ["/new", "/reset"])
async def test_a_kill_when_the_session_has_just_ended_leads_to_one_new_conversation_and_one_word(
    opened: Opened, platform: RecordingPlatform, store: Store, serve: Any, ends: Ends, way: str
) -> None:
    about: dict[str, Any] = {"context": {"engine": "listening"}}
    server = serve(ScriptedModel(say))

    def kill(*_: Any, **__: Any) -> Any:
        raise Killed

    async with opened(server, platform, engines=ends.engines(), **about) as channel:
        await hear(channel, platform.message("one"))
        before = str(channel.places.get(HERE).conversation)
        channel.outbox.finish = kill  # type: ignore[method-assign]
        await hear(channel, platform.message(way))
        assert platform.texts() == ["one"]
        assert store.conversations.parts(before)[-1].end_reason == "reset"
    async with opened(server, platform, engines=ends.engines(), **about) as channel:
        await channel.settle()
        await hear(channel, platform.message("two"))
        assert channel.places.get(HERE).conversation != before
    texts = platform.texts()
    assert [texts[0], texts[2]] == ["one", "two"]
    assert len(texts) == 3
    assert f"/resume {before}" in texts[1]
    assert "ew conversation" in texts[1]
    assert [session for session, _ in ends.told] == [before]
    assert len(store.conversations.newest(5)) == 2
    assert store.verify().problems == []


@pytest.mark.parametrize("way", ["/new", "/reset"])
async def test_what_a_reset_saved_to_memory_is_in_the_next_prompt(
    opened: Opened, platform: RecordingPlatform, serve: Any, way: str
) -> None:
    asked: list[Ask] = []

    def answer(ask: Ask) -> Answer | str:
        asked.append(ask)
        if "worth keeping" in ask.last_user:
            return Answer("", [Call("memory_add", {"text": "They live in Vienna."})])
        return "Noted."

    async with opened(serve(answer), platform, memory={"enabled": True}) as channel:
        await hear(channel, platform.message("I live in Vienna"))
        assert "They live in Vienna." not in asked[0].system
        await hear(channel, platform.message(way))
        await hear(channel, platform.message("Where do I live?"))
    assert "Where do I live?" in asked[-1].last_user
    assert "They live in Vienna." in asked[-1].system
