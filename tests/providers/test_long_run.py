"""A conversation that outgrows its window many times over, on a server that fails now and then: nothing is refused."""

from __future__ import annotations

import pytest

from everlong import ContextCompressor, ContextOverflow, Message
from everlong.providers import Provider, Reply, Retrying, RetryPolicy
from everlong.testing import Answer, Ask, Call, ModelServer
from everlong.testing.server.exchange import FaultKind
from tests.api_rules.faults import ManualClock, random_faults
from tests.providers.conftest import APIS, Connect, asked
from tests.testing_server.conftest import Serve

WINDOW = 6_000
TOOLS = [{"type": "function", "function": {"name": "read_file", "parameters": {"type": "object", "properties": {}}}}]
PASSING: tuple[FaultKind, ...] = ("rate_limit", "server_error", "overloaded", "silent", "overflow")


def worker(ask: Ask) -> Answer:
    """Read two files for every request, then answer."""
    if ask.results:
        return Answer(f"Done with request {ask.number}.")
    thinking = "Two files." if ask.api == "anthropic" else None
    return Answer("Reading.", [Call("read_file", {"path": f"src/{n}.py"}) for n in range(2)], thinking=thinking)


def answered(provider: Provider, engine: ContextCompressor, messages: list[Message]) -> tuple[Reply, list[Message]]:
    """One call, with a compaction before it where that is due and after it where the server says it was too long."""
    if engine.should_compress_preflight(messages):
        messages = engine.compress(messages)
    for _ in range(3):
        try:
            reply = asked(provider, messages, streamed=True, tools=TOOLS, max_tokens=500)
        except ContextOverflow:
            messages = engine.compress(messages)
            continue
        engine.update_from_response(reply.usage.to_dict())
        return reply, [*messages, reply.message]
    raise AssertionError("three compactions did not make it fit")


@pytest.mark.spec("4.1")
@pytest.mark.parametrize("api", APIS)
def test_forty_requests_with_tools_in_a_small_window(serve: Serve, connected: Connect, api: str) -> None:
    faults = random_faults(11, 0.1, PASSING)
    server: ModelServer = serve(worker, window=WINDOW, faults=faults, alternate_roles=True)
    clock = ManualClock()
    provider = Retrying(connected(api, server), RetryPolicy(attempts=8), sleep=clock.sleep)
    engine = ContextCompressor(WINDOW, model=provider.model, overhead_tokens=600)
    messages: list[Message] = [{"role": "system", "content": "You maintain a small project."}]
    for number in range(40):
        messages = [*messages, {"role": "user", "content": f"Request {number}: look at src/{number}.py again."}]
        reply, messages = answered(provider, engine, messages)
        while reply.calls:
            results = [
                {"role": "tool", "tool_call_id": call.id, "content": f"line {number} of the file\n" * 40}
                for call in reply.calls
            ]
            reply, messages = answered(provider, engine, [*messages, *results])
    assert engine.compression_count > 3
    assert [record.error for record in server.rejections] == []
    assert any(record.fault for record in server.requests)
    assert max(record.prompt_tokens for record in server.requests) + 500 <= WINDOW
