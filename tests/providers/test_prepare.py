"""A call's own changes to body and headers: ``prepare`` has the last word, and cache markers reach the API."""

from __future__ import annotations

from typing import Any

import pytest

from everlong import Message, PromptCache
from everlong.model import EPHEMERAL
from everlong.providers import connect
from tests.api_rules.faults import ManualClock
from tests.providers.conftest import asked
from tests.testing_server.conftest import KEY, Serve

SYSTEM: Message = {"role": "system", "content": "Keep the harbour's books. " * 200}
HELLO: Message = {"role": "user", "content": "Which berths are free?"}
SCHEMA = {"type": "object", "properties": {}}
TOOLS = [{"type": "function", "function": {"name": "berths", "description": "List berths", "parameters": SCHEMA}}]
both_ways = pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])


def markers_of(value: Any) -> list[Any]:
    """Every cache marker of a body, in its order."""
    if isinstance(value, dict):
        own = [value["cache_control"]] if "cache_control" in value else []
        return own + [marker for item in value.values() for marker in markers_of(item)]
    return [marker for item in value for marker in markers_of(item)] if isinstance(value, list) else []


@pytest.mark.spec("6.3")
@both_ways
def test_markers_for_claude_at_openrouter_arrive_on_parts_with_the_sessions_name(serve: Serve, streamed: bool) -> None:
    server = serve("All of them.", dialect="openrouter")
    provider = connect("openrouter:anthropic/claude-sonnet-5", base_url=server.openai_url, api_key=KEY)
    cache = PromptCache(provider.model, provider.name, session_id="harbour-7", clock=ManualClock())
    call: Message = {"role": "assistant", "content": None}
    call["tool_calls"] = [{"id": "call_1", "type": "function", "function": {"name": "berths", "arguments": "{}"}}]
    result: Message = {"role": "tool", "tool_call_id": "call_1", "content": "seven and nine"}
    asked(provider, [SYSTEM, HELLO, call, result], streamed=streamed, tools=TOOLS, prepare=cache.apply)
    provider.close()
    assert provider.takes_markers
    sent = server.requests[0].body
    assert sent["session_id"] == "harbour-7"
    assert sent["messages"][0]["content"][-1]["cache_control"] == {"type": "ephemeral"}
    assert sent["messages"][-1]["content"] == [
        {"type": "text", "text": "seven and nine", "cache_control": {"type": "ephemeral"}}
    ]
    assert not any("cache_control" in message for message in sent["messages"])
    assert server.rejections == []


@both_ways
@pytest.mark.parametrize("where", ["message", "part"])
@pytest.mark.parametrize("model", ["anthropic:claude-sonnet-5", "openrouter:anthropic/claude-sonnet-5"])
def test_what_belongs_to_one_request_only_is_sent_and_nothing_from_it_on_is_marked(
    serve: Serve, model: str, where: str, streamed: bool
) -> None:
    server = serve("All of them.", dialect="openrouter", alternate_roles=True)
    url = server.url if model.startswith("anthropic:") else server.openai_url
    provider = connect(model, base_url=url, api_key=KEY)
    noon: Message = {"type": "text", "text": "It is noon."}
    once: Message = {"role": "user", "content": [noon if where == "message" else {**noon, EPHEMERAL: True}]}
    if where == "message":
        once[EPHEMERAL] = True
    cache = PromptCache(provider.model, provider.name, clock=ManualClock())
    for prepare in (None, cache.apply):
        asked(provider, [SYSTEM, HELLO, once], streamed=streamed, tools=TOOLS, prepare=prepare)
    provider.close()
    assert server.rejections == []
    plain, placed = (record.body["messages"] for record in server.requests)
    assert EPHEMERAL not in repr(server.requests)
    assert markers_of(plain) == []
    parts = [part for message in placed for part in message["content"] if message["role"] == "user"]
    assert [(part["text"], "cache_control" in part) for part in parts] == [
        (HELLO["content"], True),
        ("It is noon.", False),
    ]
