"""Summaries are written by the conversation's own model over its own connection, unless that cannot be."""

from __future__ import annotations

import gc
import json
from pathlib import Path
from typing import Any

import pytest

from everlong.testing import ModelServer
from everlong.testing.server import Answer, Ask, Call
from tests.gateway.running import Running, run_gateway
from tests.gateway.upstream import Upstream

WINDOW = 8_000
SETTINGS: dict[str, Any] = {"models": {"claude-sonnet-5": {"context_length": WINDOW}}, "auxiliary": {}}
WORDS = "what the client says takes up some room in the window of the model " * 20
ASKED = "Summarize the conversation above."
KEYS = [("authorization", "Bearer mine"), ("x-api-key", "mine"), ("anthropic-version", "2023-06-01")]
SUMMARY = "## Goal\nSail to the harbour at dawn.\n\n## Progress\n### Done\n- The tide tables were read.\n"


def talk(running: Running, api: str, turns: int = 30, **fields: Any) -> list[int]:
    """Talk to a gateway for so many turns; the status of each answer."""
    history: list[dict[str, Any]] = []
    path = "/v1/messages" if api == "anthropic" else "/v1/chat/completions"
    found = []
    for number in range(turns):
        history.append({"role": "user", "content": f"Question {number}: {WORDS}"})
        body = {"model": "claude-sonnet-5", "max_tokens": 200, "messages": history, **fields}
        with running.raw() as raw:
            answer = raw.ask(json.dumps(body).encode(), path, KEYS)
        found.append(answer.status)
        data = json.loads(answer.body)
        text = data["content"][0]["text"] if api == "anthropic" else data["choices"][0]["message"]["content"]
        history.append({"role": "assistant", "content": text})
    return found


def is_summary_request(ask: Ask) -> bool:
    return ASKED in ask.last_user or "Update that summary" in ask.last_user


def writes(ask: Ask) -> Answer:
    return Answer(SUMMARY if is_summary_request(ask) else "Go on.")


@pytest.mark.parametrize("api", ["openai", "anthropic"])
def test_the_conversations_own_model_writes_the_summary(api: str, tmp_path: Path) -> None:
    with (
        ModelServer(writes, window=WINDOW) as model,
        run_gateway(model.url, str(tmp_path / "store.db"), SETTINGS, summarizer=None) as running,
    ):
        assert set(talk(running, api)) == {200}
        asked = [record for record in model.requests if ASKED in json.dumps(record.body)]
        assert asked
        store = running.store()
        done = store.compactions()
        assert {one.summarizer for one in done} == {"own model"}
        key = "x-api-key" if api == "anthropic" else "authorization"
        assert all("mine" in record.headers[key] for record in asked)
        first = asked[0].body
        before = next(one for one in model.requests if len(one.body["messages"]) == len(first["messages"]))
        assert before.body["messages"][:-1] == first["messages"][:-1]
        assert {name: value for name, value in first.items() if name != "messages"} == {
            name: value for name, value in before.body.items() if name != "messages"
        }
        assert asked[0].usage.get("cache_read_input_tokens", 1) > 0


@pytest.mark.parametrize(
    "answer",
    [Answer("", [Call("look", {})]), Answer("No.")],
    ids=["a tool call", "no summary"],
)
def test_lines_of_the_conversation_serve_where_the_model_writes_none(answer: Answer, tmp_path: Path) -> None:
    tools = [{"name": "look", "description": "Looks.", "input_schema": {"type": "object", "properties": {}}}]

    def script(ask: Ask) -> Answer:
        if not is_summary_request(ask):
            return Answer("Go on.")
        return answer

    with (
        ModelServer(script, window=WINDOW) as model,
        run_gateway(model.url, str(tmp_path / "store.db"), SETTINGS, summarizer=None) as running,
    ):
        assert set(talk(running, "anthropic", tools=tools)) == {200}
        done = running.store().compactions()
        assert done
        assert {one.summarizer for one in done} == {"extractive"}


def test_so_many_a_day_and_no_more(tmp_path: Path) -> None:
    settings = {**SETTINGS, "gateway": {"summaries_per_day": 1}}
    with (
        ModelServer(writes, window=WINDOW) as model,
        run_gateway(model.url, str(tmp_path / "store.db"), settings, summarizer=None) as running,
    ):
        assert set(talk(running, "openai", 60)) == {200}
        assert sum(ASKED in json.dumps(record.body) for record in model.requests) == 1
        assert [one.summarizer for one in running.store().compactions()][:2] == ["own model", "extractive"]


def test_nobody_is_asked_where_summaries_are_extractive(tmp_path: Path) -> None:
    settings = {**SETTINGS, "gateway": {"summaries": "extractive"}}
    with (
        ModelServer(writes, window=WINDOW) as model,
        run_gateway(model.url, str(tmp_path / "store.db"), settings, summarizer=None) as running,
    ):
        assert set(talk(running, "openai")) == {200}
        assert not any(ASKED in json.dumps(record.body) for record in model.requests)
        assert running.store().compactions()


@pytest.mark.spec("12.2")
@pytest.mark.parametrize("summaries", [{}, {"summaries": "extractive"}])
def test_a_key_in_the_environment_sends_no_conversation_anywhere_else(
    summaries: dict[str, Any], upstream: Upstream, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    upstream.script = lambda exchange: exchange.cut()  # nobody is to come here
    for name in ("ANTHROPIC_API_KEY", "OPENAI_API_KEY", "OPENROUTER_API_KEY"):
        monkeypatch.setenv(name, "made-up-key")
    monkeypatch.setenv("ANTHROPIC_BASE_URL", upstream.url)
    monkeypatch.setenv("OPENAI_BASE_URL", upstream.url)
    monkeypatch.setenv("HTTPS_PROXY", upstream.url)
    monkeypatch.setenv("https_proxy", upstream.url)
    settings = {**SETTINGS, "auxiliary": {"compression": {"provider": "auto"}}, "gateway": summaries}
    with (
        ModelServer(writes, window=WINDOW) as model,
        run_gateway(model.url, str(tmp_path / "store.db"), settings, summarizer=None) as running,
    ):
        assert set(talk(running, "anthropic")) == {200}
        done = running.store().compactions()
        assert done
        assert {one.summarizer for one in done} <= {"own model", "extractive"}
        assert running.gateway.summaries.told.startswith("no model" if summaries else "each conversation's own model")
    assert upstream.requests == []


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # the writer's connection
def test_who_writes_summaries_is_told_with_its_name_and_its_cost_is_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WRITER_KEY", "made-up-key")
    with (
        ModelServer(writes, window=WINDOW) as model,
        ModelServer(lambda _: Answer(SUMMARY)) as writer,
        run_gateway(
            model.url,
            str(tmp_path / "store.db"),
            {
                **SETTINGS,
                "models": {
                    **SETTINGS["models"],
                    "w": {"input_price": 3.0, "output_price": 15.0, "context_length": 100_000},
                },
                "providers": {"shop": {"base_url": f"{writer.url}/v1", "key_variable": "WRITER_KEY"}},
                "gateway": {"summaries": "shop:w"},
            },
            summarizer=None,
        ) as running,
    ):
        assert running.gateway.summaries.told == "shop:w, as gateway.summaries says"
        assert set(talk(running, "openai")) == {200}
        done = running.store().compactions()
        assert writer.requests
        assert any(one.cost for one in done)
    gc.collect()
