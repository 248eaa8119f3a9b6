"""When a compaction fires, when it is held back, and how an exact size is reached."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from bench.retention.ranking import request_for

from everlong import CompressionSettings, ContextCompressor
from everlong.context.invariants import check_all
from everlong.context.report import Quality, check_summary, compare_lists
from tests.context.builders import assistant, call, long_session, output, summaries, system, tokens, user


@pytest.mark.spec("4.1")
def test_it_fires_at_the_threshold_and_not_before() -> None:
    engine = ContextCompressor(200_000)
    assert [engine.should_compress(n) for n in (99_999, 100_000, 100_001)] == [False, True, True]


@pytest.mark.spec("3.1")
def test_switched_off_it_never_fires_but_still_compacts_by_hand() -> None:
    engine = ContextCompressor(8_000, settings=CompressionSettings(enabled=False))
    assert engine.should_compress(1_000_000) is False
    assert len(summaries(engine.compress(long_session(60)))) == 1


@pytest.mark.spec("5.8")
def test_two_compactions_that_did_not_help_hold_back_the_next_until_the_conversation_has_grown() -> None:
    engine = ContextCompressor(8_000)
    stuck = [system(output(9_000)), user("Go."), assistant("Yes.")]
    for _ in range(2):
        assert engine.should_compress(engine.estimate_tokens(stuck)) is True
        engine.compress(stuck)
    size = engine.estimate_tokens(stuck)
    assert engine.should_compress(size) is False
    assert engine.should_compress(size + engine.budgets.tail_tokens - 1) is False
    (held,) = engine.held_back
    assert f"{held.next_at:,}" in held.explain()
    assert engine.should_compress(size + engine.budgets.tail_tokens) is True


@pytest.mark.spec("5.8")
def test_a_compaction_that_helped_ends_the_holding_back() -> None:
    engine = ContextCompressor(8_000)
    for _ in range(3):
        engine.compress([user("nothing to do")])
    engine.compress(long_session(60))
    assert engine.should_compress(engine.threshold_tokens) is True


@pytest.mark.spec("5.8")
def test_a_switch_to_another_model_ends_the_holding_back() -> None:
    engine = ContextCompressor(8_000)
    for _ in range(2):
        engine.compress([user("nothing to do")])
    engine.update_model("other", 4_096)
    assert engine.should_compress(engine.threshold_tokens) is True


def test_a_smaller_window_after_a_switch_is_respected() -> None:
    engine = ContextCompressor(200_000)
    session = long_session(60)
    engine.update_model("gpt-4o", 8_000)
    result = engine.compress(session)
    assert engine.counter.counter.name == "o200k_base"
    assert tokens(engine, result) <= engine.threshold_tokens == 6_000


@pytest.mark.spec("5.2")
@pytest.mark.parametrize("target", [300, 500, 1_000, 3_000, 9_000, 20_000])
def test_a_target_is_reached_and_used(target: int) -> None:
    session = [*long_session(100), user("Now release it."), assistant("Releasing.")]
    engine = ContextCompressor(200_000)
    result = engine.compress(session, target_tokens=target)
    assert tokens(engine, result) <= target
    assert tokens(engine, result) >= target * 0.5
    assert check_all(result, session) == []


@pytest.mark.spec("5.2")
def test_a_conversation_that_already_fits_its_target_is_left_alone() -> None:
    session = long_session(10)
    engine = ContextCompressor(200_000)
    assert engine.compress(session, target_tokens=tokens(engine, session)) == session
    assert engine.last_report is not None
    assert engine.last_report.outcome == "unchanged"


@pytest.mark.spec("9.1")
def test_the_report_says_what_was_done_and_how_good_it_is() -> None:
    engine = ContextCompressor(8_000)
    session = long_session(60)
    result = engine.compress(session, focus_topic="build")
    report = engine.last_report
    assert report is not None
    assert (report.messages_before, report.messages_after) == (len(session), len(result))
    assert report.tokens_before == tokens(engine, session)
    assert report.tokens_after == tokens(engine, result)
    assert report.tokens_saved == report.tokens_before - report.tokens_after
    assert report.boundaries.covered == (report.boundaries.head_end, report.boundaries.tail_start)
    assert report.summarizer_input is not None
    assert report.summarizer_input.messages == report.boundaries.tail_start - report.boundaries.head_end
    assert report.summarizer_input.focus_topic == "build"
    assert {"repair", "count", "boundary", "summarize", "assemble", "verify"} <= report.stages.keys()
    assert report.quality is not None
    assert 0.0 <= report.quality.score <= 1.0
    assert (report.quality.task_kept, report.quality.request_kept) == (True, True)
    assert report.quality.in_words() in str(report.to_dict())


def test_changes_tell_what_became_of_each_message() -> None:
    session = long_session(60)
    result = ContextCompressor(8_000).compress(session)
    listed = compare_lists(session, result)
    places = [change.source for change in listed if change.fate not in ("added", "repeated")]
    assert sorted(place for place in places if place is not None) == list(range(len(session)))
    fates = Counter(change.fate for change in listed)
    assert (fates["noted"], fates["repeated"], fates["added"]) == (1, 1, 2)
    assert fates["kept"] + fates["noted"] + fates["repeated"] + fates["added"] == len(result)


TALK = [
    user("Move the berth planner of the harbour office from Postgres to SQLite, in src/planner.py."),
    *call(1, "bash", "src/planner.py uses berth_table\nberth_table has 46 rows", command="grep berth_table src"),
    assistant("src/planner.py reads berth_table."),
    *call(2, "bash", "4 passed", command="pytest tests/test_planner.py"),
    user("Now write the notes for Marta about berth_table and the port 8437."),
]
GOOD = (
    "## Goal\n- Move the berth planner of the harbour office from Postgres to SQLite (src/planner.py)\n"
    "## Progress\n### Done\n- berth_table has 46 rows; tests/test_planner.py passes\n"
    "## Pending User Asks\n- Notes for Marta about berth_table and port 8437"
)
VAGUE = "## Goal\n- Help the user with their project\n## Next Steps\n- Continue the work"


def checked(text: str, **more: Any) -> Quality:
    return check_summary(text, request_for(TALK), **more)


@pytest.mark.spec("9.1")
def test_a_good_summary_keeps_task_request_and_names() -> None:
    quality = checked(GOOD, rules=(2, 2))
    assert (quality.task_kept, quality.request_kept, quality.invented) == (True, True, ())
    assert quality.score > 0.85
    assert quality.in_words().startswith("task kept · 2 of 2 rules · ")


@pytest.mark.spec("9.1")
def test_a_vague_summary_fails_the_checks_and_the_words_say_which() -> None:
    quality = checked(VAGUE)
    assert (quality.task_kept, quality.request_kept, quality.names_kept) == (False, False, 0.0)
    assert quality.score <= 0.2
    assert quality.in_words() == (
        "the summary does not name the task · the newest request is not in the summary · "
        "0% of the recurring names in the summary, the rest by search"
    )


@pytest.mark.spec("9.1")
def test_every_invented_name_costs_and_is_told() -> None:
    quality = checked(f"{GOOD}\n- src/made_up.py listens on 9999")
    assert {"src/made_up.py", "9999"} <= set(quality.invented)
    assert quality.score < checked(GOOD).score - 0.09
    assert "names not in the source: src/made_up.py" in quality.in_words()


def test_lost_rules_cost_and_are_told() -> None:
    assert "1 of 2 rules" in checked(GOOD, rules=(1, 2)).in_words()
    assert checked(GOOD, rules=(1, 2)).score == pytest.approx(checked(GOOD).score - 0.05)
