"""A limit in dollars holds for every request that is passed on, whatever its client and its upstream do."""

from __future__ import annotations

import asyncio
import gzip
import json
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import openai
import pytest
from hypothesis import given, strategies as st

from everlong.agent.accounting import account
from everlong.config import ModelSettings, Settings
from everlong.gateway.auth import Refused
from everlong.gateway.budget import Budget, Charge, _check_priced
from everlong.gateway.formats import ANTHROPIC, OPENAI, RESPONSES, Dialect
from everlong.gateway.routing import Route
from everlong.gateway.window import Windows
from everlong.providers.endpoints import ModelName
from everlong.providers.openai_api import openai_usage
from everlong.store import Store
from everlong.store.costs import Days, Spending
from everlong.store.opening import open_database
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


@pytest.mark.spec("12.5")
@pytest.mark.parametrize(("name", "prices", "provider"), [("m", (3, 15), "corp"), ("gpt-4o", (2.5, 10), "elsewhere")])
def test_what_was_spent_has_the_price_by_which_the_request_was_let_in_and_that_the_books_show(
    model: ModelServer, tmp_path: Path, name: str, prices: tuple[float, float], provider: str
) -> None:
    own: dict[str, Any] = {"models": {"corp:m": PRICES["m"]}, "providers": {provider: {"base_url": model.url}}}
    with serving(model.url, tmp_path, capped(1.5), **own) as hosted, raw(hosted.address) as client:
        answer = client.ask(body(model=name), CHAT, [*OWN, ("Authorization", "Bearer made-up")])
    used = openai_usage(json.loads(answer.body)["usage"])
    paid = (used.prompt_tokens * prices[0] + used.output_tokens * prices[1]) / 1e6
    assert spent(tmp_path) == pytest.approx(paid)
    with Store.open(tmp_path / "served.db", "ada") as store:
        books = account(store, Settings(models={"corp:m": ModelSettings(**PRICES["m"])}))
    assert float(books.total.cost) == pytest.approx(paid)


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

        sends = [pool.submit(ask, number) for number in range(6)]
        until(lambda: sum(one.done() for one in sends) >= 3)
        go_on.set()
        statuses = sorted(one.result() for one in sends)
    assert statuses[-3:] == [429, 429, 429]
    assert len(upstream.requests) <= 3


