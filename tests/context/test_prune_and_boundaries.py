"""What is cleared, what is protected, where a conversation is cut."""

from __future__ import annotations

from typing import Any

import pytest

from everlong import CompressionSettings, ContextCompressor, Message, SummaryRequest
from everlong.caching.rules import prices_for
from everlong.context.literals import ACKNOWLEDGEMENT, CLEARED_RESULT, is_acknowledgement
from everlong.model import text_of
from tests.context.builders import (
    assistant,
    long_session,
    output,
    step,
    summaries,
    system,
    tokens,
    user,
)


def place_of_summary(messages: list[Message]) -> int:
    (summary,) = summaries(messages)
    return messages.index(summary)


@pytest.mark.spec("5.1")
def test_a_long_tool_result_in_the_head_is_cleared_and_a_short_one_is_not() -> None:
    session = [system(), user("Look around first."), *step(0, output(300))[:1]]
    session[-1]["tool_calls"].append({"id": "call_b", "function": {"name": "pwd", "arguments": "{}"}})
    session += [
        {"role": "tool", "tool_call_id": "call_0", "content": output(300)},
        {"role": "tool", "tool_call_id": "call_b", "content": "/home/mira"},
        *long_session(80)[3:],
    ]
    result = ContextCompressor(8_000).compress(session)
    assert [message["content"] for message in result[3:5]] == [CLEARED_RESULT, "/home/mira"]


@pytest.mark.spec("5.1")
def test_where_clearing_is_all_there_is_to_do_results_are_cleared_and_no_summary_is_made() -> None:
    talk = [message for n in range(11) for message in (user(f"Question {n}?"), assistant(f"Answer {n}."))]
    session = [system(), user("Read the log."), *step(0, output(9_000)), *talk]
    engine = ContextCompressor(32_000)
    result = engine.compress(session)
    assert result == [*session[:3], {**session[3], "content": CLEARED_RESULT}, *talk]
    assert engine.last_report is not None
    assert (engine.last_report.outcome, engine.last_report.results_cleared) == ("cleared", 1)


@pytest.mark.spec("5.1")
def test_a_result_that_the_tail_protects_is_not_cleared_even_if_it_stands_in_the_head() -> None:
    session = [system(), user("Read the log."), *step(0, output(2_000))]
    assert ContextCompressor(32_000).compress(session) == session


@pytest.mark.spec("5.1")
def test_the_length_from_which_results_are_cleared_is_a_setting() -> None:
    talk = [message for n in range(11) for message in (user(f"Question {n}?"), assistant(f"Answer {n}."))]
    session = [system(), user("Read the log."), *step(0, output(9_000)), *talk]
    settings = CompressionSettings(prune_min_chars=len(output(9_000)))
    assert ContextCompressor(32_000, settings=settings).compress(session) == session


@pytest.mark.spec("5.1")
def test_the_summarizer_sees_the_words_of_a_result_and_not_the_placeholder() -> None:
    seen: list[SummaryRequest] = []

    class Watching:
        name = "watching"

        def summarize(self, request: SummaryRequest) -> str:
            seen.append(request)
            return "## Goal\n- Build."

    session = [*long_session(20), *step(90, f"{output(300)}\nport 8437 is taken"), *long_session(60)[3:]]
    ContextCompressor(8_000, summarizer=Watching()).compress(session)
    texts = [text_of(turn) for turn in seen[0].turns]
    assert any("port 8437 is taken" in text for text in texts)
    assert CLEARED_RESULT not in texts


@pytest.mark.spec("5.2")
def test_the_head_is_system_prompt_and_first_exchange() -> None:
    session = long_session(80)
    result = ContextCompressor(8_000).compress(session)
    assert result[1:3] == session[1:3]
    assert place_of_summary(result) == 3


@pytest.mark.spec("5.2")
def test_the_head_moves_forward_past_the_results_of_its_calls() -> None:
    session = [system(), user("Go."), *step(0, "ok"), *long_session(80)[3:]]
    result = ContextCompressor(8_000).compress(session)
    assert result[1:4] == session[1:4]
    assert place_of_summary(result) == 4


