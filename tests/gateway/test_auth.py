"""Who may use the gateway, whose conversations they reach, and with whose key their requests go on."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import anthropic
import openai
import pytest
from multidict import CIMultiDict

from everlong.config import Settings
from everlong.config.settings import GatewaySettings
from everlong.errors import ConfigError
from everlong.gateway.auth import Caller, Guard, check_bind
from everlong.gateway.routing import Routes
from everlong.store import Store
from everlong.testing import ModelServer
from tests.gateway.served import raw, serving
from tests.gateway.upstream import Upstream

ADA, BOB = "ada-made-up-gateway-key", "bob-made-up-gateway-key"
ASKED = b'{"model":"m","max_tokens":9,"messages":[{"role":"user","content":"hi"}]}'


def sha256(key: str) -> str:
    return hashlib.sha256(key.encode()).hexdigest()


KEYS = {"ada": {"sha256": sha256(ADA)}, "bob": {"sha256": sha256(BOB)}}


def guard(keys: dict[str, Any] | None = None, env: dict[str, str] | None = None) -> Guard:
    return Guard(GatewaySettings.model_validate({"keys": KEYS if keys is None else keys}), env or {})


def headers(**given: str) -> CIMultiDict[str]:
    return CIMultiDict({name.replace("_", "-"): value for name, value in given.items()})


@pytest.mark.parametrize(
    ("given", "tenant", "spoken"),
    [
        (headers(x_everlong_key=ADA), "ada", {"x-everlong-key"}),
        (headers(x_everlong_key=BOB, authorization="Bearer upstream-key"), "bob", {"x-everlong-key"}),
        (headers(authorization=f"Bearer {ADA}"), "ada", {"Authorization"}),
        (headers(authorization=f"bearer  {ADA} "), "ada", {"Authorization"}),
        (headers(x_api_key=BOB), "bob", {"x-api-key"}),
        (headers(authorization="Bearer upstream-key", x_api_key=BOB), "bob", {"x-api-key"}),
        (headers(authorization=f"Bearer {ADA}", x_api_key=ADA), "ada", {"Authorization", "x-api-key"}),
    ],
)
def test_a_key_is_known_wherever_clients_put_it(given: CIMultiDict[str], tenant: str, spoken: set[str]) -> None:
    caller = guard().admit(given)
    assert caller is not None
    assert (caller.tenant, set(caller.spoken)) == (tenant, spoken)


@pytest.mark.parametrize(
    "given",
    [
        headers(),
        headers(x_everlong_key="wrong"),
        headers(x_everlong_key=ADA[:-1]),
        headers(x_everlong_key=f"{ADA}x"),
        headers(x_everlong_key="wrong", authorization=f"Bearer {ADA}"),
        headers(authorization=f"Basic {ADA}"),
        headers(authorization=ADA),
        headers(x_everlong_key=sha256(ADA)),
        headers(x_everlong_key="\udcff"),
    ],
)
def test_whoever_has_no_key_stays_outside(given: CIMultiDict[str]) -> None:
    assert guard().admit(given) is None


@pytest.mark.parametrize(
    ("keys", "env", "words"),
    [
        ({"ada": {}}, {}, "must have either key_variable or sha256"),
        ({"ada": {"key_variable": "A", "sha256": sha256(ADA)}}, {"A": ADA}, "must have either"),
        ({"ada": {"key_variable": "ADA_KEY"}}, {}, "ADA_KEY, but no such environment variable is set"),
        ({"ada": {"key_variable": "ADA_KEY"}}, {"ADA_KEY": "short"}, "has 5 characters, but must have 16"),
        ({"ada": KEYS["ada"], "eve": KEYS["ada"]}, {}, "has the same key as gateway.keys.ada"),
    ],
)
def test_keys_that_are_none_are_told_at_the_start(keys: dict[str, Any], env: dict[str, str], words: str) -> None:
    with pytest.raises(ConfigError, match=words) as raised:
        guard(keys, env)
    assert ADA not in str(raised.value)


def test_without_keys_everybody_on_this_machine_is_local_but_no_web_page_of_others() -> None:
    assert guard({}).admit(headers(authorization="Bearer upstream-key")) == Caller("local")
    assert guard({}).admit(headers(origin="http://localhost:3000")) == Caller("local")
    assert guard({}).admit(headers(origin="https://elsewhere.example")) is None
    assert guard({}).admit(headers(origin="http://127.0.0.1.elsewhere.example")) is None
    assert guard({}).admit(headers(origin="null")) is None


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.7", "gateway.example", "localhost.example"])  # noqa: S104
def test_any_other_address_does(host: str) -> None:
    with pytest.raises(ConfigError, match=r"gateway\.keys\.NAME\.key_variable"):
        check_bind(GatewaySettings(), host)
    check_bind(GatewaySettings.model_validate({"keys": KEYS}), host)


def test_the_official_clients_see_a_refusal_of_their_own_kind(upstream: Upstream, tmp_path: Path) -> None:
    with serving(upstream.url, tmp_path, {"keys": KEYS}) as hosted:
        said: Any = [{"role": "user", "content": "hi"}]
        with (
            anthropic.Anthropic(base_url=hosted.address, api_key="wrong", max_retries=0) as claude,
            pytest.raises(anthropic.AuthenticationError),
        ):
            claude.messages.create(model="m", max_tokens=9, messages=said)
        with (
            openai.OpenAI(base_url=f"{hosted.address}/v1", api_key="wrong", max_retries=0) as gpt,
            pytest.raises(openai.AuthenticationError),
        ):
            gpt.chat.completions.create(model="m", messages=said)


@pytest.mark.parametrize("path", ["/v1/messages", "/v1/chat/completions", "/v1/models", "/v1/messages/count_tokens"])
def test_the_gateways_key_never_reaches_the_upstream(path: str, upstream: Upstream, tmp_path: Path) -> None:
    with serving(upstream.url, tmp_path, {"keys": KEYS}) as hosted, raw(hosted.address) as client:
        method = "GET" if path == "/v1/models" else "POST"
        body = b"" if method == "GET" else ASKED
        for given in (
            [("x-everlong-key", ADA)],
            [("Authorization", f"Bearer {ADA}")],
            [("x-api-key", ADA)],
            [("Authorization", f"Bearer {ADA}"), ("x-api-key", ADA)],
            [("X-Everlong-Key", ADA), ("Authorization", "Bearer upstream-key")],
        ):
            assert client.ask(body, path, given, method).status == 200
            assert ADA.encode() not in upstream.last.head
    assert upstream.last.header("authorization") == "Bearer upstream-key"


def test_two_keys_never_see_each_others_conversations(model: ModelServer, tmp_path: Path) -> None:
    said: list[Any] = [{"role": "user", "content": "the very same words"}]
    said += [{"role": "assistant", "content": "Understood."}, {"role": "user", "content": "go on"}]
    with serving(model.url, tmp_path, {"keys": KEYS}) as hosted:
        for key in (ADA, BOB):
            own = {"x-everlong-key": key}
            with openai.OpenAI(base_url=f"{hosted.address}/v1", api_key="own", default_headers=own) as gpt:
                # Whatever a client says of itself decides nothing.
                gpt.chat.completions.create(model="m", messages=said[:1], user="ada", metadata={"tenant": "ada"})
                gpt.chat.completions.create(model="m", messages=said, extra_headers={"x-everlong-session": "ada"})
    counts = {}
    for tenant in ("ada", "bob", "local"):
        with Store.open(tmp_path / "served.db", tenant) as store:
            counts[tenant] = len(store.sessions.newest(limit=10))
    assert counts == {"ada": 1, "bob": 1, "local": 0}


def routes(**gateway: Any) -> Routes:
    return Routes(Settings.model_validate({"gateway": gateway}))


def test_the_key_of_a_route_takes_the_place_of_the_clients(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHOP_KEY", "made-up-route-key")
    given = routes(routes={"claude-*": {"base_url": "http://shop.example", "key_variable": "SHOP_KEY"}})
    sent = headers(x_api_key="own", authorization="Bearer own")
    given.find("anthropic", "claude-x").authorize(sent)
    assert dict(sent) == {"x-api-key": "made-up-route-key"}
    other = headers(authorization="Bearer own")
    given.find("openai", "gpt-x").authorize(other)
    assert dict(other) == {"authorization": "Bearer own"}


def test_a_providers_key_goes_to_the_providers_own_address_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "made-up-provider-key")
    for url in ("https://api.anthropic.com.elsewhere.example", "https://notanthropic.com", "http://127.0.0.1:1"):
        given = routes(keys=KEYS, upstream=url).default["anthropic"]
        assert given.spare_key is None, url
    assert routes(keys=KEYS, upstream="https://eu.anthropic.com").default["anthropic"].spare_key


@pytest.mark.parametrize("path", ["/v1/messages", "/v1/chat/completions", "/v1/models", "/v1/messages/count_tokens"])
def test_an_upstream_that_wants_a_key_beside_the_gateways_is_told_in_our_words(
    path: str, upstream: Upstream, tmp_path: Path
) -> None:
    opaque = b'{"error":{"message":"no auth header"}}'
    upstream.script = lambda exchange: exchange.answer(opaque, "401 Unauthorized")
    with serving(upstream.url, tmp_path, {"keys": KEYS}) as hosted, raw(hosted.address) as client:
        method = "GET" if path == "/v1/models" else "POST"
        body = b"" if method == "GET" else ASKED
        alone = client.ask(body, path, [("Authorization", f"Bearer {ADA}")], method)
        beside = client.ask(body, path, [("x-everlong-key", ADA), ("Authorization", "Bearer own")], method)
    assert (alone.status, beside.status, beside.body) == (401, 401, opaque)
    said = alone.json()["error"]["message"]
    assert upstream.url in said
    assert "key_variable" in said
    assert "x-everlong-key" in said
    assert ADA not in said


def test_other_paths_open_with_a_key_for_the_upstream_or_where_they_are_allowed(
    upstream: Upstream, tmp_path: Path
) -> None:
    keys = {"ada": KEYS["ada"], "bob": {**KEYS["bob"], "other_paths": True}}
    with serving(upstream.url, tmp_path, {"keys": keys}) as hosted, raw(hosted.address) as client:
        refused = client.ask(b"", "/v1/files", [("Authorization", f"Bearer {ADA}")], "GET")
        own = client.ask(b"", "/v1/files", [("x-everlong-key", ADA), ("Authorization", "Bearer own")], "GET")
        allowed = client.ask(b"", "/v1/files", [("Authorization", f"Bearer {BOB}")], "GET")
    assert (refused.status, own.status, allowed.status) == (403, 200, 200)
    assert "gateway.keys.ada.other_paths" in refused.json()["error"]["message"]