@pytest.mark.parametrize("name", ["reserve", "settle"])
def test_a_database_that_hangs_keeps_nobody_waiting_and_no_dollars(
    name: str, upstream: Upstream, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("everlong.gateway.budget._HUNG_SECONDS", 0.1)
    real, released, done = getattr(Spending, name), threading.Event(), list[None]()

    def hang(*given: Any) -> Any:
        released.wait(PATIENCE)
        found = real(*given)
        done.append(None)
        return found

    monkeypatch.setattr(Spending, name, hang)
    with serving(upstream.url, tmp_path, capped(1.0), models=PRICES) as hosted, raw(hosted.address) as client:
        client.wire.socket.settimeout(PATIENCE / 2)
        assert client.ask(body(), CHAT, OWN).status == (503 if name == "reserve" else 200)
        released.set()
        until(lambda: done and spent(tmp_path) < 0.001)


def test_a_stream_without_figures_is_counted_here(upstream: Upstream, tmp_path: Path) -> None:
    words = "a word and another one " * 200
    piece = json.dumps({"choices": [{"index": 0, "delta": {"role": "assistant", "content": words}}]}).encode()
    end = json.dumps({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}).encode()
    upstream.script = lambda exchange: exchange.stream(
        b"data: " + piece + b"\n\ndata: " + end + b"\n\ndata: [DONE]\n\n"
    )
    with serving(upstream.url, tmp_path, capped(5.0), models=PRICES) as hosted, raw(hosted.address) as client:
        assert client.ask(body(stream=True, max_tokens=20_000), CHAT, OWN).status == 200
        until(lambda: spent(tmp_path) == pytest.approx(len(words) / 3 * 15 / 1e6, rel=0.5))


def test_a_client_that_leaves_after_a_word_pays_for_what_was_sent(upstream: Upstream, tmp_path: Path) -> None:
    def script(exchange: Exchange) -> None:
        exchange.begin()
        exchange.chunk(b'data: {"choices":[{"index":0,"delta":{"content":"x"}}]}\n\n')
        exchange.sees_hangup()

    upstream.script = script
    words = "some words of a long history " * 4_000  # 24,000 tokens, and 0.07 dollars
    sent = body(stream=True, messages=[{"role": "user", "content": words}])
    with serving(upstream.url, tmp_path, capped(5.0), models=PRICES, compression={"enabled": False}) as hosted:
        with raw(hosted.address) as client:
            client.begin(sent, CHAT, OWN)
            assert client.head().status == 200
            client.chunk()
        until(lambda: spent(tmp_path) == pytest.approx(0.075, abs=0.04))  # until then the whole answer is reserved


@pytest.mark.parametrize("fields", [{"model": "nobody-knows"}, {"max_tokens": 50_000}, {"user": "x" * 1_200_000}])
def test_a_request_over_the_limit_is_no_conversation_and_no_failed_call(
    fields: dict[str, Any], upstream: Upstream, tmp_path: Path
) -> None:
    with serving(upstream.url, tmp_path, capped(0.03), models=PRICES) as hosted, raw(hosted.address) as client:
        for headers in (OWN, [*OWN, ("x-everlong-session", "mine")]):
            assert client.ask(body(**fields), CHAT, headers).status in {403, 429}
    assert not upstream.requests
    with Store.open(tmp_path / "served.db", "ada") as store:
        assert list(store.sessions.newest()) == []
        assert account(store, Settings()).total.unanswered == 0


UNPRICED: list[tuple[bytes, list[tuple[str, str]]]] = [
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
]


@pytest.mark.parametrize("way", [[], [("x-everlong", "off")]], ids=["", "off"])
@pytest.mark.spec("12.5")
def test_what_cannot_be_read_or_priced_is_refused_under_a_limit(
    way: list[tuple[str, str]], upstream: Upstream, tmp_path: Path
) -> None:
    with serving(upstream.url, tmp_path, capped(5.0), models=PRICES) as hosted:
        for sent, headers in UNPRICED:
            with raw(hosted.address) as client:
                for path in (CHAT, "/v1/messages"):
                    assert client.ask(sent, path, [*OWN, *headers, *way]).status in {400, 403}, (sent, headers)
    assert upstream.requests == []


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


ODD_LIMITS: list[Any] = [-1, -100_000, 0, 10**400, 1e300, 0.5, "5", True, [5], {"tokens": 5}]


DIALECTS = {CHAT: "max_tokens", "/v1/messages": "max_tokens", "/v1/responses": "max_output_tokens"}


def asked(path: str, content: Any = "hi", **more: Any) -> bytes:
    """Return a request with one message in the dialect of a path."""
    name = "input" if path == "/v1/responses" else "messages"
    return json.dumps({"model": "m", name: [{"role": "user", "content": content}], **more}).encode()


@pytest.mark.spec("12.5")
@pytest.mark.parametrize("path", DIALECTS)
def test_an_odd_limit_of_an_answer_is_no_limit(path: str, upstream: Upstream, tmp_path: Path) -> None:
    # The longest answer costs 1.50 dollars.
    with serving(upstream.url, tmp_path, capped(1.0), models=PRICES) as hosted, raw(hosted.address) as client:
        for odd in ODD_LIMITS:
            answer = client.ask(asked(path, **{DIALECTS[path]: odd}), path, OWN)
            assert (odd, answer.status) == (odd, 429)
        assert client.ask(asked(path, **{DIALECTS[path]: 1_000}), path, OWN).status == 200
    assert len(upstream.requests) == 1


LENGTHENING: list[tuple[str, dict[str, Any]]] = [
    (CHAT, {"max_output_tokens": 5}),
    ("/v1/responses", {"max_tokens": 5}),
    (CHAT, {"max_tokens": 5, "max_completion_tokens": 90_000}),
    (CHAT, {"max_tokens": 5, "max_completion_tokens": -1}),
    (CHAT, {"max_tokens": 5, "thinking_budget": 90_000}),
    (CHAT, {"max_tokens": 5, "chat_template_kwargs": {"thinking_budget": -1}}),
    (CHAT, {"max_tokens": 5, "reasoning": {"max_tokens": 90_000}}),
    (CHAT, {"max_tokens": 1_000, "n": 100}),
    (CHAT, {"max_tokens": 1_000, "best_of": 100}),
    ("/v1/messages", {"max_tokens": 5, "thinking": {"type": "enabled", "budget_tokens": 90_000}}),
    (CHAT, {"max_tokens": 5, "prediction": {"type": "content", "content": "word " * 20_000}}),
]


def test_everything_that_lengthens_an_answer_is_reserved_for(upstream: Upstream, tmp_path: Path) -> None:
    with serving(upstream.url, tmp_path, capped(1.0), models=PRICES) as hosted, raw(hosted.address) as client:
        for path, fields in LENGTHENING:
            assert (fields, client.ask(asked(path, **fields), path, OWN).status) == (fields, 429)
    assert upstream.requests == []


AMBIGUOUS = [
    b'{"model":"m","max_tokens":9,"thinking":{"budget_tokens":9,"budget_tokens":90000},"messages":[]}',
    b'{"model":"m","max_tokens":9,"tools":[{"type":"function","type":"web_search"}],"messages":[]}',
    b'{"model":"m","max_tokens":9,"n":1000000,"messages":[]}',
    b'{"model":"m","max_tokens":9,"n":1%s,"messages":[]}' % (b"0" * 400),
]


def test_what_two_servers_may_read_differently_is_refused_under_a_limit(upstream: Upstream, tmp_path: Path) -> None:
    with serving(upstream.url, tmp_path, capped(1.0), models=PRICES) as hosted, raw(hosted.address) as client:
        assert [client.ask(sent, CHAT, OWN).status for sent in AMBIGUOUS] == [400] * len(AMBIGUOUS)
    assert upstream.requests == []


HEARD: list[tuple[str, dict[str, Any]]] = [
    ("/v1/responses", {"type": "input_audio", "input_audio": {"data": "AA==", "format": "wav"}}),
    (CHAT, {"type": "input_audio", "input_audio": {"data": "AA==", "format": "wav"}}),
    (CHAT, {"type": "audio_url", "audio_url": {"url": "https://example.org/a.mp3"}}),
    (CHAT, {"type": "video_url", "video_url": {"url": "https://example.org/a.mp4"}}),
    (CHAT, {"type": "file", "file": {"file_data": "data:audio/mpeg;base64,AA=="}}),
    (CHAT, {"type": "image_url", "image_url": {"url": "DATA:video/mp4;base64,AA=="}}),
]
ELSEWHERE: list[tuple[str, dict[str, Any]]] = [
    ("/v1/responses", {"type": "input_image", "image_url": "https://example.org/a.png"}),
    ("/v1/responses", {"type": "input_image", "file_id": "file-1"}),
    ("/v1/responses", {"type": "input_file", "file_url": "https://example.org/a.pdf"}),
    (CHAT, {"type": "image_url", "image_url": {"url": "https://example.org/a.png"}}),
    (CHAT, {"type": "image_url", "image_url": "https://example.org/a.png"}),
    (CHAT, {"type": "file", "file": {"file_id": "file-1"}}),
    (CHAT, {"image_url": "https://example.org/a.png"}),
    ("/v1/messages", {"type": "image", "source": {"type": "url", "url": "https://example.org/a.png"}}),
    ("/v1/messages", {"type": "image", "source": {"type": "file", "file_id": "file_1"}}),
    ("/v1/messages", {"type": "document", "source": {"type": "url", "url": "https://example.org/a.pdf"}}),
    ("/v1/messages", {"type": "container_upload", "file_id": "file_1"}),
]


@pytest.mark.spec("12.5")
def test_what_is_not_in_the_request_is_reserved_for(upstream: Upstream, tmp_path: Path) -> None:
    # A full window costs 0.30 dollars and more; the words around it cost nearly nothing.
    with serving(upstream.url, tmp_path, capped(0.25), models=PRICES) as hosted, raw(hosted.address) as client:
        for path, part in ELSEWHERE:
            text = {"type": "input_text" if path == "/v1/responses" else "text", "text": "What is this?"}
            written = asked(path, [text, part], **{DIALECTS[path]: 100})
            escaped = written.replace(b'"image_url": "', b'"im\\u0061ge_url": "').replace(b'"url"', b'"\\u0075rl"')
            for sent in (written, escaped):
                assert (sent, client.ask(sent, path, OWN).status) == (sent, 429)
        assert upstream.requests == []
        assert client.ask(asked(CHAT, [{"type": "text", "text": "hi"}], max_tokens=100), CHAT, OWN).status == 200


def test_a_prompt_beyond_the_known_window_is_reserved_for(upstream: Upstream, tmp_path: Path) -> None:
    # A full window costs 0.30 dollars; some upstreams serve a larger one to clients that ask for it in a header.
    off = [*OWN, ("x-everlong", "off"), ("anthropic-beta", "context-1m-2025-08-07")]
    with serving(upstream.url, tmp_path, capped(1.0), models=PRICES) as hosted, raw(hosted.address) as client:
        within, beyond = (asked("/v1/messages", "word " * words, max_tokens=100) for words in (90_000, 500_000))
        assert client.ask(beyond, "/v1/messages", off).status == 429
        assert upstream.requests == []
        assert client.ask(within, "/v1/messages", off).status == 200


@pytest.mark.spec("12.5")
def test_sounds_films_and_searches_that_have_prices_of_their_own_are_refused(budget: Budget) -> None:
    def refused(model: str, path: str, *parts: dict[str, Any]) -> str:
        kind = {CHAT: OPENAI, "/v1/messages": ANTHROPIC, "/v1/responses": RESPONSES}[path]
        written = json.dumps(json.loads(asked(path, [*parts], max_tokens=5)) | {"model": model}).encode()
        with pytest.raises(Refused) as found:
            asyncio.run(budget.reserve(Charge("ada", 1e9), written, kind, model, Route("http://x", kind.api, "openai")))
        return found.value.message

    for path, part in HEARD:
        assert "sounds" in refused("gpt-audio", path, {"type": "text", "text": "What is this?"}, part)
    for model in ("gpt-4o-search-preview", "gpt-5-search-api", "perplexity/sonar-pro", "o3-deep-research", "m:online"):
        assert "looks things up" in refused(model, CHAT)


def test_pictures_are_reserved_and_settled_at_their_own_price(budget: Budget) -> None:
    used = openai_usage({"prompt_tokens": 1_000_000, "completion_tokens": 1_000_000})
    drawn = budget.cost(ModelName("openrouter", "google/gemini-3-pro-image"), used)
    assert drawn is None or drawn > 0
    with_pictures = budget.cost(ModelName("openai", "chatgpt-image-latest"), used)
    assert with_pictures == pytest.approx(8 + 32)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)
