"""The books: tokens by kind, exact amounts, groups, and what compactions did to the requests after them."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from typing import Any

import pytest
from sqlalchemy import update

from everlong import StoreFull
from everlong.agent import AgentEvent, Notice
from everlong.agent.accounting import Effects, Estimate, account
from everlong.config import Settings
from everlong.model import Message
from everlong.providers.base import Usage
from everlong.providers.catalogue import Rates
from everlong.store import Compaction, Session, Store, Turn
from everlong.store.costs import Receipts
from everlong.store.schema import session as sessions, turn as turns
from everlong.testing import Ask
from tests.agent.conftest import Opened
from tests.testing_server.conftest import Serve

SONNET = "anthropic:claude-sonnet-5"
RATES = Rates(*map(Decimal, ("2", "10", "0.2", "2.5", "4")))
TALK: list[Message] = [{"role": "user", "content": "Which berth is free?"}]
NOON = 1_760_000_000.0
DAY = 86_400.0


def turn(number: int, began: float, view: int | None, **more: Any) -> Turn:
    made = Turn(number, "s", 1, b"", 1, view, SONNET, began, status="done", usage={}, reply=b"", ended=began + 1)
    return replace(made, **more)


def compaction(view: int, before: int, after: int) -> Compaction:
    return Compaction(
        id=view,
        session="s",
        child=None,
        branch=1,
        view_id=view,
        at=0.0,
        reason="threshold",
        engine="compressor",
        model=SONNET,
        summarizer=None,
        tokens_before=before,
        tokens_after=after,
        messages_before=9,
        messages_after=3,
        seconds=0.1,
        cost=None,
        fallback=None,
        quality=None,
        report=None,
    )


def test_the_first_request_after_a_compaction_sends_anew_what_was_moved_and_is_shorter_by_what_went() -> None:
    effects = Effects([compaction(7, 50_000, 12_000)], {})
    assert effects.take_turn(turn(1, 0, None), Usage(10, 0, 45_000, 3_000), RATES) == (Estimate(), Estimate())
    # 48,010 were sent before; 1,990 of the 12,000 would have been new in any case, and 2,000 were still read.
    anew, unsent = effects.take_turn(turn(2, 60, 7), Usage(20, 0, 2_000, 10_500), RATES)
    assert anew == Estimate(8_010, 8_010 * Decimal("2.3") / 1_000_000)
    assert unsent == Estimate(38_000, 38_000 * Decimal("0.2") / 1_000_000)


def test_tools_and_system_prompt_hide_nothing_that_was_sent_anew() -> None:
    """The engine counts messages only; 25,000 tokens stand before them and stay in the cache."""
    effects = Effects([compaction(7, 30_000, 6_000)], {})
    effects.take_turn(turn(1, 0, None), Usage(0, 0, 50_000, 5_000), RATES)
    anew, _ = effects.take_turn(turn(2, 60, 7), Usage(20, 0, 25_000, 7_000), RATES)
    assert anew.tokens == 6_000


def test_later_requests_are_shorter_until_the_next_compaction_priced_as_they_were_charged() -> None:
    effects = Effects([compaction(7, 50_000, 12_000), compaction(8, 40_000, 15_000)], {})
    effects.take_turn(turn(1, 0, None), Usage(0, 0, 50_000, 500), RATES)
    effects.take_turn(turn(2, 60, 7), Usage(0, 0, 0, 12_500), RATES)
    read = effects.take_turn(turn(3, 120, 7), Usage(0, 0, 12_500, 500), RATES)
    cold = effects.take_turn(turn(4, 9_000, 7), Usage(0, 0, 0, 14_000), RATES)
    plain = effects.take_turn(turn(5, 9_100, 7), Usage(14_500), RATES)
    assert [done[0] for done in (read, cold, plain)] == [Estimate()] * 3
    assert [done[1].tokens for done in (read, cold, plain)] == [38_000] * 3
    assert [done[1].cost * 1_000_000 / 38_000 for done in (read, cold, plain)] == [
        RATES.cache_read,
        RATES.cache_write,
        RATES.input,
    ]
    assert effects.take_turn(turn(6, 9_200, 8), Usage(0, 0, 0, 15_000), RATES)[1].tokens == 25_000


def test_an_undone_compaction_spares_nothing_and_one_that_a_fork_took_over_does() -> None:
    effects = Effects([compaction(7, 50_000, 12_000)], {9: 7})
    effects.take_turn(turn(1, 0, 7), Usage(0, 0, 0, 12_000), RATES)
    assert effects.take_turn(turn(2, 10, None), Usage(0, 0, 0, 50_000), RATES) == (Estimate(), Estimate())
    anew, unsent = effects.take_turn(turn(3, 20, 9, branch=2), Usage(0, 0, 11_000, 900), RATES)
    assert (anew, unsent.tokens) == (Estimate(), 38_000)


def begun(store: Store, title: str, parent: str | None = None) -> Session:
    made = store.sessions.start(store.record(TALK), from_depth=0, title=title)
    if parent is not None:
        change = update(sessions).where(sessions.c.id == made.id).values(parent=parent, conversation=parent)
        store.database.write(lambda connection: connection.execute(change))
    return made


def asked(store: Store, session: Session, at: float, model: str = SONNET, **usage: int) -> None:
    """A turn of that moment."""
    assert session.branch is not None
    number = store.turns.begin(store.branch(session.branch), model=model, session=session.id).id
    if usage:
        store.turns.finish(number, usage=usage)
    else:
        store.turns.finish(number, status="failed", error="nobody there")
    change = update(turns).where(turns.c.id == number).values(ts=at, ended=at + 1)
    store.database.write(lambda connection: connection.execute(change))


def test_calls_are_grouped_by_model_by_lineage_and_by_day(store: Store) -> None:
    first, other = begun(store, "Harbour"), begun(store, "Lighthouse")
    child = begun(store, "Harbour #2", parent=first.id)
    asked(store, first, NOON, input_tokens=1_000_000)
    asked(store, child, NOON + DAY, output_tokens=1_000_000)
    asked(store, other, NOON + DAY, "anthropic:claude-opus-5", cache_read_tokens=1_000_000)
    store.receipts.add(first.id, "summary", model="claude-sonnet-5", usage={"input_tokens": 500_000}, at=NOON + 5)
    by_model = account(store, Settings())
    assert {name: one.cost for name, one in by_model.groups.items()} == {
        "claude-opus-5": Decimal("0.5"),
        "claude-sonnet-5": Decimal(13),
    }
    assert by_model.total.cost == Decimal("13.5")
    assert by_model.total.uncached_cost == Decimal(18)
    by_session = account(store, Settings(), by="session")
    assert [(name, by_session.titles[name], one.calls) for name, one in by_session.groups.items()] == [
        (first.id, "Harbour", 3),
        (other.id, "Lighthouse", 1),
    ]
    by_day = account(store, Settings(), by="day")
    assert [one.calls for one in by_day.groups.values()] == [2, 2]
    assert account(store, Settings(), since=NOON + 6).total.calls == 2
    assert account(store, Settings(), session=child.id).total.calls == 3
    assert by_model.total.kinds["summary"].cost == Decimal(1)


def test_a_turn_with_look_ups_is_priced_by_its_requests_and_not_by_their_sum(store: Store) -> None:
    """Prompts of more than 200,000 tokens cost twice as much; three of 100,000 do not."""
    session = begun(store, "Harbour")
    asked(store, session, NOON, "anthropic:claude-sonnet-4-5", input_tokens=300_000, sent_tokens=100_000)
    asked(store, session, NOON, "anthropic:claude-sonnet-4-5", input_tokens=300_000)
    first, second = account(store, Settings()).entries
    assert (first.cost, second.cost) == (Decimal("0.9"), Decimal("1.8"))


def test_what_has_no_price_is_counted_in_tokens_and_named(store: Store) -> None:
    session = begun(store, "Harbour")
    asked(store, session, NOON, input_tokens=1_000_000)
    asked(store, session, NOON, "custom:tiny", input_tokens=7)
    asked(store, session, NOON)
    books = account(store, Settings())
    assert (books.total.tokens.input_tokens, books.total.cost) == (1_000_007, Decimal(2))
    assert (books.unpriced, books.total.unpriced_calls, books.total.unanswered) == (["custom:tiny"], 1, 1)
    tiny = books.groups["custom:tiny"].to_dict()
    assert (tiny["cost"], tiny["uncached_cost"], tiny["tokens"]["input_tokens"]) == (None, None, 7)
    own = Settings.model_validate({"models": {"custom:tiny": {"input_price": 0.1, "output_price": 0.3}}})
    assert account(store, own).groups["custom:tiny"].cost == Decimal("0.0000007")
    assert account(store, own).unpriced == []


def summarizing(ask: Ask) -> str:
    if "The conversation pauses here." in ask.last_user:
        return "## Goal\n- Give every boat a berth.\n## Progress\n### Done\n- Some berths were given."
    if ask.system.startswith("You keep the memory"):
        return "nothing"
    return f"The boat lies at berth {ask.number} now. " + "It was moored with two lines. " * 160


@pytest.mark.parametrize("is_broken", [False, True])
def test_every_call_on_the_side_leaves_a_receipt_and_trouble_with_that_is_a_notice_only(
    serve: Serve,
    opened: Opened,
    store: Store,
    heard: list[AgentEvent],
    monkeypatch: pytest.MonkeyPatch,
    is_broken: bool,
) -> None:
    def full(*_: object, **__: object) -> None:
        raise StoreFull("no room left on the disk")

    if is_broken:
        monkeypatch.setattr(Receipts, "add", full)
    server = serve(summarizing, window=16_000)
    agent = opened(server, settings={"memory": {"enabled": True}})
    for number in range(9):
        assert agent.run(f"Find a berth for boat {number} of the harbour.").stop == "end"
    line = store.conversations.parts(agent.conversation.session_id)
    assert len(line) >= 2
    found = [one for session in line for one in store.receipts.of_session(session.id)]
    notices = [event.text for event in heard if isinstance(event, Notice)]
    if is_broken:
        assert found == []
        assert any("no room left on the disk" in text and "everlong usage" in text for text in notices)
        return
    assert notices == []
    assert {one.kind for one in found} == {"summary", "memory"}
    assert {one.model for one in found} == {SONNET}
    asked = sum(1 for session in line for _ in store.turns.of_session(session.id))
    assert len(server.requests) == len(found) + asked
