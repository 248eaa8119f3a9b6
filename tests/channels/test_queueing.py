from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from everlong.channels import service
from everlong.channels.platform import Place
from everlong.testing import Ask, ScriptedModel
from tests.channels.conftest import ON_BOTH_DATABASES, Opened, hear, until
from tests.channels.recorder import RecordingPlatform
from tests.waiting import PATIENCE

if TYPE_CHECKING:
    import pytest

pytestmark = ON_BOTH_DATABASES
HERE = Place("telegram", "10")


def words(ask: Ask) -> str:
    """The newest message without the note behind it."""
    return "\n".join(line for line in ask.last_user.splitlines() if line and not line.startswith("["))


class Busy:
    """A model whose first answer waits until it may end."""

    def __init__(self, answer: Callable[[Ask], Any] = words) -> None:
        self.may_end = threading.Event()
        self.answer = answer
        self.model = ScriptedModel(self._say)

    def _say(self, ask: Ask) -> Any:
        if len(self.model.asked) == 1:
            assert self.may_end.wait(PATIENCE)
        return self.answer(ask)


async def test_messages_that_meet_a_busy_agent_are_answered_together(
    opened: Opened, platform: RecordingPlatform, serve: Any
) -> None:
    busy = Busy()
    server = serve(busy.model)
    async with opened(server, platform) as channel:
        await channel.receive(platform.message("one"))
        await until(lambda: busy.model.asked)
        for text in ("two", "three", "four"):
            await channel.receive(platform.message(text))
        busy.may_end.set()
        await channel.settle()
    assert platform.texts() == ["one", "two\nthree\nfour"]
    assert len(busy.model.asked) == 2


async def test_stop_ends_a_turn_and_the_next_message_is_answered(
    opened: Opened, platform: RecordingPlatform, serve: Any
) -> None:
    busy = Busy()
    server = serve(busy.model)
    async with opened(server, platform) as channel:
        await channel.receive(platform.message("a long piece of work"))
        await until(lambda: busy.model.asked)
        await hear(channel, platform.message("/stop"))
        assert platform.texts() == ["(Stopped.)"]
        busy.may_end.set()
        await hear(channel, platform.message("go on"))
        assert platform.texts() == ["(Stopped.)", "go on"]
        await hear(channel, platform.message("/stop"))
        assert platform.texts()[-1] == "Nothing is running."


async def test_a_flood_gets_one_word_and_what_was_taken_is_answered(
    opened: Opened, platform: RecordingPlatform, serve: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service, "QUEUE_MESSAGES", 5)
    busy = Busy()
    server = serve(busy.model)
    async with opened(server, platform) as channel:
        await channel.receive(platform.message("first"))
        await until(lambda: busy.model.asked)
        for number in range(200):
            await channel.receive(platform.message(f"m{number}"))
        await channel.receive(platform.message("/help", callback="c"))
        busy.may_end.set()
        await channel.settle()
    texts = platform.texts()
    assert ["more than I can take in" in text for _, text in platform.acknowledged] == [True]
    assert len([text for text in texts if "more than I can take in" in text]) == 1
    assert "m0\nm1\nm2\nm3\nm4" in texts
    assert len(texts) == 3
