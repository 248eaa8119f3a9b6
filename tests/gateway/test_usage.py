"""Whatever an upstream reports as used: the client gets its answer, and the turn is stored."""

from __future__ import annotations

import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from everlong.agent.accounting import account
from everlong.config import Settings
from everlong.providers.anthropic_api import anthropic_usage
from everlong.providers.catalogue import Catalogue
from everlong.providers.openai_api import openai_usage
from everlong.testing import ModelServer
from everlong.testing.server import Answer, Ask
from tests.gateway.running import run_gateway
from tests.gateway.upstream import Upstream
from tests.waiting import until

KEYS = [("x-api-key", "mine"), ("anthropic-version", "2023-06-01")]
DOLLARS = "everlong_dollars_total"
PRICES = {"models": {"m": {"input_price": 3.0, "output_price": 15.0}}}
TEXT = {"type": "output_text", "text": "hi", "annotations": []}
ANSWERS: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": {
        "choices": [{"index": 0, "message": {"role": "assistant", "content": "hi"}, "finish_reason": "stop"}]
    },
    "/v1/messages": {"type": "message", "role": "assistant", "content": [{"type": "text", "text": "hi"}]},
    "/v1/responses": {
        "status": "completed",
        "output": [{"type": "message", "role": "assistant", "status": "completed", "content": [TEXT]}],
    },
}
COUNTED = '{"prompt_tokens": %s, "completion_tokens": %s, "input_tokens": %s, "output_tokens": %s}'
ODD = ["1" + "0" * 30, "1e400", "-5", '"many"', "9223372036854775807", "null", "[1]", '{"a": 1}', "true"]
USAGES = [*(COUNTED % ((count,) * 4) for count in ODD), "[]", '"much"', '{"iterations": [1, {"input_tokens": "x"}]}']


@pytest.mark.parametrize("path", ANSWERS)
def test_an_odd_usage_keeps_nobody_from_an_answer(path: str, upstream: Upstream, tmp_path: Path) -> None:
    name = "input" if path == "/v1/responses" else "messages"
    whole = json.dumps({"id": "a_1", "model": "m", **ANSWERS[path]})[:-1]
    with run_gateway(upstream.url, str(tmp_path / "store.db"), PRICES) as running, running.raw() as raw:
        for usage in USAGES:
            told = f'{whole}, "usage": {usage}}}'.encode()
            upstream.script = lambda exchange, told=told: exchange.answer(told)  # type: ignore[misc]
            said = [{"role": "user", "content": f"hello {usage} " * 60}]
            for number in range(3):
                answer = raw.ask(json.dumps({"model": "m", "max_tokens": 9, name: said}).encode(), path)
                assert (answer.status, answer.body) == (200, told)
                said += [{"role": "assistant", "content": "hi"}, {"role": "user", "content": f"and {number}?"}]
        assert [turn.status for turn in running.store().turns.since()] == ["done"] * 3 * len(USAGES)
        assert not any(running.gateway.journal._folder.glob("*.broken"))


def test_a_request_that_the_upstream_refused_cost_nothing(upstream: Upstream, tmp_path: Path) -> None:
    upstream.script = lambda exchange: exchange.answer(b'{"error":{"message":"no"}}', "401 Unauthorized")
    with run_gateway(upstream.url, str(tmp_path / "store.db")) as running, running.raw() as raw:
        assert raw.ask(b'{"model":"m","messages":[{"role":"user","content":"hi"}]}').status == 401
        store = running.store()
        assert [turn.status for turn in store.turns.since()] == ["failed"]
        assert account(store, Settings()).total.unanswered == 0


@pytest.mark.parametrize("writer", ["own model", "configured model", "lcm"])
def test_every_screen_has_the_upstreams_account_to_the_cent(
    writer: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also behind an upstream of the user's own, where the maker's prices hold."""
    window = 8_000
    words = "what the client says takes up some room in the window of the model " * 20
    history: list[dict[str, Any]] = []

    def script(ask: Ask) -> Answer:
        said = ask.last_user.lower()
        return Answer("## Goal\nSail to the harbour at dawn." if "summar" in said else "Go on.")

    with ModelServer(script, window=window) as model:
        settings: dict[str, Any] = {
            "models": {"claude-sonnet-5": {"context_length": window}, "w": PRICES["models"]["m"]}
        }
        if writer == "configured model":
            monkeypatch.setenv("WRITER_KEY", "made-up-key")
            settings["providers"] = {"shop": {"base_url": f"{model.url}/v1", "key_variable": "WRITER_KEY"}}
            settings["gateway"] = {"summaries": "shop:w"}
        if writer == "lcm":
            settings["context"] = {"engine": "lcm"}
        with run_gateway(model.url, str(tmp_path / "store.db"), settings, summarizer=None) as running:
            for number in range(40):
                history.append({"role": "user", "content": f"Question {number}: {words}"})
                body = {"model": "claude-sonnet-5", "max_tokens": 200, "messages": history}
                with running.raw() as raw:
                    assert raw.ask(json.dumps(body).encode(), headers=KEYS).status == 200
                history.append({"role": "assistant", "content": "Go on."})
            until(lambda: not running.gateway._compactor._ahead)
            if writer == "configured model":
                assert running.gateway.summaries.told == "shop:w, as gateway.summaries says"
            store, read = running.store(), Settings.model_validate(settings)
            prices, billed = Catalogue(read.models, read.providers), Decimal(0)
            for record in model.requests:
                usage = anthropic_usage if record.path == "/v1/messages" else openai_usage
                rates = prices.rates(record.body["model"], 1_000, 0.0)
                assert rates is not None
                billed += rates.cost(usage(record.usage))
            books = account(store, read)
            assert books.total.kinds["summary"].calls >= 1
            assert books.total.cost == billed
            (found,) = store.conversations.newest()
            assert found.cost == pytest.approx(float(billed))
            counted = next(line for line in running.gateway.metrics.text().splitlines() if line.startswith(DOLLARS))
            assert float(counted.split()[1]) == pytest.approx(float(billed))
