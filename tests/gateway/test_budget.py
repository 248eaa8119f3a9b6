"""A limit in dollars holds for every request that is passed on, whatever its client and its upstream do."""

from __future__ import annotations

import gzip
import json
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import openai
import pytest

from everlong.gateway.auth import Refused
from everlong.gateway.budget import _check_priced, _passes
from everlong.store import Store
from everlong.store.costs import Days, Spending
from everlong.store.upgrade import open_database
from everlong.testing import ModelServer
from tests.gateway.served import raw, serving
from tests.gateway.test_auth import ADA, BOB, KEYS
from tests.gateway.upstream import Exchange, Upstream
from tests.waiting import PATIENCE, until

PRICES: dict[str, Any] = {
    "m": {"input_price": 3.0, "output_price": 15.0, "context_length": 100_000},
    "dear": {"input_price": 300.0, "output_price": 1_500.0, "context_length": 100_000},
}
OWN = [("x-everlong-key", ADA)]
CHAT = "/v1/chat/completions"


def body(**more: Any) -> bytes:
    return json.dumps(
        {"model": "m", "max_tokens": 1_000, "messages": [{"role": "user", "content": "hi"}], **more}
    ).encode()


def capped(dollars: float, **more: Any) -> dict[str, Any]:
    return {"keys": {"ada": {**KEYS["ada"], "dollars_per_day": dollars, **more}, "bob": KEYS["bob"]}}


def spent(folder: Path, tenant: str = "ada") -> float:
    database = open_database(folder / "served.db")
    try:
        return Spending(database, Days()).spent(tenant)
    finally:
        database.close()


def settled(folder: Path, least: float = 1e-12) -> float:
    """What was spent, once something was and nothing is under way."""
    before = -1.0

    def is_steady() -> bool:
        nonlocal before
        found, before = before, spent(folder)
        return before >= least and found == before

    until(is_steady)
    return before


# -- in the store ------------------------------------------------------------------------------------------------------


class Clock:
    def __init__(self, now: float) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def spending(database_url: str) -> Any:
    database = open_database(database_url)
    yield lambda days=None: Spending(database, days or Days())
    database.close()


@pytest.mark.spec("12.5")
def test_many_at_once_never_reserve_more_than_there_is(spending: Any, request: pytest.FixtureRequest) -> None:
    tenant = request.node.name
    with ThreadPoolExecutor(8) as pool:
        held = list(pool.map(lambda _: spending().reserve(tenant, 0.1, 1.0), range(40)))
    assert sum(one is not None for one in held) in {9, 10}  # ten times a tenth may be a little more than one
    assert spending().spent(tenant) <= 1.0 + 1e-9


def test_what_was_spent_takes_the_place_of_what_was_reserved(spending: Any, request: pytest.FixtureRequest) -> None:
    tenant = request.node.name
    held = spending().reserve(tenant, 0.9, 1.0)
    assert spending().reserve(tenant, 0.2, 1.0) is None
    spending().settle(held, 0.1)
    assert spending().spent(tenant) == pytest.approx(0.1)
    assert spending().reserve(tenant, 0.9, 1.0) is not None


def test_a_clock_that_jumps_opens_no_new_day(spending: Any, request: pytest.FixtureRequest) -> None:
    tenant, wall, passed = request.node.name, Clock(86_400.0 * 20_000 + 1_000), Clock(5.0)
    days = Days(wall, passed)
    assert spending(days).reserve(tenant, 1.0, 1.0) is not None
    wall.now += 86_400 * 3  # somebody sets the clock
    assert spending(days).reserve(tenant, 1.0, 1.0) is None
    before = Days(Clock(86_400.0 * 19_990), passed)  # a process that starts with a clock that is behind
    assert spending(before).reserve(tenant, 1.0, 1.0) is None
    passed.now += 86_400
    assert spending(days).reserve(tenant, 1.0, 1.0) is not None


