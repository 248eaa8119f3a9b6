"""What the gateway has in memory of conversations stays as small as they are few."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.gateway.running import Raw, Running
from tests.gateway.upstream import Upstream


@pytest.mark.parametrize("markers", [0, 1, 2])
def test_a_conversation_whose_markers_move_is_not_kept_many_times(
    markers: int, raw: Raw, relay: Running, upstream: Upstream
) -> None:
    upstream.script = lambda exchange: exchange.answer(b"{}")
    texts = ["Let us begin. " * 30]
    for turn in range(20):
        messages: list[Any] = [
            {"role": "assistant" if number % 2 else "user", "content": [{"type": "text", "text": text}]}
            for number, text in enumerate(texts)
        ]
        for message in messages[::-2][:markers]:
            message["content"][-1]["cache_control"] = {"type": "ephemeral"}
        raw.ask(json.dumps({"model": "m", "messages": messages}).encode())
        texts += [f"Answer {turn}.", f"Question {turn}?"]
    assert {turn.branch for turn in relay.store().turns.since()} == {1}
    assert len(relay.gateway._conversations["local", "anthropic"].live) <= 3  # the first bodies may differ
