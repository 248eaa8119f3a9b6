"""What holds while an engine is in use: conversations that go on after a compaction, providers that count otherwise."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from everlong.context import ContextCompressor
from everlong.context.invariants import check_all
from everlong.context.literals import summary_indices
from everlong.errors import TargetUnreachable
from everlong.model import Message
from everlong.testing.strategies import conversations
from tests.context.brute_force import least_possible, most_allowed
from tests.context.engines import Setup, many_examples, repaired, setups, some_examples
from tests.context.protocol import looks_like_summary, notes, problems, role_problems
from tests.wild import wild_conversations

setup = setups()


@pytest.mark.spec("5.4", "5.5")
@some_examples
@given(wild_conversations(), st.lists(wild_conversations(), min_size=1, max_size=2), setup)
def test_a_conversation_that_goes_on_compacts_again_as_well(
    messages: list[Message], further: list[list[Message]], setup: Setup
) -> None:
    engine = setup.engine()
    for more in further:
        messages = [*engine.compress(messages), *more]
    mended = repaired(messages)
    # The engine knows its own summary by memory, also where nothing beside it tells.
    summaries = summary_indices(mended, engine.protect_first_n, engine._summaries)
    result = engine.compress(messages)
    size = sum(engine.counter.counts(result))
    assert check_all(result, mended, summaries) == []
    assert problems(result) + role_problems(result) == []
    assert size <= sum(engine.counter.counts(mended))
    assert size <= most_allowed(engine, mended)


@pytest.mark.spec("5.4", "5.5")
@many_examples
@given(st.lists(conversations(), min_size=2, max_size=4), setup)
def test_there_is_one_summary_and_one_note_however_often_a_conversation_is_compacted(
    parts: list[list[Message]], setup: Setup
) -> None:
    engine = setup.engine()
    messages: list[Message] = [{"role": "system", "content": "You are a careful agent."}]
    for part in parts:
        messages = engine.compress([*messages, *(m for m in part if m["role"] != "system")])
        assert sum(map(looks_like_summary, messages)) == notes(messages) <= 1


@pytest.mark.spec("5.2", "5.9")
@many_examples
@given(
    wild_conversations(),
    st.sampled_from((0.3, 0.9, 1.3, 3.0)),
    st.sampled_from((0, 100, 300, 1_000, 5_000)),
    st.sampled_from((0, 700)),
)
def test_a_target_is_met_in_the_providers_own_tokens(
    messages: list[Message], scale: float, target: int, overhead: int
) -> None:
    engine = ContextCompressor(8_000, overhead_tokens=overhead)
    said: list[Message] = [{"role": "user", "content": "how many tokens is this?\n" * 200}]
    engine.should_compress_preflight(said)
    engine.update_from_response({"prompt_tokens": int(engine.counter.total(said) * scale) + overhead})
    try:
        engine.compress(messages, target_tokens=target)
    except TargetUnreachable as unreachable:
        target = unreachable.least
        engine.compress(messages, target_tokens=target)
    report = engine.last_report
    assert report is not None
    assert report.tokens_after <= target


@pytest.mark.spec("1.2", "4.1")
@many_examples
@given(wild_conversations(), st.sampled_from((0, 500, 7_000)))
def test_a_compacted_conversation_is_not_compacted_again_at_once(messages: list[Message], overhead: int) -> None:
    engine = ContextCompressor(32_000, overhead_tokens=overhead)
    result = engine.compress(messages)
    least = least_possible(repaired(messages), engine.counter) + overhead
    if least <= engine.threshold_tokens:
        assert engine.last_prompt_tokens <= engine.threshold_tokens
        assert engine.estimate_tokens(result) == engine.last_prompt_tokens