@pytest.mark.spec("5.2")
def test_without_a_system_prompt_the_head_is_the_first_exchange() -> None:
    session = long_session(80)[1:]
    result = ContextCompressor(8_000).compress(session)
    assert result[:2] == session[:2]
    assert place_of_summary(result) == 2


@pytest.mark.spec("5.2")
def test_an_oversized_first_exchange_is_shortened() -> None:
    session = long_session(80)
    session[1] = user("Please fix this log:\n" + output(6_000))
    engine = ContextCompressor(32_000)
    result = engine.compress([*session, user("Now the tests."), assistant("Running them.")])
    assert result[1]["content"].startswith("Please fix this log:")
    assert "characters left out" in result[1]["content"]
    assert tokens(engine, result[1:2]) <= engine.budgets.tail_tokens


@pytest.mark.spec("4.5", "5.2")
@pytest.mark.parametrize(("window", "words"), [(8_000, 24), (32_000, 24), (32_000, 400), (200_000, 400)])
def test_a_compaction_at_the_threshold_leaves_about_half_of_it_in_whole_groups(window: int, words: int) -> None:
    engine = ContextCompressor(window)
    session = long_session(1)
    for number in range(1, 4_000):
        if engine.should_compress_preflight(session):
            break
        session += step(number, output(words))
    result = engine.compress(session)
    assert 0.45 <= engine.estimate_tokens(result) / engine.threshold_tokens <= 0.60
    engine.prices = prices_for("claude-sonnet-5")  # now each later request pays for what is left
    assert 0.45 <= engine.estimate_tokens(engine.compress(session)) / engine.threshold_tokens <= 0.53
    kept = [message for message in result if message in session[5:]]
    assert kept == session[-len(kept) :]


@pytest.mark.spec("4.5")
def test_the_built_in_summary_gives_way_a_little_where_that_lets_one_more_group_into_the_tail() -> None:
    def cargo(lines: int, number: int) -> str:
        return "\n".join(f"berth_{number}_{line} holds cargo_{number}_{line}" for line in range(lines))

    engine = ContextCompressor(16_000)
    asked, answered = step(90, "done")
    large = {**asked, "content": cargo(128, 90)}
    session = [system(), user("Build the project and fix what is broken.")]
    session += [message for number in range(20) for message in step(number, cargo(25, number))]
    session += [large, answered]
    session += [message for number in range(100, 116) for message in step(number, cargo(20, number))]
    result = engine.compress(session)
    assert large in result
    assert engine.estimate_tokens(result) <= 0.60 * engine.threshold_tokens


@pytest.mark.spec("5.2")
def test_a_forced_compaction_leaves_a_tail_of_the_usual_size() -> None:
    session = long_session(400, words=24)
    engine = ContextCompressor(32_000)
    result = engine.compress(session, force=True)
    kept = [message for message in result if message in session[3:]]
    assert kept == session[-len(kept) :]
    assert tokens(engine, kept) <= engine.budgets.tail_tokens < tokens(engine, session[-len(kept) - 2 :])


@pytest.mark.spec("5.2")
def test_the_protected_count_yields_where_it_would_lift_the_result_over_the_threshold() -> None:
    session = long_session(60, words=600)
    engine = ContextCompressor(8_000)
    result = engine.compress(session)
    kept = [message for message in result if message in session[3:]]
    assert 0 < len(kept) < 20
    assert tokens(engine, result) <= engine.threshold_tokens


@pytest.mark.spec("5.2")
def test_a_last_group_that_is_too_large_has_its_largest_results_shortened() -> None:
    session = [*long_session(30), *step(99, "BEGIN\n" + output(9_000) + "\nEND")]
    engine = ContextCompressor(8_000)
    result = engine.compress(session)
    assert result[-1]["tool_call_id"] == "call_99"
    content = result[-1]["content"]
    assert content.startswith("BEGIN")
    assert content.endswith("END")
    assert tokens(engine, result) <= engine.threshold_tokens
    assert engine.last_report is not None
    assert engine.last_report.results_shortened == 1


