"""What a host may rely on in any engine, and what the compressor adds."""

from __future__ import annotations

import json
from typing import Any

import pytest

from everlong import ContextCompressor, ContextEngine, Message
from tests.context.builders import long_session, tokens, user


class Plain(ContextEngine):
    """The least that an engine can be."""

    @property
    def name(self) -> str:
        return "plain"

    def update_from_response(self, usage: dict[str, Any]) -> None:
        self.last_prompt_tokens = usage["prompt_tokens"]

    def should_compress(self, prompt_tokens: int | None = None) -> bool:
        return (prompt_tokens or 0) > 10

    def compress(
        self, messages: list[Message], current_tokens: int | None = None, focus_topic: str | None = None
    ) -> list[Message]:
        del current_tokens, focus_topic
        return messages[-1:]


@pytest.mark.spec("1.1")
def test_the_abc_cannot_be_used_without_its_required_parts() -> None:
    with pytest.raises(TypeError, match="abstract"):
        ContextEngine()  # type: ignore[abstract]


@pytest.mark.spec("1.2")
def test_attributes_are_there_from_the_start() -> None:
    engine = Plain()
    numbers = ("last_prompt_tokens", "last_completion_tokens", "last_total_tokens", "threshold_tokens")
    assert [getattr(engine, name) for name in (*numbers, "context_length", "compression_count")] == [0] * 6
    assert (engine.threshold_percent, engine.protect_first_n, engine.protect_last_n) == (0.5, 3, 20)


@pytest.mark.spec("1.3")
def test_optional_methods_have_harmless_defaults() -> None:
    engine = Plain()
    engine.on_session_start("s1", platform="cli")
    engine.on_session_end("s1", [])
    assert engine.get_tool_schemas() == []
    assert json.loads(engine.handle_tool_call("lcm_grep", {})) == {"error": "Unknown tool: lcm_grep"}
    assert engine.should_compress_preflight([user("hi")]) is False
    assert engine.has_content_to_compress([user("hi")]) is True


@pytest.mark.spec("1.3")
def test_a_model_switch_recomputes_the_threshold() -> None:
    engine = Plain()
    engine.update_model("some-model", 50_000, base_url="http://localhost", api_key="k", provider="p", api_mode="chat")
    assert (engine.context_length, engine.threshold_tokens) == (50_000, 25_000)


@pytest.mark.spec("1.1")
def test_usage_fields_are_taken_over_and_a_missing_total_is_summed() -> None:
    engine = ContextCompressor(200_000)
    engine.update_from_response({"prompt_tokens": 900, "completion_tokens": 100, "cache_read_tokens": 800})
    assert (engine.last_prompt_tokens, engine.last_completion_tokens, engine.last_total_tokens) == (900, 100, 1_000)
    engine.update_from_response({"prompt_tokens": None})
    assert engine.last_prompt_tokens == 0


@pytest.mark.spec("1.1")
def test_after_a_compaction_the_prompt_tokens_are_the_estimate_of_the_new_list() -> None:
    engine = ContextCompressor(8_000)
    result = engine.compress(long_session(60))
    assert engine.last_prompt_tokens == engine.estimate_tokens(result)
    assert abs(engine.last_prompt_tokens - tokens(engine, result)) <= 3


@pytest.mark.spec("1.1")
def test_each_compaction_that_changed_something_is_counted() -> None:
    engine = ContextCompressor(8_000)
    result = engine.compress(long_session(60))
    assert engine.compression_count == 1
    engine.compress(result)
    assert engine.compression_count == 1


@pytest.mark.spec("1.3")
def test_the_compressor_says_whether_there_is_anything_to_compact() -> None:
    engine = ContextCompressor(8_000)
    session = long_session(60)
    assert engine.has_content_to_compress(session) is True
    assert engine.has_content_to_compress(engine.compress(session)) is False
    assert engine.has_content_to_compress([]) is False


@pytest.mark.spec("1.3")
def test_the_compressor_checks_a_request_before_it_is_sent() -> None:
    engine = ContextCompressor(8_000)
    assert engine.should_compress_preflight([user("hi")]) is False
    assert engine.should_compress_preflight(long_session(60)) is True


def test_reported_usage_after_a_preflight_check_calibrates_the_estimate() -> None:
    engine = ContextCompressor(200_000)
    session = long_session(30)
    engine.should_compress_preflight(session)
    real = round(tokens(engine, session) * 1.4)
    engine.update_from_response({"prompt_tokens": real, "completion_tokens": 1, "total_tokens": real + 1})
    assert engine.estimate_tokens(session) == real
    grown = [*session, user("and now? " * 100)]
    added = tokens(engine, grown) - tokens(engine, session)
    assert engine.estimate_tokens(grown) - real == pytest.approx(added * 1.4, rel=0.05)
