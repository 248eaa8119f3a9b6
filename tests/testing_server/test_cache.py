"""The server's prompt cache keeps the providers' rules, on a clock that the test holds."""

from __future__ import annotations

from typing import Any

from everlong.testing import ModelServer
from tests.api_rules import use_clock
from tests.api_rules.faults import ManualClock
from tests.testing_server.conftest import Serve, post

MARK = {"type": "ephemeral"}
WORDS = "word " * 1_500
"""1,500 tokens."""


def block(text: str, mark: Any = None) -> dict[str, Any]:
    return {"type": "text", "text": text, **({"cache_control": mark} if mark else {})}


def asked(
    server: ModelServer, *blocks: dict[str, Any], model: str = "claude-opus-5", **more: Any
) -> tuple[int, int, int]:
    """Plain, written and read tokens of a request with one message of these blocks."""
    messages = [{"role": "user", "content": list(blocks)}]
    usage = post(server, "/v1/messages", {"model": model, "max_tokens": 9, "messages": messages, **more}).json["usage"]
    return usage["input_tokens"], usage["cache_creation_input_tokens"], usage["cache_read_input_tokens"]


def test_a_marker_writes_and_the_next_request_reads(serve: Serve) -> None:
    server = serve()
    assert asked(server, block(WORDS, MARK), block("now")) == (1, 1_504, 0)
    assert asked(server, block(WORDS, MARK), block("then")) == (1, 0, 1_504)
    assert asked(server, block(WORDS + "!", MARK)) == (0, 1_505, 0)


def test_an_entry_lives_five_minutes_from_its_last_use(serve: Serve) -> None:
    clock = ManualClock()
    server = serve()
    use_clock(server, clock)
    asked(server, block(WORDS, MARK))
    clock.advance(299)
    assert asked(server, block(WORDS, MARK))[2] == 1_504
    clock.advance(299)
    assert asked(server, block(WORDS, MARK))[2] == 1_504
    clock.advance(300)
    assert asked(server, block(WORDS, MARK)) == (0, 1_504, 0)


def gpt_usage(server: ModelServer, model: str, *texts: str) -> tuple[int, int]:
    messages = [{"role": "user", "content": text} for text in texts]
    details = post(server, "/v1/chat/completions", {"model": model, "messages": messages}).json["usage"]
    return details["prompt_tokens_details"]["cached_tokens"], details["prompt_tokens_details"]["cache_write_tokens"]


def test_openai_caches_by_itself_in_steps_of_128(serve: Serve) -> None:
    clock = ManualClock()
    server = serve()
    use_clock(server, clock)
    assert gpt_usage(server, "gpt-5", WORDS) == (0, 0)
    assert gpt_usage(server, "gpt-5", WORDS, "more") == (1_408, 0)
    clock.advance(601)
    assert gpt_usage(server, "gpt-5", WORDS, "more") == (0, 0)
    assert gpt_usage(server, "gpt-5", "word " * 900) == gpt_usage(server, "gpt-5", "word " * 900) == (0, 0)
