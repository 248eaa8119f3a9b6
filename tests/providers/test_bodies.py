"""Whatever a conversation is like, raw or compacted, both APIs take the request that is made of it."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings

from everlong import Message
from everlong.context.invariants import repair_all
from everlong.providers.anthropic_api import anthropic_body
from everlong.providers.openai_api import openai_body
from everlong.testing.strategies import conversations
from tests.api_rules.anthropic import check_anthropic
from tests.api_rules.openai import check_openai
from tests.api_rules.prompt_cache import anthropic_blocks_of
from tests.examples import examples
from tests.wild import wild_conversations


def without_thinking(message: Message) -> Message:
    """Return a message without thinking, whose signatures are made up here and would be refused."""
    content = message.get("content")
    if not isinstance(content, list):
        return message
    kept = [part for part in content if not (isinstance(part, dict) and "thinking" in str(part.get("type")))]
    return {**message, "content": kept}


def check_both(messages: list[Message]) -> None:
    asked = [*map(without_thinking, messages), {"role": "user", "content": "And now?"}]
    body = anthropic_body(asked, "claude-opus-5", max_tokens=100)
    check_anthropic(body, alternate_roles=True)
    anthropic_blocks_of(body)
    check_openai(openai_body(asked, "gpt-5", max_tokens=100))


def test_ids_that_come_again_are_made_different_and_stay_so_when_the_conversation_grows() -> None:
    step: list[Message] = [
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": "functions.a:0", "type": "function", "function": {"name": "a", "arguments": "{}"}}],
        },
        {"role": "tool", "tool_call_id": "functions.a:0", "content": "ok"},
    ]
    first: Message = {"role": "user", "content": "go"}
    short = anthropic_body([first, *step, *step], "claude-opus-5", max_tokens=9)["messages"]
    long = anthropic_body([first, *step, *step, *step], "claude-opus-5", max_tokens=9)["messages"]
    assert long[: len(short)] == short
    uses = [turn["content"][0]["id"] for turn in long if turn["role"] == "assistant"]
    assert uses == ["functions_a_0", "functions_a_0_2", "functions_a_0_3"]
    assert [turn["content"][0]["tool_use_id"] for turn in long[2::2]] == uses


@given(conversations())
@settings(max_examples=examples(60), deadline=None)
def test_a_well_formed_conversation_is_taken(messages: list[Message]) -> None:
    check_both(messages)


@given(wild_conversations())
@settings(max_examples=examples(60), deadline=None)
def test_anything_that_a_client_could_send_is_taken_once_repaired(messages: list[Any]) -> None:
    asked = [*map(without_thinking, messages), {"role": "user", "content": "And now?"}]
    check_both(repair_all(asked))
