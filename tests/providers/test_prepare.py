"""A call's own changes to body and headers: ``prepare`` has the last word, and cache markers reach the API."""

from __future__ import annotations

from typing import Any

import pytest

from everlong import ContextCompressor, Message, PromptCache
from everlong.model import EPHEMERAL
from everlong.providers import completer, connect, summarizer_for
from everlong.testing import Answer, Ask
from tests.api_rules.faults import ManualClock
from tests.context.builders import long_session
from tests.context.scripted import GOOD
from tests.providers.conftest import APIS, Connect, asked
from tests.providers.test_auxiliary import main_model, settings
from tests.testing_server.conftest import KEY, Serve

SYSTEM: Message = {"role": "system", "content": "Keep the harbour's books. " * 200}
HELLO: Message = {"role": "user", "content": "Which berths are free?"}
SCHEMA = {"type": "object", "properties": {}}
TOOLS = [{"type": "function", "function": {"name": "berths", "description": "List berths", "parameters": SCHEMA}}]
both_apis = pytest.mark.parametrize("api", APIS)
both_ways = pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
Body = dict[str, Any]


def markers_of(value: Any) -> list[Any]:
    """Every cache marker of a body, in its order."""
    if isinstance(value, dict):
        own = [value["cache_control"]] if "cache_control" in value else []
        return own + [marker for item in value.values() for marker in markers_of(item)]
    return [marker for item in value for marker in markers_of(item)] if isinstance(value, list) else []


@both_apis
@both_ways
def test_prepare_sees_the_whole_body_and_what_it_returns_is_sent(
    serve: Serve, connected: Connect, api: str, streamed: bool
) -> None:
    seen: list[Body] = []

    def prepare(body: Body) -> Body:
        seen.append(body)
        return {**body, "metadata": {"user_id": "ada"}}

    server = serve("All of them.")
    options = {"temperature": 0.5}
    provider = connected(api, server)
    asked(provider, [SYSTEM, HELLO], streamed=streamed, tools=TOOLS, max_tokens=50, options=options, prepare=prepare)
    names = {"model", "messages", "tools", "temperature"}
    own = {"system", "max_tokens"} if api == "anthropic" else {"max_completion_tokens"}
    assert [body.keys() for body in seen] == [names | own]
    sent = server.requests[0].body
    assert sent["metadata"] == {"user_id": "ada"}
    assert {name: sent[name] for name in seen[0]} == seen[0]


@pytest.mark.spec("6.3")
@both_ways
def test_markers_of_the_messages_stay_beside_those_that_a_cache_places(
    serve: Serve, connected: Connect, streamed: bool
) -> None:
    marker = {"type": "ephemeral", "ttl": "1h"}
    marked: Message = {
        "role": "system",
        "content": [{"type": "text", "text": SYSTEM["content"], "cache_control": marker}],
    }
    server = serve("All of them.")
    provider = connected("anthropic", server)
    cache = PromptCache(provider.model, provider.name, clock=ManualClock())
    reply = asked(provider, [marked, HELLO], streamed=streamed, tools=TOOLS, prepare=cache.apply)
    sent = server.requests[0].body
    assert sent["system"][0]["cache_control"] == marker
    assert markers_of(sent["messages"]) == [{"type": "ephemeral"}]
    assert reply.usage.cache_write_1h_tokens > 0
    assert reply.usage.cache_write_tokens > reply.usage.cache_write_1h_tokens


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


def test_a_warm_summary_reads_the_conversation_from_the_cache(serve: Serve) -> None:
    def script(ask: Ask) -> Answer:
        return Answer(GOOD if "CONTEXT" in ask.last_user or "## Goal" in ask.last_user else "Understood.")

    server = serve(script)
    main = main_model(server)
    cache = PromptCache(main.model, "anthropic", clock=ManualClock())
    messages = long_session(60)
    main.complete(messages, tools=TOOLS, prepare=cache.apply)
    warm = completer(main, tools=TOOLS, prepare=cache.apply)
    engine = ContextCompressor(8_000, summarizer=summarizer_for(settings(provider="main"), main, main_complete=warm))
    engine.compress(messages)
    assert engine.last_report is not None
    assert engine.last_report.summarizer == "anthropic:claude-opus-5"
    asked_again = server.requests[1]
    assert asked_again.usage["cache_read_input_tokens"] > 0.5 * asked_again.prompt_tokens
