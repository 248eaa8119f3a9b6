"""What the upstream says to one key teaches the gateway nothing about the requests of another."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.gateway.served import raw, serving
from tests.gateway.test_auth import ADA, BOB, KEYS
from tests.gateway.upstream import Exchange, Upstream

CHAT = "/v1/chat/completions"


def own(key: str) -> list[tuple[str, str]]:
    return [("x-everlong-key", key), ("Authorization", "Bearer made-up")]


def talk(turns: int) -> list[dict[str, Any]]:
    said = [
        {"role": role, "content": f"{role} {at} " + "words " * 200}
        for at in range(turns)
        for role in ("user", "assistant")
    ]
    return [*said, {"role": "user", "content": "and now?"}]


def answer(exchange: Exchange) -> None:
    """Answer as an API that quotes what it does not understand."""
    body = json.loads(exchange.received.body)
    odd = [one["role"] for one in body["messages"] if one["role"] not in {"system", "user", "assistant"}]
    if odd:
        exchange.answer(json.dumps({"error": {"message": f"Invalid value: '{odd[0]}'."}}).encode(), "400 Bad Request")
        return
    message = {"role": "assistant", "content": "ok"}
    usage = {"prompt_tokens": 6_000, "completion_tokens": 1, "total_tokens": 6_001}
    told = {
        "id": "c",
        "object": "chat.completion",
        "choices": [{"index": 0, "finish_reason": "stop", "message": message}],
    }
    exchange.answer(json.dumps({**told, "model": "m", "usage": usage}).encode())


def test_a_window_that_a_client_has_the_upstream_name_is_that_of_nobody_else(
    upstream: Upstream, tmp_path: Path
) -> None:
    upstream.script = answer
    lie = "maximum context length is 1500 tokens, and your messages resulted in 9000 tokens"
    with serving(upstream.url, tmp_path, {"keys": KEYS}) as hosted, raw(hosted.address) as client:
        asked: dict[str, Any] = {"model": "m", "messages": [*talk(4), {"role": lie, "content": "x"}]}
        assert client.ask(json.dumps(asked).encode(), CHAT, own(ADA)).status == 400
        asked = {"model": "m", "messages": talk(20)}
        assert client.ask(json.dumps(asked).encode(), CHAT, own(BOB)).status == 200
        assert json.loads(upstream.last.body)["messages"] == asked["messages"]
        asked["messages"] += [{"role": "assistant", "content": "ok"}, {"role": "user", "content": "go on"}]
        assert client.ask(json.dumps(asked).encode(), CHAT, own(BOB)).status == 200
        assert json.loads(upstream.last.body)["messages"] == asked["messages"]
