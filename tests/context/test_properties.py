"""What holds for every conversation that a client could send, whatever the window and the settings."""

from __future__ import annotations

import copy
import json
import os
import subprocess
import sys
from collections.abc import Sequence

import pytest
from hypothesis import given, strategies as st

from everlong.context import ContextCompressor, boundary, pruning
from everlong.context.invariants import check_all
from everlong.context.literals import COMPACTION_NOTE, SUMMARY_PREFIX, summary_indices
from everlong.context.report import CompactionReport
from everlong.errors import TargetUnreachable
from everlong.model import Message, leading_system_count
from everlong.testing.strategies import conversations
from tests.context import brute_force
from tests.context.brute_force import least_possible, most_allowed
from tests.context.engines import Setup, many_examples, repaired, setups, some_examples
from tests.context.protocol import (
    latest_request,
    looks_inserted,
    looks_like_summary,
    notes,
    own_summaries,
    problems,
    role_problems,
    words,
)
from tests.wild import wild_conversations

conversation = wild_conversations()
setup = setups()


def compacted(messages: list[Message], setup: Setup) -> tuple[list[Message], CompactionReport]:
    """What an engine makes of a conversation, and what it says about that."""
    engine = setup.engine()
    result = engine.compress(messages)
    assert engine.last_report is not None
    return result, engine.last_report


def tokens(engine_setup: Setup, messages: Sequence[Message]) -> int:
    return sum(engine_setup.engine().counter.counts(messages))


@pytest.mark.spec("1.1", "5.2", "5.4", "5.9")
@many_examples
@given(conversation, setup)
def test_a_result_satisfies_every_invariant_by_rules_written_independently_and_fits_or_is_the_least_possible(
    messages: list[Message], setup: Setup
) -> None:
    engine = setup.engine()
    result, mended = engine.compress(messages, focus_topic=setup.focus), repaired(messages)
    assert check_all(result, mended) == []
    assert problems(result) == []
    assert role_problems(result) == []
    size = tokens(setup, result)
    assert size <= tokens(setup, mended)
    assert size <= most_allowed(engine, mended)
    own, kept_as_they_were = [words(message) for message in messages], [bones(message) for message in mended]
    for message in result:
        if looks_like_summary(message):
            begin = words(message).split("\n[…")[0]
            assert any(text.startswith(begin) for text in own) or words(message).startswith(f"{SUMMARY_PREFIX}\n\n")
        elif not looks_inserted(message):
            assert bones(message) in kept_as_they_were


def bones(message: Message) -> Message:
    """A message without its words."""
    content = message.get("content")
    parts = content if isinstance(content, list) else []
    thinking = [part for part in parts if isinstance(part, dict) and part.get("type") == "thinking"]
    return {**message, "content": thinking}


@pytest.mark.spec("5.4")
@many_examples
@given(conversation)
def test_a_repaired_list_is_valid_and_repairing_it_again_changes_nothing(messages: list[Message]) -> None:
    mended = repaired(messages)
    assert problems(mended) == []
    assert role_problems(mended) == []
    assert repaired(mended) == mended


@pytest.mark.spec("5.9")
@many_examples
@given(conversation, setup)
def test_the_input_is_left_as_it_is_and_equal_engines_give_equal_results(messages: list[Message], setup: Setup) -> None:
    before, as_text = copy.deepcopy(messages), json.dumps(messages)
    identities = [id(message) for message in messages]
    result = setup.compress(messages)
    assert result == setup.compress(copy.deepcopy(messages))
    result.clear()
    assert messages == before
    assert json.dumps(messages) == as_text
    assert [id(message) for message in messages] == identities


@pytest.mark.spec("5.5", "5.9")
@many_examples
@given(conversation, setup)
def test_a_second_compaction_at_once_changes_nothing(messages: list[Message], setup: Setup) -> None:
    engine = setup.engine()
    once = engine.compress(messages, focus_topic=setup.focus, force=True)
    assert engine.compress(once, focus_topic=setup.focus, force=True) == once
    # The first message of a list without a system prompt is known for a summary only by the engine that wrote it.
    if own_summaries(once) or not any(map(looks_like_summary, once)):
        assert setup.compress(once, force=True) == once


@pytest.mark.spec("5.2")
@many_examples
@given(conversation, setup)
def test_the_latest_user_message_stands_word_for_word_after_the_summary(messages: list[Message], setup: Setup) -> None:
    latest = latest_request(repaired(messages))
    result, report = compacted(messages, setup)
    start = 0
    if report.outcome == "summarized":
        start = 1 + next(index for index, message in enumerate(result) if looks_like_summary(message))
    assert latest is None or latest in result[start:]