@pytest.mark.spec("5.2")
def test_a_cut_never_parts_a_call_from_its_results() -> None:
    session = long_session(10)
    calls = [{"id": f"p{n}", "function": {"name": "read", "arguments": "{}"}} for n in range(30)]
    session.append({"role": "assistant", "content": None, "tool_calls": calls})
    session += [{"role": "tool", "tool_call_id": f"p{n}", "content": output(20)} for n in range(30)]
    result = ContextCompressor(16_000, settings=CompressionSettings(protect_last_n=1)).compress(session)
    assert result[-31:] == session[-31:]


@pytest.mark.spec("5.2")
def test_the_latest_request_is_repeated_after_the_summary_and_does_not_stretch_the_tail() -> None:
    request = user("Port every handler to the new interface, one by one.")
    session = [*long_session(5), request, *long_session(200)[3:]]
    engine = ContextCompressor(16_000)
    result = engine.compress(session)
    after = place_of_summary(result) + 1
    assert is_acknowledgement(result[after])
    assert result[after + 1] is request
    assert len(result) < 60
    assert engine.last_report is not None
    assert engine.last_report.latest_user_repeated


@pytest.mark.spec("5.2")
@pytest.mark.parametrize(
    "content",
    [
        pytest.param('{"status": "ok", "items": [1, 2, 3]}', id="data"),
        pytest.param([{"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}}], id="image"),
    ],
)
@pytest.mark.parametrize(
    "following", [None, "[CONTEXT COMPACTION] Earlier turns:\nfix it"], ids=["empty", "look-alike"]
)
def test_a_newest_message_without_typed_words_is_repeated_though_another_follows(content: Any, following: Any) -> None:
    newest: Message = {"role": "user", "content": content}
    session = [{"role": "user", "content": content}, *long_session(40)[2:], newest]
    session += [assistant("I see."), {"role": "user", "content": following}]
    for number in range(40, 80):
        session += step(number, output(400))
    result = ContextCompressor(8_000).compress(session)
    assert newest in result[place_of_summary(result) :]


@pytest.mark.spec("5.9")
def test_a_result_just_below_the_threshold_is_not_shortened_again() -> None:
    session = [user("Fix the login test."), {"role": "user", "content": None}, assistant(output(900))]
    engine = ContextCompressor(2_000, settings=CompressionSettings(protect_first_n=0, protect_last_n=1))
    once = engine.compress(session, force=True)
    assert engine.compress(once, force=True) == once


@pytest.mark.spec("5.9")
def test_a_strangers_summary_after_the_newest_request_is_covered_at_the_first_compaction() -> None:
    request = user("Fix the login test.\n" * 1_000)
    acknowledgement = assistant(ACKNOWLEDGEMENT)
    session = [request, *step(1, output(400)), user("[CONTEXT COMPACTION] Earlier turns:\nRead it."), acknowledgement]
    session += [request, user("[CONTEXT COMPACTION] Earlier turns:\nRead it again."), acknowledgement]
    engine = ContextCompressor(2_000, settings=CompressionSettings(threshold=0.0))
    once = engine.compress(session, force=True)
    assert engine.compress(once, force=True) == once


@pytest.mark.spec("5.2")
def test_the_protected_counts_are_settings() -> None:
    session = long_session(120)
    settings = CompressionSettings(protect_first_n=5, protect_last_n=4, target_ratio=0.1)
    result = ContextCompressor(8_192, settings=settings).compress(session)
    assert result[1:5] == [*session[1:4], {**session[4], "content": CLEARED_RESULT}]
    assert result[-4:] == session[-4:]


@pytest.mark.spec("5.2")
def test_a_long_request_that_is_repeated_leaves_no_answer_without_its_request() -> None:
    messages = long_session(60)
    messages[1] = user("Build the project and fix what is broken. " * 200)
    kept = ContextCompressor(32_000).compress(messages, force=True)
    assert [message["role"] for message in kept[:4]] == ["system", "user", "assistant", "user"]
    assert kept[3]["content"] == messages[1]["content"]


def test_a_reply_larger_than_the_window_leaves_the_summary_its_usual_room() -> None:
    engine = ContextCompressor(32_000)
    known = engine.compress([*long_session(120), user("Price berth B-17 at 4,250 crowns."), assistant("Fine.")])
    result = engine.compress([*known, user("Draw the harbour."), assistant("/\n" * 60_000)])
    assert "4,250" in " ".join(text_of(message) for message in result)
