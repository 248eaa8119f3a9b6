"""A client that asks for the size of a conversation is told the size of what would be sent."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import anthropic
import pytest

from everlong.testing import ModelServer
from tests.gateway.running import Running, run_gateway
from tests.gateway.upstream import Exchange, Upstream

MODEL = "claude-sonnet-5"
WINDOW = 16_000
SETTINGS: dict[str, Any] = {"models": {MODEL: {"context_length": WINDOW}}}
SYSTEM = "You keep the log of a harbour."


def talk(claude: anthropic.Anthropic, messages: list[Any], turns: int) -> None:
    """Go on for some turns, with all of the history each time."""
    for turn in range(turns):
        messages.append({"role": "user", "content": f"Entry {turn}: " + f"ship {turn} came in at berth {turn}. " * 60})
        said = claude.messages.create(model=MODEL, max_tokens=100, system=SYSTEM, messages=messages)
        messages.append({"role": "assistant", "content": [block.to_dict() for block in said.content]})


def stored(running: Running) -> list[Any]:
    """How many turns, messages and sessions there are."""
    counts = ["SELECT count(*) FROM turn", "SELECT count(*) FROM node", "SELECT count(*) FROM session"]
    with running.store().database.read() as connection:
        return [connection.exec_driver_sql(count).scalar() for count in counts]


@pytest.mark.spec("4.2")
def test_of_a_compacted_conversation_what_would_be_sent_is_counted(tmp_path: Path) -> None:
    messages: list[Any] = []
    with (
        ModelServer(window=WINDOW) as model,
        run_gateway(model.url, str(tmp_path / "g.db"), SETTINGS) as running,
        anthropic.Anthropic(base_url=running.url, api_key="k", max_retries=0) as claude,
        anthropic.Anthropic(base_url=model.url, api_key="k", max_retries=0) as direct,
    ):
        talk(claude, messages, 30)
        messages.append({"role": "user", "content": "How many ships?"})
        before, known = stored(running), running.gateway.conversations
        told = claude.messages.count_tokens(model=MODEL, system=SYSTEM, messages=messages).input_tokens
        again = claude.messages.count_tokens(model=MODEL, system=SYSTEM, messages=messages).input_tokens
        assert (stored(running), running.gateway.conversations) == (before, known), "a look leaves no trace"
        usage = claude.messages.create(model=MODEL, max_tokens=100, system=SYSTEM, messages=messages).usage
        whole = direct.messages.count_tokens(model=MODEL, system=SYSTEM, messages=messages).input_tokens
        sent = (usage.cache_read_input_tokens or 0) + (usage.cache_creation_input_tokens or 0) + usage.input_tokens
        assert told == again == sent < WINDOW < whole
        other = [{"role": "user", "content": "Another conversation. " * 900}, *messages[1:]]
        assert claude.messages.count_tokens(model=MODEL, messages=other).input_tokens > WINDOW


def test_of_any_other_conversation_the_clients_own_bytes_are_counted(upstream: Upstream, tmp_path: Path) -> None:
    counted: list[bytes] = []

    def script(exchange: Exchange) -> None:
        if exchange.received.target.endswith("count_tokens"):
            counted.append(exchange.received.body)
            exchange.answer(b'{"input_tokens":7}')
        else:
            exchange.answer(b'{"type":"message","role":"assistant","content":[{"type":"text","text":"yes"}]}')

    upstream.script = script
    with run_gateway(upstream.url, str(tmp_path / "g.db"), SETTINGS) as running, running.raw() as client:
        said = [{"role": "user", "content": "ship " * 20_000}, {"role": "assistant", "content": "yes"}]
        long = {"model": MODEL, "max_tokens": 9, "messages": [*said * 3, {"role": "user", "content": "on"}]}
        assert client.ask(json.dumps(long).encode()).status == 200
        assert len(upstream.last.body) < 100_000, "it was compacted"
        for body in (
            b'{ "model":"claude-sonnet-5", "messages" : [ {"role":"user","content":"\\u00fcber 1.0"} ] }',
            b'{"model":"claude-sonnet-5","messages":[]}',
            b'{"model":"claude-sonnet-5","messages":[5,{"role":"user"}]}',
        ):
            assert client.ask(body, "/v1/messages/count_tokens").json() == {"input_tokens": 7}
            assert counted[-1] == body


NO_MODEL = b'{ "type":"error","error":{"type":"not_found_error","message":"model: claude-nope"},"request_id":"r1" }'


def test_a_model_that_the_upstream_does_not_know_is_said_and_the_upstream_is_asked_again(
    upstream: Upstream, relay: Running
) -> None:
    said: list[Any] = [(NO_MODEL, "404 Not Found"), (b'{"input_tokens":999}', "200 OK")]
    said.append((b'{"type":"error","error":{"type":"authentication_error","message":"no"}}', "401 Unauthorized"))
    upstream.script = lambda exchange: exchange.answer(*said.pop(0))
    hello: list[Any] = [{"role": "user", "content": "hello"}]
    with anthropic.Anthropic(base_url=relay.url, api_key="k", max_retries=0) as claude:
        with pytest.raises(anthropic.NotFoundError, match="claude-nope") as caught:
            claude.messages.count_tokens(model="claude-nope", messages=hello)
        assert caught.value.response.content == NO_MODEL
        assert claude.messages.count_tokens(model=MODEL, messages=hello).input_tokens == 999
        with pytest.raises(anthropic.AuthenticationError):
            claude.messages.count_tokens(model=MODEL, messages=hello)
