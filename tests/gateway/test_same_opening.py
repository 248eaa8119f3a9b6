"""Many clients of a gateway that begin with the same words and are answered differently."""

from __future__ import annotations

import itertools
import json
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from everlong.store import Store
from everlong.testing import Answer, Ask, ModelServer
from tests.examples import length
from tests.gateway.running import run_gateway

COUNT = length(64, 16)
PROMPT = "You are one of many. " * 1_000
KEYS = [("x-api-key", "made-up"), ("authorization", "Bearer made-up"), ("anthropic-version", "2023-06-01")]
MODELS = {"/v1/messages": "claude-sonnet-5", "/v1/chat/completions": "gpt-test"}


class Replies:
    """A model that never says the same thing twice."""

    def __init__(self) -> None:
        self._numbers, self._lock = itertools.count(), threading.Lock()

    def __call__(self, ask: Ask) -> Answer:
        del ask
        with self._lock:
            return Answer(f"Reply {next(self._numbers)}.")


def body(path: str, messages: list[dict[str, Any]]) -> bytes:
    if path == "/v1/messages":
        made: dict[str, Any] = {"system": PROMPT, "messages": messages, "max_tokens": 1_000}
    else:
        made = {"messages": [{"role": "system", "content": PROMPT}, *messages]}
    return json.dumps({"model": MODELS[path], **made}).encode()


def words_in(answer: Any) -> str:
    return str(answer["content"][0]["text"] if "content" in answer else answer["choices"][0]["message"]["content"])


def words_of(store: Store, ident: str) -> list[str]:
    return [str(line.entry.message["content"]) for line in store.conversations.lines(ident)]


@pytest.mark.parametrize("path", list(MODELS))
def test_clients_that_begin_alike_are_as_many_conversations(path: str, tmp_path: Path) -> None:
    histories: list[list[dict[str, Any]]] = [[] for _ in range(COUNT)]
    with ModelServer(Replies()) as model, run_gateway(model.url, str(tmp_path / "store.db")) as running:

        def say(words: str, number: int) -> None:
            said = [*histories[number], {"role": "user", "content": words}]
            with running.raw() as client:
                reply = words_in(client.ask(body(path, said), path, KEYS).json())
            histories[number] = [*said, {"role": "assistant", "content": reply}]

        for words in ("hi", "go on"):
            with ThreadPoolExecutor(8) as pool:
                list(pool.map(lambda number, words=words: say(words, number), range(COUNT)))
            store = running.store()
            told = sorted([str(one["content"]) for one in history] for history in histories)
            found = store.conversations.newest()
            assert sorted(words_of(store, one.id) for one in found) == told
            assert {(one.title, one.api_calls) for one in found} == {("hi", len(told[0]) // 2)}
        assert store.verify().problems == []
