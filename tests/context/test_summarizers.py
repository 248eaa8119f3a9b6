"""Asking a summarizer: its words stand first, its failures are replaced, a dead one is left alone."""

from __future__ import annotations

import pytest
from everlong.context.summary.judge import judge_answer
from everlong.context.verify import Yardstick

from everlong import ContextCompressor, ExtractiveSummarizer, Message, SummaryRequest
from everlong.tokens import EstimatingCounter
from tests.context.builders import long_session, summary_text

COUNT = EstimatingCounter().count_text
GOOD = "## Goal\n- Build the project\n\n## Progress\n### Done\n- Ran make step-0 to step-9"


class Scripted:
    """A summarizer that answers from a list; an exception in the list is raised."""

    name = "scripted"

    def __init__(self, *answers: str | Exception | None) -> None:
        self.answers = list(answers)
        self.asked = 0

    def summarize(self, request: SummaryRequest) -> str:
        del request
        self.asked += 1
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer  # type: ignore[return-value]


class Clock:
    now = 1_000.0

    def __call__(self) -> float:
        return self.now


def grown(messages: list[Message]) -> list[Message]:
    return [*messages, *long_session(60)[3:]]


def test_a_models_words_stand_first_and_the_conversations_own_lines_fill_the_rest() -> None:
    engine = ContextCompressor(32_000, summarizer=Scripted(GOOD))
    text = summary_text(engine.compress(long_session(100)))
    assert text.startswith("## Goal\n- Build the project\n")
    assert "### Done\n- Ran make step-0 to step-9\n" in text
    assert "Ran `make step-50`" in text
    assert engine.last_report is not None
    assert (engine.last_report.summarizer, engine.last_report.fallback_reason) == ("scripted", None)


@pytest.mark.spec("5.7")
@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (ConnectionError("no route to host"), "ConnectionError: no route to host"),
        (TimeoutError("timed out"), "TimeoutError"),
        ("", "the summary is empty"),
        ("   \n", "the summary is empty"),
        (None, "the summary is empty"),
        ("I'm sorry, I can't help with that.", "none of the summary's headings"),
        ("## Goal\n", "none of the summary's headings"),
        ("## Goal\n- " + "x y " * 9_000, "no part of the summary fits"),
    ],
)
def test_a_summarizer_that_fails_is_replaced_and_the_report_says_why(answer: str | Exception, reason: str) -> None:
    engine = ContextCompressor(8_000, summarizer=Scripted(answer))
    result = engine.compress(long_session(60))
    assert "Build the project and fix what is broken" in summary_text(result)
    assert engine.last_report is not None
    assert engine.last_report.summarizer == "extractive"
    assert reason in (engine.last_report.fallback_reason or "")
    assert engine.last_report.quality is not None
    assert any(reason in problem for problem in engine.last_report.quality.problems)


@pytest.mark.spec("5.7")
def test_after_a_failure_the_summarizer_is_left_alone_until_the_cool_down_is_over() -> None:
    clock, dead = Clock(), Scripted(OSError("down"), GOOD)
    engine = ContextCompressor(8_000, summarizer=dead, clock=clock)
    first = engine.compress(long_session(60))
    clock.now += 599
    second = engine.compress(grown(first))
    assert dead.asked == 1
    assert engine.last_report is not None
    assert "left alone" in (engine.last_report.fallback_reason or "")
    clock.now += 2
    engine.compress(grown(second))
    assert dead.asked == 2
    assert "left alone" not in (engine.last_report.fallback_reason or "")


@pytest.mark.spec("5.7")
def test_a_compaction_by_hand_ignores_the_cool_down() -> None:
    dead = Scripted(OSError("down"), GOOD)
    engine = ContextCompressor(8_000, summarizer=dead, clock=Clock())
    first = engine.compress(long_session(60))
    engine.compress(grown(first), force=True)
    assert dead.asked == 2


@pytest.mark.spec("5.7")
def test_answers_that_are_no_summary_are_forgiven_twice_and_the_third_in_a_row_cools_down() -> None:
    chatty = Scripted("", "Sure!", GOOD, "I'm sorry.", "", "Sure!", GOOD)
    engine = ContextCompressor(8_000, summarizer=chatty, clock=Clock())
    result = long_session(60)
    for asked in (1, 2, 3, 4, 5, 6, 6):
        result = engine.compress(grown(result))
        assert chatty.asked == asked


@pytest.mark.spec("5.7")
def test_another_summarizer_is_asked_at_once_though_the_one_before_is_cooling_down() -> None:
    dead, alive = Scripted(OSError("down")), Scripted(GOOD)
    engine = ContextCompressor(8_000, summarizer=dead, clock=Clock())
    result = engine.compress(long_session(60))
    engine.summarizer = alive
    assert engine.summarizer is alive
    engine.compress(grown(result))
    assert (dead.asked, alive.asked) == (1, 1)
    assert engine.last_report is not None
    assert engine.last_report.fallback_reason is None


@pytest.mark.spec("5.7")
def test_setting_the_summarizer_that_is_there_already_does_not_end_its_cool_down() -> None:
    dead = Scripted(OSError("down"), GOOD)
    engine = ContextCompressor(8_000, summarizer=dead, clock=Clock())
    result = engine.compress(long_session(60))
    engine.summarizer = dead
    engine.compress(grown(result))
    assert dead.asked == 1


def test_without_a_summarizer_the_engine_writes_itself_again() -> None:
    model = Scripted(GOOD)
    engine = ContextCompressor(8_000, summarizer=model)
    engine.summarizer = None
    assert engine.compress(long_session(60)) == ContextCompressor(8_000).compress(long_session(60))
    assert engine.summarizer is None
    assert model.asked == 0


def test_choosing_the_built_in_summarizer_by_hand_is_like_choosing_none() -> None:
    by_hand, by_default = ContextCompressor(8_000, summarizer=ExtractiveSummarizer()), ContextCompressor(8_000)
    assert by_hand.compress(long_session(60)) == by_default.compress(long_session(60))


@pytest.mark.spec("5.3")
def test_a_models_summary_that_is_too_long_is_cut_to_the_budget_item_by_item() -> None:
    long_answer = "## Goal\n- Build it.\n## Progress\n### Done\n" + "\n".join(
        f"- did {n} things." for n in range(2_000)
    )
    document = judge_answer(long_answer, Yardstick([]), 400, COUNT).document
    assert 300 < COUNT(document.render()) <= 400
    assert document.items["Goal"] == ["- Build it."]
    assert document.items["Done"][-1] == "- did 1999 things."
