"""Markers and tools are put between a client's bytes: nothing that it wrote is written anew."""

from __future__ import annotations

import json
import random
from typing import Any

from hypothesis import given, strategies as st

from everlong.caching import PromptCache
from everlong.gateway.body import read_body
from everlong.gateway.conversations import AppliedView, with_view
from everlong.gateway.formats import ANTHROPIC, OPENAI
from everlong.gateway.prompt_caching import CacheMarkers
from everlong.gateway.requests import offer_tools
from tests.gateway.bodies import REQUESTS, draft, line, odd, settings, unmarked

RNG = st.randoms(use_true_random=False)
STRATEGIES = st.sampled_from(["ledger", "system_and_3"])
MODEL = "claude-opus-5"


def places_are_right(found: Any) -> None:
    read = read_body(found.body, "messages")
    assert found.start == read.start
    assert [found.entry(number) for number in range(len(found.ends))] == [(one.start, one.end) for one in read.entries]
    assert dict(found.fields) == {**read.before, **read.after}


@given(REQUESTS, RNG, STRATEGIES)
def test_a_marked_body_says_what_the_strategy_says_in_the_clients_own_bytes(
    request: dict[str, Any], rng: random.Random, strategy: str
) -> None:
    body = odd(request, rng).encode()
    sent = CacheMarkers(settings(strategy)).marked(line(), draft(body), MODEL, "anthropic")
    cache = PromptCache(MODEL, "anthropic", settings=settings(strategy))
    assert json.loads(sent) == cache.apply(json.loads(body))
    assert unmarked(sent) == body
    assert sent != body


@given(REQUESTS, RNG, st.data())
def test_places_are_known_after_a_view_was_put_in(
    request: dict[str, Any], rng: random.Random, data: st.DataObject
) -> None:
    count = len(request["messages"])
    lead = data.draw(st.integers(0, count - 1))
    covers = data.draw(st.integers(lead + 1, count))
    edits = {at: b'{"role":"user","content":"edited"}' for at in range(covers, count) if data.draw(st.booleans())}
    entries = [b'{"role":"user","content":"so far"}', b'{"role":"assistant","content":"yes"}']
    note = data.draw(st.none() | st.just("a note"))
    view = AppliedView(1, covers, b",".join(entries), (len(entries[0]), len(entries[0] + entries[1]) + 1), note, edits)
    body = odd(request, rng).encode()
    read = read_body(body, "messages")
    at = line(lead, [one.end for one in read.entries])
    dialect = OPENAI if lead else ANTHROPIC
    sent = with_view(body, read, dialect, at, view)
    places_are_right(sent)
    told = json.loads(sent.body)["messages"]
    assert told[lead : lead + 2] == [json.loads(entry) for entry in entries]
    for number in range(covers, count):
        kept = body[read.entries[number].start : read.entries[number].end]
        place = sent.entry(lead + 2 + number - covers)
        assert sent.body[slice(*place)] == edits.get(number, kept)
    if note is not None and dialect is ANTHROPIC and request.get("system"):
        given = json.loads(body)["system"]
        given = [{"type": "text", "text": given}] if isinstance(given, str) else given
        assert json.loads(sent.body)["system"] == [*given, {"type": "text", "text": note}]
        assert body[slice(*draft(body).fields["system"])].rstrip(b"] \t\r\n") in sent.body
    places_are_right(offer_tools(dialect, sent))