FIELDS = [
    *("max_tokens", "max_completion_tokens", "max_output_tokens", "n", "best_of"),
    *("thinking", "thinking_budget", "reasoning", "prediction"),
]


@pytest.fixture(scope="module")
def budget(tmp_path_factory: pytest.TempPathFactory) -> Any:
    database = open_database(tmp_path_factory.mktemp("budget") / "store.db")
    yield Budget(database, Windows(Settings.model_validate({"models": PRICES})))
    database.close()


@pytest.mark.spec("12.5")
@given(
    dialect=st.sampled_from([OPENAI, ANTHROPIC, RESPONSES]),
    fields=st.dictionaries(st.sampled_from(FIELDS), JSON | st.just(10**400)),
    content=st.text(max_size=50) | JSON,
)
def test_a_reservation_covers_what_a_request_costs_at_least(
    budget: Budget, dialect: Dialect, fields: dict[str, Any], content: Any
) -> None:
    said = [{"role": "user", "content": content}]
    words = json.dumps({"model": "m", dialect.list_name: said, **fields}).encode()
    charge, route = Charge("ada", 1e9), Route("http://localhost", dialect.api, "custom")
    with suppress(Refused):
        asyncio.run(budget.reserve(charge, words, dialect, "m", route))
    if charge.sends:
        answers = fields.get("n") or 1 if dialect is OPENAI else 1
        least = (len(str(content)) / 10 * 3 + answers * 15) / 1e6  # no token has more than ten letters here
        assert charge.sends[0].held.dollars >= least