@pytest.mark.spec("5.4")
@many_examples
@given(conversation, setup)
def test_the_system_prompt_keeps_its_words_and_gains_one_note(messages: list[Message], setup: Setup) -> None:
    mended = repaired(messages)
    result, report = compacted(messages, setup)
    system = mended[: leading_system_count(mended)]
    kept = result[: len(system)]
    assert [message["role"] for message in kept] == [message["role"] for message in system]
    for was, now in zip(system, kept, strict=True):
        assert words(now) in (words(was), "\n".join(filter(None, (words(was), COMPACTION_NOTE))))
    if report.outcome == "summarized" and system:
        assert notes(kept) == max(1, notes(system))
    else:
        assert notes(kept) == notes(system)


@pytest.mark.spec("5.4", "5.5")
@many_examples
@given(conversation, setup)
def test_a_summarized_conversation_has_one_summary_more_than_what_was_kept_of_it(
    messages: list[Message], setup: Setup
) -> None:
    result, report = compacted(messages, setup)
    if report.outcome == "summarized":
        at = next(index for index, message in enumerate(result) if looks_like_summary(message))
        assert words(result[at]).startswith(f"{SUMMARY_PREFIX}\n\n")
        kept = repaired(messages)[report.boundaries.tail_start :]
        if report.latest_user_repeated:
            latest = latest_request(repaired(messages))
            assert latest is not None
            kept = [latest, *kept]
        assert sum(map(looks_like_summary, result)) == 1 + sum(map(looks_like_summary, kept))


@pytest.mark.spec("5.2", "5.4")
@many_examples
@given(conversation, setup)
def test_the_tail_is_the_inputs_own_messages_unless_they_were_shortened(messages: list[Message], setup: Setup) -> None:
    result, report = compacted(messages, setup)
    if report.outcome != "summarized":
        return
    tail = repaired(messages)[report.boundaries.tail_start :]
    kept = result[len(result) - len(tail) :]
    changed = [index for index, (was, now) in enumerate(zip(tail, kept, strict=True)) if was != now]
    assert len(changed) <= report.results_shortened + report.results_cleared
    assert all(tail[index]["role"] != "user" for index in changed)
    if not report.repaired:
        own = {id(message) for message in messages}
        assert all(id(now) in own for index, now in enumerate(kept) if index not in changed)


@pytest.mark.spec("5.2", "5.9")
@many_examples
@given(conversation, setup, st.sampled_from((0, 50, 200, 300, 500, 1_000, 3_000, 20_000)))
def test_a_target_is_met_or_the_error_names_a_least_that_can_be_reached(
    messages: list[Message], setup: Setup, target: int
) -> None:
    try:
        result = setup.compress(messages, target_tokens=target)
    except TargetUnreachable as error:
        unreachable = error
    else:
        assert tokens(setup, result) <= target
        assert check_all(result, repaired(messages)) == []
        assert problems(result) == []
        return
    smallest = setup.compress(messages, target_tokens=unreachable.least)
    assert target < unreachable.least
    assert tokens(setup, smallest) <= unreachable.least
    mended = repaired(messages)
    latest = latest_request(mended)
    never_yields = [*mended[: leading_system_count(mended)], *([] if latest is None else [latest])]
    assert tokens(setup, never_yields) <= unreachable.least
    if not any(message["role"] == "function" or looks_inserted(message) for message in mended):
        counter = setup.engine().counter
        slack = brute_force.SLACK * (1 + sum(message["role"] == "tool" for message in mended))
        assert unreachable.least <= least_possible(mended, counter) + slack


@pytest.mark.spec("5.9")
def test_results_do_not_depend_on_how_python_hashes() -> None:
    program = (
        "import hashlib, json\n"
        "from bench.conversations import conversation\n"
        "from everlong import ContextCompressor\n"
        "results = [ContextCompressor(w).compress(conversation(80)) for w in (4000, 16000)]\n"
        "print(hashlib.sha256(json.dumps(results).encode()).hexdigest())\n"
    )
    digests = {
        subprocess.run(
            [sys.executable, "-c", program],
            env={**os.environ, "PYTHONHASHSEED": seed},
            check=True,
            capture_output=True,
            text=True,
        ).stdout
        for seed in ("0", "4242")
    }
    assert len(digests) == 1


def test_the_brute_force_reads_the_contract_with_the_same_numbers() -> None:
    assert brute_force.LEAST_SUMMARY == boundary.LEAST_SUMMARY
    assert brute_force.SHORTEST_RESULT == pruning.SHORTEST_RESULT
    assert brute_force.SHORTEST_TEXT == pruning.SHORTEST_TEXT


# -- engines in use ----------------------------------------------------------------------------------------------------


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
