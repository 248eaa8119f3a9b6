"""The engine in the gateway: its tools are hidden from clients and answered inside, on all three APIs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from everlong.agent.accounting import Account, account
from everlong.config import Settings
from everlong.context.literals import SUMMARY_PREFIX
from everlong.testing import Answer, Ask, Call, ModelServer
from tests.gateway.running import Running, modelled, run_gateway
from tests.lossless.talks import faults_of
from tests.waiting import until

WINDOW = 8_000
MODEL = "claude-sonnet-5"
WORDS = "what the client says takes up some room in the window of the model " * 24
PATHS = {"openai": "/v1/chat/completions", "anthropic": "/v1/messages", "responses": "/v1/responses"}
SETTINGS = {
    "context": {"engine": "lcm"},
    "gateway": {"routes": {"*": {"recall": True}}},
    "models": {MODEL: {"context_length": WINDOW}},
}


class Talk:
    """A conversation of one client."""

    def __init__(self, running: Running, api: str, opening: str, **fields: Any) -> None:
        self.running, self.api, self.fields = running, api, fields
        self.history: list[dict[str, Any]] = []
        self.opening = opening

    def say(self, words: str = WORDS) -> str:
        said = f"{self.opening}, {len(self.history)}: {words}"
        self.history.append({"role": "user", "content": said})
        listed = "input" if self.api == "responses" else "messages"
        body: dict[str, Any] = {"model": MODEL, listed: self.history, **self.fields}
        body |= {"max_tokens": 200} if self.api != "responses" else {"store": False}
        keys = [("authorization", "Bearer mine"), ("x-api-key", "mine"), ("anthropic-version", "2023-06-01")]
        with self.running.raw() as raw:
            answer = raw.ask(json.dumps(body).encode(), PATHS[self.api], keys)
        assert answer.status == 200, answer.body
        assert answer.header("x-everlong-warning") is None, answer.header("x-everlong-warning")
        data = answer.json()
        if self.api == "anthropic":
            text = "".join(block["text"] for block in data["content"])
        elif self.api == "openai":
            text = data["choices"][0]["message"]["content"]
        else:
            text = "".join(part["text"] for item in data["output"] for part in item["content"])
        self.history.append({"role": "assistant", "content": text})
        return text


def answer(ask: Ask) -> Answer:
    """Look the password up with the engine's tools when asked for it; else say little."""
    if "which password" not in ask.last_user:
        return Answer("Noted.")
    if not ask.results:
        return Answer("", [Call("lcm_grep", {"query": "password of the lighthouse"}, "look_1")])
    found = json.loads(ask.results[-1][1])
    if "opened" not in found:
        hit = next(one for one in found["hits"] if "Ostrich" in one["text"])
        return Answer("", [Call("lcm_expand", {"ids": [hit["id"]]}, "look_2")])
    return Answer(f"It is {'Ostrich77' if 'Ostrich77' in str(found['opened']) else 'lost'}.")


@pytest.mark.spec("10", "1.5")
@pytest.mark.parametrize("api", ["openai", "anthropic", "responses"])
def test_a_client_hears_the_answer_and_nothing_of_the_tools(api: str, tmp_path: Path) -> None:
    with modelled(answer, tmp_path, SETTINGS, window=WINDOW) as (model, running):
        talk = Talk(running, api, "About boats")
        talk.say("The password of the lighthouse is Ostrich77.")
        for _ in range(30):
            talk.say()
        assert talk.say("And now: which password does the lighthouse have?") == "It is Ostrich77."
        assert model.rejections == []
        store = running.store()
        assert {done.engine for done in store.compactions()} == {"lcm"}
        assert all(done.fallback is None for done in store.compactions())
        assert "lcm_grep" in json.dumps([request.body.get("tools") for request in model.requests])
        assert SUMMARY_PREFIX[:30] in json.dumps(model.requests[-1].body, ensure_ascii=False)
        assert "lcm_" not in json.dumps(talk.history)
        at = store.branch(store.compactions()[-1].branch)
        assert faults_of(store, at) == []


def spend(folder: Path, steps: int) -> Account:
    """What a conversation costs with the lossless engine."""
    window, history = 32_000, []
    settings = {"models": {"claude-sonnet-5": {"context_length": window}}, "context": {"engine": "lcm"}}
    summary = "## Goal\n- Sail to the harbour.\n## Progress\n" + "- The quay was read and found in order. " * 35

    def script(ask: Ask) -> Answer:
        return Answer(summary if "summar" in ask.last_user.lower() else "Go on.")

    with (
        ModelServer(script, window=window) as model,
        run_gateway(model.url, str(folder / "store.db"), settings, summarizer=None) as running,
        running.raw() as raw,
    ):
        for number in range(steps):
            words = f"Question {number}: " + f"the tide gauge {number} was read again and found in order " * 90
            history.append({"role": "user", "content": words})
            body = {"model": "claude-sonnet-5", "max_tokens": 200, "messages": history}
            keys = [("x-api-key", "k"), ("anthropic-version", "2023-06-01")]
            assert raw.ask(json.dumps(body).encode(), headers=keys).status == 200
            history.append({"role": "assistant", "content": "Go on."})
            until(lambda: not running.gateway._compactor._ahead)
        return account(running.store(), Settings.model_validate(settings)).total


def test_leaves_are_large_enough_for_few_summaries(tmp_path: Path) -> None:
    steps = 40
    assert 0 < spend(tmp_path, steps).kinds["summary"].calls < steps