def test_a_reservation_of_yesterday_gives_nothing_back_today(spending: Any, request: pytest.FixtureRequest) -> None:
    tenant, passed = request.node.name, Clock(5.0)
    days = Days(Clock(86_400.0 * 20_000 + 1_000), passed)
    held = spending(days).reserve(tenant, 0.9, 1.0)
    passed.now += 86_400
    assert spending(days).reserve(tenant, 0.5, 1.0) is not None
    spending(days).settle(held, 0.0)
    assert spending(days).spent(tenant) == pytest.approx(0.5)


# -- through a gateway -------------------------------------------------------------------------------------------------


@pytest.mark.spec("12.5")
def test_spend_is_counted_by_known_prices_and_outlives_a_restart(model: ModelServer, tmp_path: Path) -> None:
    said: Any = [{"role": "user", "content": "hi"}]
    own = {"x-everlong-key": ADA}
    with (
        serving(model.url, tmp_path, capped(0.03), models=PRICES) as hosted,
        openai.OpenAI(base_url=f"{hosted.address}/v1", api_key="own", default_headers=own, max_retries=0) as gpt,
    ):
        used = gpt.chat.completions.create(model="m", messages=said, max_tokens=1_000).usage
        with pytest.raises(openai.RateLimitError, match="US dollars a day"):
            gpt.chat.completions.create(model="m", messages=said, max_tokens=50_000)
    assert used is not None
    cost = (used.prompt_tokens * 3 + used.completion_tokens * 15) / 1e6
    assert spent(tmp_path) == pytest.approx(cost)
    with Store.open(tmp_path / "served.db", "ada") as store:
        assert next(store.turns.since()).cost == pytest.approx(cost)
    with serving(model.url, tmp_path, capped(cost), models=PRICES) as hosted, raw(hosted.address) as client:
        assert client.ask(body(max_tokens=1), CHAT, OWN).status == 429
    assert len(model.requests) == 1


def test_requests_at_once_do_not_pass_the_limit_together(upstream: Upstream, tmp_path: Path) -> None:
    go_on = threading.Event()

    def script(exchange: Exchange) -> None:
        go_on.wait(PATIENCE)
        exchange.answer(b'{"choices":[],"usage":{"prompt_tokens":9,"completion_tokens":1000}}')

    upstream.script = script
    one = (len(body()) + 2_000) * 3.75 / 1e6 + 1_000 * 15 / 1e6  # cached prompts cost a quarter more
    with serving(upstream.url, tmp_path, capped(one * 2.5), models=PRICES) as hosted, ThreadPoolExecutor(6) as pool:

        def ask(_: int) -> int:
            with raw(hosted.address) as client:
                return client.ask(body(), CHAT, OWN).status

        asked = [pool.submit(ask, number) for number in range(6)]
        until(lambda: sum(one.done() for one in asked) >= 3)
        go_on.set()
        statuses = sorted(one.result() for one in asked)
    assert statuses[-3:] == [429, 429, 429]
    assert len(upstream.requests) <= 3


def test_a_stream_without_figures_is_counted_here(upstream: Upstream, tmp_path: Path) -> None:
    words = "a word and another one " * 200
    piece = json.dumps({"choices": [{"index": 0, "delta": {"role": "assistant", "content": words}}]}).encode()
    end = json.dumps({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}).encode()
    upstream.script = lambda exchange: exchange.stream(
        b"data: " + piece + b"\n\ndata: " + end + b"\n\ndata: [DONE]\n\n"
    )
    with serving(upstream.url, tmp_path, capped(5.0), models=PRICES) as hosted, raw(hosted.address) as client:
        assert client.ask(body(stream=True, max_tokens=20_000), CHAT, OWN).status == 200
        assert settled(tmp_path, 800 * 15 / 1e6) == pytest.approx(len(words) / 3 * 15 / 1e6, rel=0.5)


