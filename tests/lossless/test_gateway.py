"""The engine in the gateway: its tools are hidden from clients and answered inside, on all three APIs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from everlong.context.literals import SUMMARY_PREFIX
from everlong.testing import Answer, Ask, Call, ModelServer
from tests.gateway.running import run_gateway
from tests.gateway.test_engines import MODEL, WINDOW, Talk
from tests.lossless.talks import faults_of

SETTINGS = {
    "context": {"engine": "lcm"},
    "gateway": {"routes": {"*": {"recall": True}}},
    "models": {MODEL: {"context_length": WINDOW}},
}


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
    with (
        ModelServer(answer, window=WINDOW) as model,
        run_gateway(model.url, str(tmp_path / "store.db"), SETTINGS) as running,
    ):
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
