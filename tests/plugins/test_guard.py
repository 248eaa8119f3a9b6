"""The guard around an engine: what passes through it, what is kept from the host, and what the host keeps from it."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from typing import Any

import pytest

from everlong.agent.watch import Interrupted
from everlong.config import Settings
from everlong.context import ContextCompressor, ContextEngine
from everlong.errors import PluginError, TargetUnreachable
from everlong.model import Message
from everlong.plugins import checking
from everlong.plugins.engines import adopt
from everlong.plugins.guard import GuardedEngine
from everlong.plugins.host import Host
from everlong.store import views

TALK = "The pilot boat reports wind from the west and a swell of two metres at the outer buoy. " * 4


class Plain(ContextEngine):
    """Keeps the system prompt and the last two messages."""

    threshold_tokens = 1_000

    @property
    def name(self) -> str:
        return "plain"

    def update_from_response(self, usage: dict[str, Any]) -> None:
        self.last_prompt_tokens = int(usage.get("prompt_tokens", 0))

    def should_compress(self, prompt_tokens: int | None = None) -> bool:
        return (prompt_tokens or self.last_prompt_tokens) >= self.threshold_tokens

    def compress(
        self, messages: list[Message], current_tokens: int | None = None, focus_topic: str | None = None
    ) -> list[Message]:
        del current_tokens, focus_topic
        return [messages[0], *messages[-2:]]


def conversation(turns: int = 12) -> list[Message]:
    said: list[Message] = [{"role": "system", "content": "Be brief."}]
    for number in range(turns):
        said.append({"role": "user", "content": f"Question {number}: {TALK}"})
        said.append({"role": "assistant", "content": f"Answer {number}: {TALK}"})
    return said


def guarded(engine: Any, *, warned: list[str] | None = None, host: Host | None = None) -> GuardedEngine:
    warn = (warned if warned is not None else []).append
    return GuardedEngine(engine, lambda: ContextCompressor(8_000), warn=warn, host=host)


def with_compress(compress: Callable[[list[Message]], Any]) -> Plain:
    class Changed(Plain):
        def compress(self, messages: list[Message], *_: Any, **__: Any) -> list[Message]:
            found: list[Message] = compress(messages)
            return found

    return Changed()


def test_the_stores_marks_are_hidden_from_the_engine_and_put_back() -> None:
    messages = [{**message, checking.TAG: f"n{place}"} for place, message in enumerate(conversation())]
    seen: list[Message] = []

    def look(given: list[Message]) -> list[Message]:
        seen.extend(given)
        given[-1]["content"] = "shorter"
        return [given[0], *given[-2:]]

    result = guarded(with_compress(look)).compress(messages)
    assert not any(checking.TAG in message for message in seen)
    assert [message[checking.TAG] for message in result] == ["n0", "n23", "n24"]
    assert result[-1]["content"] == "shorter"
    assert messages[-1]["content"] != "shorter"
    assert checking.TAG == views.TAG


def test_words_in_parts_are_one_text_to_the_engine_and_parts_again_where_they_come_back() -> None:
    recalled = [{"type": "text", "text": "Which berth?"}, {"type": "text", "text": "Recalled: berth nine."}]
    picture = [{"type": "text", "text": "What is this?"}, {"type": "image_url", "image_url": {"url": "data:,"}}]
    marked = [{"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral"}}]
    messages: list[Message] = [{"role": "system", "content": marked}, *conversation()[1:]]
    messages += [{"role": "user", "content": picture}, {"role": "user", "content": recalled}]
    seen: dict[str, list[Message]] = {}

    class Looking(Plain):
        def should_compress_preflight(self, messages: list[Message]) -> bool:
            seen["preflight"] = messages
            return False

        def compress(self, messages: list[Message], *_: Any, **__: Any) -> list[Message]:
            seen["compress"] = messages
            return [messages[0], *messages[-2:]]

        def handle_tool_call(self, name: str, args: dict[str, Any], **kwargs: Any) -> str:
            seen[name] = kwargs["messages"]
            return json.dumps(args)

        def on_session_end(self, session_id: str, messages: list[Message]) -> None:
            seen[session_id] = messages

    engine = guarded(Looking())
    engine.should_compress_preflight(messages)
    engine.handle_tool_call("tool", {}, messages=messages)
    engine.on_session_end("end", messages)
    assert engine.compress(messages) == [messages[0], *messages[-2:]]
    assert set(seen) == {"preflight", "compress", "tool", "end"}
    for given in seen.values():
        assert given[-1]["content"] == "Which berth?\nRecalled: berth nine."
        assert [given[0]["content"], given[-2]["content"]] == [marked, picture]


def test_a_target_is_reached_even_where_the_engine_knows_none() -> None:
    messages = conversation(40)
    engine = guarded(with_compress(lambda given: given))
    result = engine.compress(messages, target_tokens=3_000)
    assert engine.estimate_tokens(result) <= 3_000
    with pytest.raises(TargetUnreachable):
        engine.compress(messages, target_tokens=1)


def test_an_engine_of_no_base_class_is_an_engine() -> None:
    class Duck:
        name = "duck"
        update_from_response = Plain.update_from_response
        should_compress = Plain.should_compress
        compress = Plain.compress
        last_prompt_tokens = 0
        threshold_tokens = 10

    engine = guarded(adopt(Duck()))
    messages = conversation()
    assert engine.compress(messages) == [messages[0], *messages[-2:]]
    assert engine.get_tool_schemas() == []
    assert engine.get_status()["engine"] == "duck"
    engine.on_session_start("one", platform="cli")
    engine.on_session_end("one", messages)
    with pytest.raises(PluginError, match="lacks update_from_response, should_compress, compress"):
        adopt(type("Stub", (), {"name": "stub"})())


@pytest.mark.parametrize("value", [None, "many", -1, float("nan"), True, [5]])
def test_a_figure_that_makes_no_sense_is_not_believed(value: Any) -> None:
    class Odd(Plain):
        threshold_tokens = value
        context_length = value

    engine = guarded(Odd())
    engine.update_from_response({"prompt_tokens": 50})
    assert engine.context_length == 8_000
    assert engine.threshold_tokens == ContextCompressor(8_000).threshold_tokens


@pytest.mark.parametrize("offered", [5, ["x"], [{"description": "nameless"}], {"name": "not a list"}])
def test_tools_that_cannot_be_offered_are_left_out(offered: Any) -> None:
    class Tooled(Plain):
        def get_tool_schemas(self) -> list[dict[str, Any]]:
            found: list[dict[str, Any]] = offered
            return found

    warned: list[str] = []
    assert guarded(Tooled(), warned=warned).get_tool_schemas() == []
    assert len(warned) == 1


def test_the_hosts_own_interrupt_passes_through() -> None:
    def stop(_: list[Message]) -> list[Message]:
        raise Interrupted

    with pytest.raises(Interrupted):
        guarded(with_compress(stop)).compress(conversation())


def test_a_compaction_can_be_interrupted_while_the_engine_is_at_it() -> None:
    busy, released = threading.Event(), threading.Event()

    def work(given: list[Message]) -> list[Message]:
        busy.set()
        released.wait()
        return given

    def check() -> None:
        if busy.is_set():
            raise Interrupted

    engine = guarded(with_compress(work), host=Host(Settings(), check=check))
    with pytest.raises(Interrupted):
        engine.compress(conversation())
    released.set()
    assert not engine.is_off
    assert engine.get_status()["engine"] == "plain"  # it is there again
