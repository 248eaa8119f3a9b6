"""A conversation goes on in other bytes after it was compacted and has become a branch of its own."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from everlong.testing import ModelServer
from everlong.testing.server import Answer, Ask
from tests.gateway.running import Running, run_gateway
from tests.waiting import until

WINDOW = 8_000
MODEL = "harbour-1"
"""A model whose conversations are compacted at the threshold, because nothing tells that waiting is cheaper."""
SETTINGS: dict[str, Any] = {"models": {MODEL: {"context_length": WINDOW}}}
HEADERS = [("x-api-key", "k"), ("anthropic-version", "2023-06-01")]
NEWS = "The tide came in at noon and the boats went out again before the wind turned north. " * 30


def talk(turns: int, *, listed_from: int | None = None, last: str = "") -> list[dict[str, Any]]:
    """A conversation; from one of its turns on, users' words stand in lists of parts, as some clients write them."""
    messages: list[dict[str, Any]] = []
    for number in range(turns + 1):
        said = last if last and number == turns else f"Report {number}: {NEWS}"
        is_listed = listed_from is not None and number >= listed_from
        messages.append({"role": "user", "content": [{"type": "text", "text": said}] if is_listed else said})
        messages.append({"role": "assistant", "content": f"Report {number} is noted."})
    return messages[:-1]


def noted(ask: Ask) -> Answer:
    return Answer(f"Report {re.findall(r'Report ([0-9]+):', ask.text)[-1]} is noted.")


def send(running: Running, messages: list[dict[str, Any]]) -> None:
    words = json.dumps({"model": MODEL, "max_tokens": 500, "messages": messages}).encode()
    with running.raw() as raw:
        answer = raw.ask(words, headers=HEADERS)
    assert answer.status == 200, answer.body


def test_a_fork_that_is_compacted_at_once_goes_on(tmp_path: Path) -> None:
    with (
        ModelServer(noted, window=WINDOW) as model,
        run_gateway(model.url, str(tmp_path / "store.db"), SETTINGS) as running,
    ):
        for turns in range(7):
            send(running, talk(turns))
        store = running.store()
        assert not store.compactions()
        long_words = f"Forget that. {NEWS * 3}"
        send(running, talk(6, last=long_words))
        until(store.compactions)
        until(lambda: not running.gateway._compactor._ahead)
        forked = talk(6, last=long_words, listed_from=1)
        for number in range(3):
            reply = {"role": "assistant", "content": "Report 5 is noted."}
            forked += [reply, {"role": "user", "content": f"And now? {number}"}]
            send(running, forked)
        assert model.rejections == []