def test_a_client_that_leaves_after_a_word_pays_for_what_was_sent(upstream: Upstream, tmp_path: Path) -> None:
    def script(exchange: Exchange) -> None:
        exchange.begin()
        exchange.chunk(b'data: {"choices":[{"index":0,"delta":{"content":"x"}}]}\n\n')
        exchange.sees_hangup()

    upstream.script = script
    words = "some words of a long history " * 4_000  # 24,000 tokens, and 0.07 dollars
    asked = body(stream=True, messages=[{"role": "user", "content": words}])
    with serving(upstream.url, tmp_path, capped(5.0), models=PRICES, compression={"enabled": False}) as hosted:
        with raw(hosted.address) as client:
            client.begin(asked, CHAT, OWN)
            assert client.head().status == 200
            client.chunk()
        until(lambda: spent(tmp_path) == pytest.approx(0.075, abs=0.04))  # until then the whole answer is reserved


@pytest.mark.parametrize(
    ("sent", "headers"),
    [
        (b'{"model":"m","model":"dear","max_tokens":9,"messages":[{"role":"user","content":"x"}]}', []),
        (b'{"model":"m","Model":"dear","max_tokens":9,"messages":[{"role":"user","content":"x"}]}', []),
        (b'{"model":"m","max_tokens":9,"max_tokens":90000,"messages":[{"role":"user","content":"x"}]}', []),
        (body().decode().encode("utf-16"), []),
        (b"\xef\xbb\xbf" + body(), []),
        (body(), [("content-encoding", "xpress")]),
        (gzip.compress(gzip.compress(body())), [("content-encoding", "gzip, gzip")]),
        (gzip.compress(body()), [("content-encoding", "gzip"), ("content-encoding", "br")]),
        (body(model="nobody-knows"), []),
        (body(models=["dear"]), []),
        (body(service_tier="priority"), []),
        (body(tools=[{"type": "web_search_20250305", "name": "web_search"}]), []),
        (b"no json", []),
    ],
    ids=[
        "two models",
        "two cases",
        "two limits",
        "utf-16",
        "byte order mark",
        "unknown encoding",
        "packed twice",
        "two encodings",
        "unpriced",
        "other models",
        "priority",
        "server tool",
        "no json",
    ],
)
@pytest.mark.parametrize(
    "way", [[], [("x-everlong", "off")], [("x-everlong", "no-store")]], ids=["", "off", "no-store"]
)
@pytest.mark.spec("12.5")
def test_what_cannot_be_read_or_priced_is_refused_under_a_limit(
    sent: bytes, headers: list[tuple[str, str]], way: list[tuple[str, str]], upstream: Upstream, tmp_path: Path
) -> None:
    with serving(upstream.url, tmp_path, capped(5.0), models=PRICES) as hosted, raw(hosted.address) as client:
        for path in (CHAT, "/v1/messages"):
            assert client.ask(sent, path, [*OWN, *headers, *way]).status in {400, 403}
    assert upstream.requests == []


@pytest.mark.parametrize("path", [CHAT, "/v1/messages", "/v1/responses"])
def test_a_model_without_a_price_is_named_with_its_upstream_and_the_settings_to_write(
    path: str, upstream: Upstream, tmp_path: Path
) -> None:
    sent = {"model": "qwen-2.5:7b", "max_tokens": 100}
    sent |= {"input": "hi"} if path == "/v1/responses" else {"messages": [{"role": "user", "content": "hi"}]}
    with serving(upstream.url, tmp_path, capped(5.0), models=PRICES) as hosted, raw(hosted.address) as client:
        answer = client.ask(json.dumps(sent).encode(), path, OWN)
    assert answer.status == 403
    said = json.loads(answer.body)["error"]["message"]
    assert f"the price of 'qwen-2.5:7b' at the upstream {upstream.url} (provider custom) is not known" in said
    assert "set models.qwen-2.5:7b.input_price and models.qwen-2.5:7b.output_price in the gateway's config.yaml" in said
    prices = {"qwen-2.5:7b": {"input_price": 1.0, "output_price": 2.0}}
    with serving(upstream.url, tmp_path, capped(5.0), models=prices) as hosted, raw(hosted.address) as client:
        assert client.ask(json.dumps(sent).encode(), path, OWN).status == 200