def test_the_gateways_own_summaries_count_against_the_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WRITER_KEY", "made-up-key")
    models = {"m": {**PRICES["m"], "context_length": 8_000}, "w": PRICES["m"]}
    said: list[dict[str, Any]] = []
    with ModelServer("Go on.", window=8_000) as model, ModelServer("## Goal\nSail at dawn.") as writer:
        providers = {"shop": {"base_url": f"{writer.url}/v1", "key_variable": "WRITER_KEY"}}
        own = {**capped(50.0), "summaries": "shop:w"}
        with (
            serving(model.url, tmp_path, own, models=models, providers=providers) as hosted,
            raw(hosted.address) as client,
        ):
            for number in range(12):
                said.append({"role": "user", "content": f"Question {number}: " + "words of the harbour " * 150})
                sent = body(messages=said, max_tokens=200)
                assert client.ask(sent, CHAT, headers=[*OWN, ("Authorization", "Bearer theirs")]).status == 200
                said.append({"role": "assistant", "content": "Go on."})
        used = [openai_usage(one.usage) for one in (*model.requests, *writer.requests)]
        assert writer.requests
        billed = sum(3 * one.prompt_tokens + 15 * one.output_tokens for one in used) / 1e6
        assert spent(tmp_path) == pytest.approx(billed)


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
