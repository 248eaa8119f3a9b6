"""What one key or folder says, and its upstream says to it, changes nothing for another."""

from __future__ import annotations

import asyncio
import json
import threading
import uuid
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from everlong.config import Settings
from everlong.gateway.compaction import ConversationCompactor
from everlong.gateway.formats import path_of_folder
from everlong.gateway.summaries import MOST_A_DAY, Summaries
from everlong.gateway.window import Windows
from everlong.store import Store
from everlong.testing import ModelServer
from tests.examples import length
from tests.gateway.running import run_gateway
from tests.gateway.served import raw, serving
from tests.gateway.test_auth import ADA, BOB, KEYS
from tests.gateway.upstream import Exchange, Upstream
from tests.gateway.world import World, answer_to, problems_in, slowly

CHAT = "/v1/chat/completions"


def own(key: str) -> list[tuple[str, str]]:
    return [("x-everlong-key", key), ("Authorization", "Bearer made-up")]


def talk(turns: int) -> list[dict[str, Any]]:
    said = [
        {"role": role, "content": f"{role} {at} " + "words " * 200}
        for at in range(turns)
        for role in ("user", "assistant")
    ]
    return [*said, {"role": "user", "content": "and now?"}]


def answer(exchange: Exchange) -> None:
    """Answer as an API that quotes what it does not understand."""
    body = json.loads(exchange.received.body)
    odd = [one["role"] for one in body["messages"] if one["role"] not in {"system", "user", "assistant"}]
    if odd:
        exchange.answer(json.dumps({"error": {"message": f"Invalid value: '{odd[0]}'."}}).encode(), "400 Bad Request")
        return
    message = {"role": "assistant", "content": "ok"}
    usage = {"prompt_tokens": 6_000, "completion_tokens": 1, "total_tokens": 6_001}
    told = {
        "id": "c",
        "object": "chat.completion",
        "choices": [{"index": 0, "finish_reason": "stop", "message": message}],
    }
    exchange.answer(json.dumps({**told, "model": "m", "usage": usage}).encode())


def compacting(exchange: Exchange) -> None:
    """Answer as an API that compacts, and knows one model."""
    if json.loads(exchange.received.body)["model"] != "m":
        exchange.answer(b'{"error":{"message":"There is no such model."}}', "404 Not Found")
        return
    item = {"type": "compaction", "id": "cmp_1", "encrypted_content": "theirs"}
    told = {"id": "resp_1", "object": "response", "status": "completed", "model": "m", "output": [item]}
    usage = {"input_tokens": 9, "output_tokens": 9, "total_tokens": 18}
    exchange.answer(json.dumps({**told, "usage": usage}).encode())


def test_a_window_that_a_client_has_the_upstream_name_is_that_of_nobody_else(
    upstream: Upstream, tmp_path: Path
) -> None:
    upstream.script = answer
    lie = "maximum context length is 1500 tokens, and your messages resulted in 9000 tokens"
    with serving(upstream.url, tmp_path, {"keys": KEYS}) as hosted, raw(hosted.address) as client:
        asked: dict[str, Any] = {"model": "m", "messages": [*talk(4), {"role": lie, "content": "x"}]}
        assert client.ask(json.dumps(asked).encode(), CHAT, own(ADA)).status == 400
        asked = {"model": "m", "messages": talk(20)}
        assert client.ask(json.dumps(asked).encode(), CHAT, own(BOB)).status == 200
        assert json.loads(upstream.last.body)["messages"] == asked["messages"]
        asked["messages"] += [{"role": "assistant", "content": "ok"}, {"role": "user", "content": "go on"}]
        assert client.ask(json.dumps(asked).encode(), CHAT, own(BOB)).status == 200
        assert json.loads(upstream.last.body)["messages"] == asked["messages"]


def test_a_cookie_that_an_upstream_sets_for_one_key_is_sent_for_no_other(upstream: Upstream, tmp_path: Path) -> None:
    upstream.script = lambda exchange: exchange.answer(headers=[("Set-Cookie", "session=ada; Path=/")])
    named = upstream.url.replace("127.0.0.1", "localhost")  # of an address no cookies are kept
    body = json.dumps({"model": "m", "messages": talk(1)}).encode()
    with serving(named, tmp_path, {"keys": KEYS}) as hosted, raw(hosted.address) as client:
        given = [client.ask(body, CHAT, own(key)).header("set-cookie") for key in (ADA, BOB)]
    assert given == ["session=ada; Path=/"] * 2
    assert [one.header("cookie") for one in upstream.requests] == [None, None]


def test_an_upstream_that_quotes_a_client_is_asked_for_the_usage_of_others(upstream: Upstream, tmp_path: Path) -> None:
    upstream.script = answer
    with serving(upstream.url, tmp_path, {"keys": KEYS}) as hosted, raw(hosted.address) as client:
        for key, role in ((ADA, "stream_options"), (BOB, "user")):
            asked = {"model": "m", "stream": True, "messages": [{"role": role, "content": "hi"}]}
            client.ask(json.dumps(asked).encode(), CHAT, own(key))
    assert [b'"include_usage"' in one.body for one in upstream.requests] == [True, False, True]


