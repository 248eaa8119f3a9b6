"""What the ledger promises for any request that a client could send."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from everlong.caching import PromptCache
from everlong.caching.blocks import RequestView, layout_of
from everlong.caching.markers import strip_markers
from tests.caching.requests import MODEL, Body, bodies, markers_in
from tests.examples import examples

pytestmark = pytest.mark.spec("6.4")

some = settings(max_examples=examples(60), deadline=None, suppress_health_check=[HealthCheck.too_slow])
"""Each example is a whole session, and some of their texts are long."""

LIVES = st.sampled_from(({}, {"cache_ttl": "1h"}))


def made(provider: str, settings: dict[str, Any] | None = None) -> PromptCache:
    return PromptCache(MODEL, provider, settings={"strategy": "ledger", **(settings or {})}, clock=lambda: 0.0)


def view(provider: str, body: Body) -> RequestView:
    found = RequestView(provider)
    found.update(body, layout_of(provider, body))
    return found


def growing(body: Body) -> Iterator[Body]:
    """The latest requests that led to a conversation."""
    for end in range(max(1, len(body["messages"]) - 5), len(body["messages"]) + 1):
        yield {**body, "messages": body["messages"][:end]}


@some
@given(bodies(), LIVES)
def test_there_are_never_more_than_four_markers_the_clients_own_included(
    case: tuple[str, Body], lives: dict[str, Any]
) -> None:
    provider, body = case
    cache = made(provider, lives)
    for at, request in enumerate(growing(body)):
        assert len(markers_in(cache.apply(request, 30.0 * at))) <= 4


@some
@given(bodies(), LIVES)
def test_five_minutes_never_stand_before_an_hour(case: tuple[str, Body], lives: dict[str, Any]) -> None:
    provider, body = case
    cache = made(provider, lives)
    bare = strip_markers(body, texts=False)  # what a client mixed up itself stays mixed up
    for at, request in enumerate(growing(bare)):
        sent = view(provider, cache.apply(request, 200.0 * at))
        found = [sent.blocks[place].marker or "" for place in sent.marked]
        assert found == sorted(found)  # "1h" sorts before "5m"


@some
@given(bodies())
def test_taking_the_markers_off_gives_back_the_request(case: tuple[str, Body]) -> None:
    provider, body = case
    sent = made(provider).apply(body, 0.0)
    assert strip_markers(sent) == strip_markers(body)


@some
@given(bodies())
def test_each_request_is_a_block_prefix_of_the_next(case: tuple[str, Body]) -> None:
    provider, body = case
    if any(block.kind == "image" for block in view(provider, body).blocks):
        return  # the first picture of a conversation invalidates its messages, by the rules
    if layout_of(provider, {**body, "messages": body["messages"][:1]}) != layout_of(provider, body):
        return  # a conversation that shows its format only later
    cache = made(provider)
    before: list[bytes] = []
    leading = True
    for at, request in enumerate(growing(body)):
        chain = view(provider, cache.apply(request, 30.0 * at)).chain
        leading = leading and request["messages"][-1]["role"] in ("system", "developer")
        if not leading:
            assert chain[: len(before)] == before
            before = chain
