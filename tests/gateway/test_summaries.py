"""Summaries are written by the conversation's own model over its own connection, unless that cannot be."""

from __future__ import annotations

import json
import threading
from concurrent.futures import ThreadPoolExecutor
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest

from everlong.gateway import compaction
from everlong.gateway.telemetry import GatewayLog, captured
from everlong.model import text_of
from everlong.testing import ModelServer
from everlong.testing.server import Answer, Ask, Call
from tests.examples import few
from tests.gateway.running import Running, modelled, run_gateway
from tests.gateway.upstream import Upstream
from tests.waiting import PATIENCE, until

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

    with modelled(script, tmp_path, SETTINGS, window=WINDOW, summarizer=None) as (_, running):
        assert set(talk(running, "anthropic", tools=tools)) == {200}
        done = running.store().compactions()
        assert done
        assert {one.summarizer for one in done} == {"built-in rules"}


# -- while a request waits ---------------------------------------------------------------------------------------------


def ask(running: Running, api: str, history: list[dict[str, Any]], **fields: Any) -> int:
    """Send a history, and take the answer into it; returns the status."""
    body = {"model": "claude-sonnet-5", "max_tokens": 200, **fields}
    body |= {"input": history} if api == "responses" else {"messages": history}
    if api == "responses":
        body["max_output_tokens"] = body.pop("max_tokens")
    path = {"anthropic": "/v1/messages", "openai": "/v1/chat/completions", "responses": "/v1/responses"}[api]
    with running.raw() as raw:
        answer = raw.ask(json.dumps(body).encode(), path, KEYS)
    history.append({"role": "assistant", "content": "Go on."})
    return answer.status


def grow(running: Running, api: str, lengths: tuple[int, ...] = (1, 1, 4, 18)) -> list[int]:
    """A conversation that stays small, until one message more no longer fits; the status of each answer."""
    history: list[dict[str, Any]] = []
    found = []
    for length in lengths:
        history.append({"role": "user", "content": f"Question {len(history)}: {WORDS * length}"})
        found.append(ask(running, api, history))
    return found


FITS_NOT, IS_REFUSED = (WINDOW, (5, 5, 4, 8)), (16_000, (4, 4, 4, 12))


