"""``everlong usage``: what was paid for, as a table, as JSON and as a picture."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from everlong import Message, Session, Store
from everlong.store import Occasion
from tests.cli.conftest import Run, add_session
from tests.store.engines import ScriptedEngine, summarizing

SONNET = "anthropic:claude-sonnet-5"
TALK: list[Message] = [{"role": "user", "content": "Which berth is free?"}]


@pytest.fixture
def usage(run: Run, store_file: Path) -> Run:
    """``everlong usage`` on a store of its own."""
    return lambda *arguments: run("usage", "--store", str(store_file), *arguments)


def asked(store: Store, session: Session, model: str = SONNET, **tokens: Any) -> None:
    assert session.branch is not None
    number = store.turns.begin(store.branch(session.branch), model=model, session=session.id).id
    store.turns.finish(number, usage=tokens)


@pytest.fixture
def filled(store_file: Path) -> list[Session]:
    """Two sessions: one with a call and a summary, one with a call to a model whose price nobody knows."""
    with Store.open(store_file) as store:
        made = [add_session(store, TALK, title) for title in ("Harbour", "Lighthouse")]
        asked(store, made[0], input_tokens=1_000, cache_read_tokens=2_000_000, output_tokens=50_000)
        store.receipts.add(made[0].id, "summary", model=SONNET, usage={"output_tokens": 100_000})
        asked(store, made[1], "custom:tiny", input_tokens=77)
        return made


def test_a_table_has_tokens_and_dollars_and_what_caching_saved(usage: Run, filled: list[Session]) -> None:
    shown = usage().out
    assert [line.split() for line in shown.splitlines()[:3]] == [
        ["model", "calls", "fresh", "cached", "written", "out", "paid", "uncached"],
        ["claude-sonnet-5", "2", "1,000", "2,000,000", "0", "150,000", "$1.90", "$5.50"],
        ["custom:tiny", "1", "77", "0", "0", "0", "?", "?"],
    ]
    assert "in total" in shown
    assert "on the side, in these figures: 1 call for a summary $1.00" in shown
    assert "caching saved $3.60, 65% of the price without it" in shown
    assert "no price is known for 1 call to custom:tiny" in shown
    assert len(filled) == 2


def test_requests_without_a_reported_usage_are_told(usage: Run, store_file: Path) -> None:
    with Store.open(store_file) as store:
        made = add_session(store, TALK, "Harbour")
        asked(store, made, input_tokens=10, estimated=True)
        assert made.branch is not None
        number = store.turns.begin(store.branch(made.branch), model=SONNET, session=made.id).id
        store.turns.finish(number, status="failed", error="it broke off")
    shown = usage().out
    assert "for 1 call the provider reported no usage; Everlong counted the tokens" in shown
    assert "1 request failed; its cost is unknown" in shown


def test_what_no_cache_has_saved_is_no_remark(usage: Run, store_file: Path) -> None:
    with Store.open(store_file) as store:
        asked(store, add_session(store, TALK, "Harbour"), input_tokens=10)
    assert "caching" not in usage().out


def test_a_compaction_without_a_call_is_no_row(usage: Run, store_file: Path) -> None:
    with Store.open(store_file) as store:
        made = add_session(store, [*TALK, {"role": "assistant", "content": "Berth 4."}] * 3, "Harbour")
        asked(store, made, input_tokens=1_000)
        store.compact(store.branch(made.branch or 0), ScriptedEngine(summarizing(1, 4)), Occasion("manual", made.id))
    told = usage("--json").json
    assert [one["model"] for one in told["groups"]] == ["claude-sonnet-5"]
    assert told["total"]["compaction"]["count"] == 1


def test_why_the_cache_was_missed_is_summed_up_by_reason(usage: Run, store_file: Path) -> None:
    with Store.open(store_file) as store:
        made = add_session(store, TALK, "Harbour")
        for reason, tokens in (("tools", 100_000), ("time", 400_000), ("tools", 50_000), ("made up", 9)):
            missed: Any = {"reason": reason, "tokens": tokens}
            asked(store, made, input_tokens=10, cache_write_tokens=500_000, cache_miss=missed)
    shown = usage().out
    # Writing costs $2.50 a million and reading $0.20.
    assert "3 calls missed the cache: 550,000 tokens paid for again, $1.26 more than to read them" in shown
    assert [line.split()[:5] for line in shown.splitlines() if " x " in line] == [
        ["time", "1", "x", "400,000", "$0.9200"],
        ["tools", "2", "x", "150,000", "$0.3450"],
    ]
    assert usage("--json").json["total"]["cache_misses"] == {
        "tools": {"calls": 2, "tokens": 150_000, "cost": "0.345"},
        "time": {"calls": 1, "tokens": 400_000, "cost": "0.92"},
    }
