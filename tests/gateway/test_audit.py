"""Audit mode: requests pass as they come, and what would have been done to them is reckoned afterwards."""

from __future__ import annotations

import json
from decimal import Decimal
from itertools import pairwise
from pathlib import Path
from typing import Any

from hypothesis import given, strategies as st

from everlong.agent.accounting import Tokens, account
from everlong.config import Settings
from everlong.gateway.audit import audit, shorten
from everlong.store import Store
from everlong.testing import ModelServer
from tests.gateway.running import Running, run_gateway

API = [("x-api-key", "own"), ("anthropic-version", "2023-06-01")]
MODEL = "claude-sonnet-5"
AUDIT = {"gateway": {"mode": "audit"}}
SMALL: dict[str, Any] = {
    "models": {MODEL: {"context_length": 32_000}},
    "compression": {"threshold": 0.4, "protect_last_n": 4},
}
WORDS = "The tide gauge was read again and found in order. "
MARK = {"type": "ephemeral"}


def talk(running: Running, turns: int, *, marks: bool = False) -> list[bytes]:
    """A conversation of so many turns; the bodies that its client sent."""
    said: list[dict[str, Any]] = []
    sent = []
    with running.raw() as raw:
        for number in range(turns):
            said.append({"role": "user", "content": [{"type": "text", "text": f"{number}: {WORDS * 60}"}]})
            body = {"model": MODEL, "max_tokens": 50, "system": WORDS * 120, "messages": json.loads(json.dumps(said))}
            if marks:
                body["messages"][-1]["content"][-1]["cache_control"] = MARK
            sent.append(json.dumps(body, indent=1).encode())
            answer = raw.ask(sent[-1], headers=API)
            assert answer.status == 200, answer.body
            said.append({"role": "assistant", "content": answer.json()["content"]})
    return sent


def test_markers_that_would_have_been_put_in_read_what_the_real_cache_reads(model: ModelServer, tmp_path: Path) -> None:
    settings = Settings()
    with run_gateway(model.url, str(tmp_path / "audit.db"), AUDIT) as running:
        talk(running, 12)
        found = audit(running.store(), settings)
    model.requests.clear()
    with run_gateway(model.url, str(tmp_path / "active.db")) as running:
        talk(running, 12)
        real = [Tokens.of(turn.usage or {}) for turn in running.store().turns.since()]
    assert [one.tokens.cache_read for one in found.requests] == [0] * 12
    assert [one.tokens.prompt for one in found.requests] == [one.prompt for one in real]
    for one, actual in zip(found.requests, real, strict=True):
        assert one.marked.prompt == actual.prompt
        assert abs(one.marked.cache_read - actual.cache_read) <= 0.05 * actual.prompt
    assert all(one.markers for one in found.requests)
    with Store.open(tmp_path / "active.db") as store:
        paid = account(store, settings).total.cost
    would = sum((one.marked_cost or Decimal(0) for one in found.requests), Decimal(0))
    assert abs(would - paid) <= Decimal("0.1") * paid
    assert found.saved_by_markers > 0


def test_compactions_would_have_come_at_the_threshold_and_held_from_the_next_request_on(
    model: ModelServer, tmp_path: Path
) -> None:
    with run_gateway(model.url, str(tmp_path / "store.db"), {**SMALL, **AUDIT}) as running:
        talk(running, 30, marks=True)
        store, settings = running.store(), Settings.model_validate(SMALL)
        whole = audit(store, settings)
        assert whole.summaries_cost is None  # how long a model's summaries are, nobody knows yet
        (one,) = store.conversations.newest()
        store.receipts.add(one.id, "summary", model=MODEL, usage={"output_tokens": 1_000})
        paid = account(store, settings).total.kinds["summary"].cost
        found = whole.requests
        assert audit(store, settings).summaries_cost == paid * sum(bool(each.compaction) for each in found)
    at = [number for number, one in enumerate(found) if one.compaction]
    assert at
    first = found[at[0]]
    assert first.compaction == "threshold"
    assert 0.4 * 32_000 <= first.tokens.prompt < 0.4 * 32_000 + 1_500
    assert all(one.shown == one.tokens for one in found[: at[0] + 1])
    after, later = found[at[0] + 1], found[at[0] + 2]
    assert after.shown.prompt == after.tokens.prompt - first.freed
    assert after.shown.cache_read < after.tokens.cache_read - first.freed  # what was moved is sent anew
    assert after.shown.written > after.tokens.written
    assert later.shown.prompt == later.tokens.prompt - first.freed
    assert later.shown.cache_read == later.tokens.cache_read - first.freed
    assert later.shown.written == later.tokens.written
    assert max(one.shown.prompt for one in found) < 0.85 * 32_000 < max(one.tokens.prompt for one in found)
    assert all(two - one > 3 for one, two in pairwise(at))


TOKENS = st.builds(Tokens, *(st.integers(0, 100_000) for _ in range(5)))


@given(TOKENS, st.integers(0, 100_000), st.integers(0, 100_000), st.booleans())
def test_no_token_is_made_up_or_lost(tokens: Tokens, freed: int, fixed: int, is_first: bool) -> None:
    found = shorten(tokens, freed, fixed, is_first=is_first)
    assert found.prompt == max(0, tokens.prompt - freed)
    assert found.output == tokens.output
    assert min(found.to_dict().values()) >= 0
    assert found.cache_read <= max(0, tokens.cache_read - freed)
    if freed and is_first:
        assert found.cache_read <= fixed