@pytest.mark.parametrize(
    ("api", "known", "lengths"),
    [("openai", *FITS_NOT), ("anthropic", *IS_REFUSED), ("responses", *FITS_NOT), ("responses", *IS_REFUSED)],
)
def test_a_request_that_has_to_wait_gets_a_summary_of_its_own_model(
    api: str, known: int, lengths: tuple[int, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compaction, "_UNKNOWN_SECONDS", 0.0)  # so that no compaction begins early
    settings = {**SETTINGS, "models": {"claude-sonnet-5": {"context_length": known}}}
    with modelled(writes, tmp_path, settings, window=WINDOW, summarizer=None) as (model, running):
        assert grow(running, api, lengths) == [200] * 4
        (done,) = running.store().compactions()
        assert done.summarizer == "own model"
        assert done.reason == ("preflight" if known == WINDOW else "overflow")
        asked = next(record for record in model.requests if ASKED in json.dumps(record.body))
        name = "input" if api == "responses" else "messages"
        before = model.requests[2].body[name]
        assert len(asked.body[name]) - len(before) == (1 if api == "responses" else 0)
        assert [text_of(one) for one in asked.body[name][:4]] == [text_of(one) for one in before[:4]]
        assert len(model.rejections) == (0 if known == WINDOW else 1)


def test_a_request_waits_no_longer_than_it_may(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compaction, "_WAIT_SECONDS", 0.4)
    go_on = threading.Event()

    def slow(ask: Ask) -> Answer:
        if is_summary_request(ask):
            go_on.wait(PATIENCE)
        return writes(ask)

    with modelled(slow, tmp_path, SETTINGS, window=WINDOW, summarizer=None) as (model, running):
        try:
            assert grow(running, "openai") == [200] * 4
            done = running.store().compactions()
        finally:
            go_on.set()
        assert {one.summarizer for one in done} == {"built-in rules"}
        # What came too late was paid all the same.
        paid = [one for one in model.requests if ASKED in json.dumps(one.body)]
        until(lambda: len(list(running.store().receipts.since())) == len(paid) > 0)


def settings_for(window: int) -> dict[str, Any]:
    """Return the settings for a model with another window."""
    return {**SETTINGS, "models": {"claude-sonnet-5": {"context_length": window}}}


class SlowModel:
    """A model that answers in two seconds by its own clock, and summarizes only after so many more answers."""

    def __init__(self, steps: int) -> None:
        self.steps = steps
        self.now = 1_000.0
        self.answers = 0
        self.is_writing = self.is_over = False
        self._moved = threading.Condition()

    def __call__(self, ask: Ask) -> Answer:
        with self._moved:
            if is_summary_request(ask):
                end, self.is_writing = self.answers + self.steps, True
                self._moved.wait_for(lambda: self.is_over or self.answers >= end, PATIENCE)
                self.is_writing = False
                return Answer(SUMMARY)
            self.answers += 1
            self.now += 2.0
            self._moved.notify_all()
            return Answer("Go on.")

    def end(self) -> None:
        with self._moved:
            self.is_over = True
            self._moved.notify_all()


THINKING = {"thinking": {"type": "enabled", "budget_tokens": 24_999}}
"""Another budget costs the whole cached conversation, so it is never lowered."""


@pytest.mark.parametrize(
    ("length", "fields"),
    [(6, {"max_tokens": 200}), (6, {"max_tokens": 25_000}), (4, {"max_tokens": 25_000, **THINKING})],
    ids=["", "with a shorter answer than it asks for", "with a budget for thinking"],
)
def test_a_compaction_begins_so_early_that_nobody_waits_for_its_summary(
    length: int, fields: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compaction, "_WAIT_SECONDS", 1.0)  # whoever waits does so in vain
    script, window, log = SlowModel(steps=22), 100_000, BytesIO()
    with (
        captured(GatewayLog(log, "info")),
        ModelServer(script, window=window) as model,
        run_gateway(model.url, str(tmp_path / "store.db"), settings_for(window), summarizer=None) as running,
    ):
        monkeypatch.setattr(running.gateway._compactor, "_clock", lambda: script.now)
        history: list[dict[str, Any]] = []
        try:
            for number in range(100):
                history.append({"role": "user", "content": f"Question {number}: {WORDS * length}"})
                assert ask(running, "anthropic", history, **fields) == 200
                until(lambda: script.is_writing or not running.gateway._compactor._ahead)
            done = running.store().compactions()
        finally:
            script.end()
        assert len(done) >= 2
        lines = log.getvalue().decode().splitlines()
        assert sum(" compacted at " in line and "(threshold)" in line for line in lines) == len(done)
        assert {(one.reason, one.summarizer) for one in done} == {("threshold", "own model")}
        assert model.rejections == []
        assert {json.dumps(one.body.get("thinking")) for one in model.requests} == {json.dumps(fields.get("thinking"))}


def test_a_summary_that_is_there_early_is_kept_until_the_compaction_is_due(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script, window = SlowModel(steps=0), 100_000
    with modelled(script, tmp_path, settings_for(window), window=window, summarizer=None) as (model, running):
        compactor = running.gateway._compactor
        monkeypatch.setattr(compactor, "_clock", lambda: script.now)
        history: list[dict[str, Any]] = []
        while not (done := running.store().compactions()):
            history.append({"role": "user", "content": f"Question {len(history)}: {WORDS * 6}"})
            assert ask(running, "anthropic", history) == 200
            until(lambda: not compactor._ahead)
        asked = [number for number, one in enumerate(model.requests) if ASKED in json.dumps(one.body)]
        assert len(asked) == len(done) == 1
        assert model.requests[asked[0]].prompt_tokens < 0.5 * window  # begun for a model that may take a minute
        assert (done[0].tokens_before or 0) > 0.6 * window  # the threshold is 64,000
        assert done[0].summarizer == "own model"


def test_an_answer_to_the_last_request_before_a_compaction_begins_no_other(tmp_path: Path) -> None:
    is_last, under_way, compacted = threading.Event(), threading.Event(), threading.Event()
    summaries: list[Ask] = []

    def script(ask: Ask) -> Answer:
        if is_summary_request(ask):
            summaries.append(ask)
            under_way.wait(PATIENCE)
            return Answer(SUMMARY)
        if is_last.is_set():
            compacted.wait(PATIENCE)
        return Answer("Go on.")

    window = 40_000
    settings = settings_for(window)
    with (
        modelled(script, tmp_path, settings, window=window, summarizer=None) as (model, running),
        ThreadPoolExecutor(1) as pool,
    ):
        compactor, history = running.gateway._compactor, list[dict[str, Any]]()
        sizes = [0]
        while sizes[-1] < 0.81 * window:  # of which .85 is the room
            history.append({"role": "user", "content": WORDS * (4 if sizes[-1] < 0.7 * window else 1)})
            assert ask(running, "anthropic", history) == 200
            sizes = [one.prompt_tokens for one in model.requests if ASKED not in json.dumps(one.body)]
        is_last.set()
        history.append({"role": "user", "content": WORDS})
        last = pool.submit(ask, running, "anthropic", [*history])
        try:
            until(lambda: len(running.store().entries(running.store().branch(1))) >= len(history))
            under_way.set()
            until(lambda: running.store().compactions() and not compactor._ahead)
        finally:
            under_way.set()
            compacted.set()
        assert last.result() == 200
        until(lambda: not compactor._ahead)
        assert len(summaries) == len(running.store().compactions()) == 1


def test_a_summary_that_comes_late_takes_the_place_of_the_lines_that_served_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compaction, "_WAIT_SECONDS", 0.4)
    come = threading.Event()

    def late(ask: Ask) -> Answer:
        if is_summary_request(ask):
            come.wait(PATIENCE)
        return writes(ask)

    with modelled(late, tmp_path, SETTINGS, window=WINDOW, summarizer=None) as (model, running):
        history: list[dict[str, Any]] = []
        try:
            while not (done := running.store().compactions()):
                history.append({"role": "user", "content": f"Question {len(history)}: {WORDS}"})
                assert ask(running, "anthropic", history) == 200
            assert {one.summarizer for one in done} == {"built-in rules"}
        finally:
            come.set()
        until(lambda: not running.gateway._compactor._ahead)
        assert running.store().compactions()[-1].summarizer == "own model"
        history.append({"role": "user", "content": "Where do we sail?"})
        assert ask(running, "anthropic", history) == 200
        assert "Sail to the harbour at dawn" in json.dumps(model.requests[-1].body)


# -- max_tokens near the window ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("api", few(["anthropic", "openai", "responses"]))
@pytest.mark.parametrize("is_taken", [True, False], ids=["is taken", "is refused"])
def test_a_large_max_tokens_is_refused_hardly_ever_and_costs_no_compactions(
    api: str, is_taken: bool, tmp_path: Path
) -> None:
    """The upstream takes it whatever the window holds, or refuses it once and gets a smaller one from then on."""
    window = 20_000
    settings = settings_for(window)
    counts, refused = [], []
    for most in (200, 16_000):
        with (
            ModelServer(writes, window=window + (100_000 if is_taken else 0)) as model,
            run_gateway(model.url, str(tmp_path / f"{most}.db"), settings, summarizer=None) as running,
        ):
            history: list[dict[str, Any]] = []
            for number in range(40):
                history.append({"role": "user", "content": f"Question {number}: {WORDS * 2}"})
                assert ask(running, api, history, max_tokens=most) == 200
            counts.append(len(running.store().compactions()))
            refused.append(len(model.rejections))
    assert refused[0] == 0
    assert refused[1] <= (0 if is_taken else 2)
    assert counts[1] <= counts[0] + 3


@pytest.mark.spec("12.2")
@pytest.mark.parametrize("summaries", [{}, {"summaries": "built-in"}])
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
    with modelled(writes, tmp_path, settings, window=WINDOW, summarizer=None) as (_, running):
        assert set(talk(running, "anthropic")) == {200}
        done = running.store().compactions()
        assert done
        assert {one.summarizer for one in done} <= {"own model", "built-in rules"}
        assert running.gateway.summaries.told.startswith("no model" if summaries else "each conversation's own model")
    assert upstream.requests == []