@pytest.mark.parametrize(
    "fields",
    [
        {"n": "50"},
        {"n": [50]},
        {"n": 50.5},
        {"n": -5},
        {"best_of": "50"},
        {"web_search_options": {}},
        {"search_parameters": {"mode": "on"}},
        {"enable_search": True},
        {"extra_body": {"n": 50}},
        {"container": {"skills": [{"type": "anthropic", "skill_id": "xlsx"}]}},
        {"modalities": "audio"},
        {"service_tier": ["priority"]},
        {"speed": ["fast"]},
        {"inference_geo": "us"},
        {"tools": {"type": "web_search"}},
        {"tools": [[{"type": "web_search"}]]},
        {"tools": "web_search"},
        {"tools": [{"google_search": {}}]},
    ],
    ids=json.dumps,
)
def test_what_may_cost_more_than_can_be_told_is_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(Refused) as refused:
        _check_priced({"model": "m", "max_tokens": 10, **fields})
    assert refused.value.status == 400


def test_what_clients_usually_send_is_priced() -> None:
    _check_priced(
        {
            "model": "m",
            "max_tokens": 10,
            "n": 1,
            "stream": True,
            "background": False,
            "models": [],
            "plugins": None,
            "tools": [{"name": "f", "input_schema": {}}, {"type": "function", "function": {"name": "g"}}],
            "thinking": {"type": "adaptive"},
            "reasoning": {"effort": "high"},
            "service_tier": "auto",
            "modalities": ["text"],
            "store": False,
            "include": ["reasoning.encrypted_content"],
        }
    )


def test_what_the_provider_compacts_is_reserved_twice_for() -> None:
    edits = {"edits": [{"type": "compact_20260112"}]}
    assert _passes({"context_management": edits}) == 2
    assert _passes({"context_management": {"edits": [{"type": "clear_thinking_20251015"}]}}) == 1
    assert _passes({}) == 1


def test_many_answers_to_one_question_are_reserved_for(upstream: Upstream, tmp_path: Path) -> None:
    with serving(upstream.url, tmp_path, capped(0.05), models=PRICES) as hosted, raw(hosted.address) as client:
        assert client.ask(body(n=100), CHAT, OWN).status == 429
        assert client.ask(body(), CHAT, OWN).status == 200


def test_paths_that_cannot_be_priced_are_closed_under_a_limit(upstream: Upstream, tmp_path: Path) -> None:
    keys = capped(5.0, other_paths=True)
    with serving(upstream.url, tmp_path, keys, models=PRICES) as hosted, raw(hosted.address) as client:
        assert client.ask(body(), "/v1/messages/batches", OWN).status == 403
        assert client.ask(body(), "/v1/embeddings", OWN).status == 403
        assert client.ask(b"", "/v1/files", OWN, "GET").status == 200
        assert (
            client.ask(body(), "/v1/embeddings", [("Authorization", f"Bearer {BOB}")]).status == 403
        )  # has no such right
    assert len(upstream.requests) == 1


def test_a_response_is_counted_as_well(upstream: Upstream, tmp_path: Path) -> None:
    answer = {
        "id": "resp_1",
        "status": "completed",
        "output": [],
        "usage": {"input_tokens": 1_000, "output_tokens": 100},
    }
    upstream.script = lambda exchange: exchange.answer(json.dumps(answer).encode())
    asked = json.dumps({"model": "m", "input": "hi", "max_output_tokens": 1_000}).encode()
    with serving(upstream.url, tmp_path, capped(5.0), models=PRICES) as hosted, raw(hosted.address) as client:
        assert client.ask(asked, "/v1/responses", OWN).status == 200
        assert settled(tmp_path) == pytest.approx((1_000 * 3 + 100 * 15) / 1e6)


def test_an_error_of_the_upstream_costs_nothing(upstream: Upstream, tmp_path: Path) -> None:
    upstream.script = lambda exchange: exchange.answer(b'{"error":{"message":"no"}}', "400 No")
    with serving(upstream.url, tmp_path, capped(5.0), models=PRICES) as hosted, raw(hosted.address) as client:
        assert client.ask(body(), CHAT, OWN).status == 400
    assert spent(tmp_path) == 0.0