def test_a_refused_compaction_of_one_key_keeps_that_of_another_from_no_upstream(
    upstream: Upstream, tmp_path: Path
) -> None:
    upstream.script = compacting
    said = [{"type": "message", "role": "user", "content": "hi"}, {"type": "compaction_trigger"}]
    with serving(upstream.url, tmp_path, {"keys": KEYS}) as hosted, raw(hosted.address) as client:
        for key, model, content in ((ADA, "nope", "everlong-compaction"), (BOB, "m", "theirs")):
            asked = {"model": model, "store": False, "input": said}
            found = client.ask(json.dumps(asked).encode(), "/v1/responses", own(key)).json()
            assert found["output"][0]["encrypted_content"].startswith(content)


def test_the_summaries_that_one_key_asks_for_are_counted_for_no_other() -> None:
    settings = Settings()
    summaries = Summaries(settings, Mock(), Windows(settings), Mock())
    assert [summaries._take("ada") for _ in range(MOST_A_DAY + 1)].count(False) == 1
    assert summaries._take("bob")


def test_slow_work_for_one_key_keeps_no_other_waiting() -> None:
    async def work() -> None:
        compactor = ConversationCompactor(Settings(), Mock(), Mock(), Mock(), Mock())
        is_over = threading.Event()
        slow = [asyncio.ensure_future(compactor.patient.run("ada", is_over.wait)) for _ in range(100)]
        assert await compactor.patient.run("bob", lambda: 7) == 7
        is_over.set()
        await asyncio.gather(*slow)
        await compactor.close()

    asyncio.run(work())


def test_the_threads_of_all_keys_together_are_bounded() -> None:
    async def work() -> None:
        compactor, before = ConversationCompactor(Settings(), Mock(), Mock(), Mock(), Mock()), threading.active_count()
        is_over = threading.Event()
        slow = [asyncio.ensure_future(compactor.patient.run(f"key {number}", is_over.wait)) for number in range(500)]
        await asyncio.sleep(0)
        assert threading.active_count() - before < 300
        is_over.set()
        await asyncio.gather(*slow)
        await compactor.close()

    asyncio.run(work())


def test_those_who_begin_alike_in_two_folders_are_two_conversations_each_in_its_folder(tmp_path: Path) -> None:
    asked = json.dumps({"model": "m", "messages": [{"role": "user", "content": "Which port?"}]}).encode()
    folders = [tmp_path / "ferry", tmp_path / "tide"]
    with (
        ModelServer(["It is 1.", "It is 2."]) as model,
        run_gateway(model.url, str(tmp_path / "s.db")) as running,
        running.raw() as client,
    ):
        for folder in folders:
            assert client.ask(asked, path_of_folder(folder) + CHAT, [("authorization", "Bearer k")]).status == 200
            running.store()  # once it is stored
        found = list(running.store().conversations.newest())
    assert sorted(str(one.folder) for one in found) == sorted(map(str, folders))


CONVERSATIONS = length(40, 12)
STEPS = 4


def tenants() -> list[str]:
    return [f"{name}-{uuid.uuid4().hex[:8]}" for name in ("ada", "ben", "cleo")]


@pytest.mark.parametrize("seed", range(1, 1 + length(2, 1)))
def test_every_turn_is_where_it_belongs_after_a_restart_too(seed: int, tmp_path: Path) -> None:
    path = str(tmp_path / "store.db")
    world = World(seed, tenants(), CONVERSATIONS // 2)
    with ModelServer(answer_to, faults=slowly) as model:
        for _ in range(2):
            with run_gateway(model.url, path) as running:
                world.go_on(STEPS, lambda: [running.port])
        assert not model.rejections
        with Store.open(path) as opened:
            assert problems_in(world, lambda tenant: Store(opened.database, tenant)) == []


@pytest.mark.soak
def test_every_turn_is_where_it_belongs_with_two_replicas_of_which_one_is_restarted(postgres_url: str) -> None:
    world = World(3, tenants(), CONVERSATIONS // 2)
    with ModelServer(answer_to, faults=slowly) as model, run_gateway(model.url, postgres_url) as lasting:
        for _ in range(2):
            with run_gateway(model.url, postgres_url) as running:
                world.go_on(STEPS, lambda: [lasting.port, running.port])
        assert not model.rejections
        assert problems_in(world, lasting.store) == []


@pytest.mark.soak
def test_every_turn_is_where_it_belongs_in_conversations_that_are_compacted(tmp_path: Path) -> None:
    path, window = str(tmp_path / "store.db"), 8_000
    settings = {"models": {name: {"context_length": window} for name in ("claude-sonnet-5", "gpt-test")}}
    world = World(4, tenants(), CONVERSATIONS // 4, padding=" and so on" * 250)
    with ModelServer(answer_to, window=window) as model:
        for _ in range(2):
            with run_gateway(model.url, path, settings) as running:
                world.go_on(2 * STEPS, lambda: [running.port])
        assert not model.rejections
        with Store.open(path) as opened:
            stores = [Store(opened.database, tenant) for tenant in world.tenants]
            assert sum(len(store.compactions()) for store in stores) > 4
            assert problems_in(world, lambda tenant: Store(opened.database, tenant)) == []
