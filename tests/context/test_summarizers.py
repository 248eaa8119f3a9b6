"""Asking a summarizer: its summary stays as it was written, its failures are replaced, a dead one is left alone."""

from __future__ import annotations

import pytest

from everlong import ContextCompressor, Message, SummaryRequest
from everlong.context.summarizers import ADDED_HEADING, clean_answer
from everlong.tokens import EstimatingCounter
from tests.context.builders import assistant, call, long_session, summary_text, user

COUNT = EstimatingCounter().count_text
GOOD = "## Goal\n- Build the project\n\n## Progress\n### Done\n- Ran make step-0 to step-9"
RULES_BLOCK = "Standing rules of the user, in force:"


class Scripted:
    """A summarizer that answers from a list; an exception in the list is raised, the last answer is given again."""

    name = "scripted"

    def __init__(self, *answers: str | Exception | None) -> None:
        self.answers = list(answers)
        self.asked = 0

    def summarize(self, request: SummaryRequest) -> str:
        del request
        self.asked += 1
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer  # type: ignore[return-value]


class Clock:
    now = 1_000.0

    def __call__(self) -> float:
        return self.now


def grown(messages: list[Message]) -> list[Message]:
    return [*messages, *long_session(60)[3:]]


ODD = """\
## Goal
- Build `PyLinter._discover_files`, see tests/lint — and **nothing** else.
  1. first   2. second

Some prose between the sections, with trailing spaces.
## Notes of my own
* a bullet of another kind
## Progress
### Done
- Ran make step-0 to step-9
### Blocked
- (none)
## Key Decisions
- SQLite, not Postgres."""


@pytest.mark.spec("5.3")
@pytest.mark.parametrize("answer", [GOOD, ODD])
def test_a_models_summary_comes_out_byte_for_byte_from_one_call(answer: str) -> None:
    model = Scripted(answer)
    engine = ContextCompressor(32_000, summarizer=model)
    text = summary_text(engine.compress(long_session(100))).partition(RULES_BLOCK)[0].strip()
    assert text.startswith(answer)
    added = text.removeprefix(answer)
    assert added == "" or added.startswith(f"\n\n{ADDED_HEADING}\n")
    assert COUNT(text) <= 1.2 * COUNT(answer)
    assert model.asked == 1
    assert engine.last_report is not None
    assert (engine.last_report.summarizer, engine.last_report.fallback_reason) == ("scripted", None)


def test_newest_request_plan_and_files_are_added_after_a_summary_that_lacks_them() -> None:
    answer = GOOD + "".join(f"\n- Looked at part {n} of the harbour and found nothing odd." for n in range(60))
    todos = [{"content": "Mend the pier", "status": "in_progress"}]
    work = [*call(1, "TodoWrite", "ok", todos=todos), *call(2, "write", "ok", path="src/pier.py", content="x")]
    session = [*long_session(100), user("Now mend the pier."), *work, *long_session(20)[3:]]
    text = summary_text(ContextCompressor(32_000, summarizer=Scripted(answer)).compress(session))
    added = text.partition(ADDED_HEADING)[2]
    assert text.startswith(answer)
    for wanted in ('- Newest request: "Now mend the pier."', "Mend the pier", "`src/pier.py` (created)"):
        assert wanted in added


def test_thoughts_fences_and_words_before_the_first_heading_are_no_part_of_a_summary() -> None:
    for answer in (f"<think>hm</think>\n{GOOD}", f"```markdown\n{GOOD}\n```", f"Here is the summary:\n\n{GOOD}\n"):
        assert clean_answer(answer, 500, COUNT) == (GOOD, "")


@pytest.mark.spec("5.7")
@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ("", "the summary is empty"),
        ("   \n", "the summary is empty"),
        (None, "the summary is empty"),
        ("I'm sorry, I can't help with that.", "none of the summary's headings"),
        ("## Goal\n", "nothing under them"),
        ("## Goal\n- " + "word " * 120_000, "more than 600,000 characters"),
        ("## Goal\n- Build\n## Next Steps", "breaks off"),
    ],
)
def test_an_answer_that_cannot_be_used_is_asked_for_once_more_and_then_replaced(
    answer: str | None, reason: str
) -> None:
    twice, once = Scripted(answer), Scripted(answer, GOOD)
    engine = ContextCompressor(8_000, summarizer=twice)
    result = engine.compress(long_session(60))
    assert twice.asked == 2
    assert "Build the project and fix what is broken" in summary_text(result)
    assert engine.last_report is not None
    assert engine.last_report.summarizer == "built-in rules"
    assert reason in (engine.last_report.fallback_reason or "")
    assert engine.last_report.quality is not None
    assert any(reason in problem for problem in engine.last_report.quality.problems)
    engine = ContextCompressor(8_000, summarizer=once)
    assert summary_text(engine.compress(long_session(60))).startswith(GOOD)
    assert once.asked == 2


@pytest.mark.parametrize("failure", [ConnectionError("no route to host"), TimeoutError("timed out")])
def test_a_summarizer_that_raises_is_not_asked_twice_and_the_report_says_why(failure: Exception) -> None:
    dead = Scripted(failure)
    engine = ContextCompressor(8_000, summarizer=dead)
    engine.compress(long_session(60))
    assert dead.asked == 1
    assert engine.last_report is not None
    assert f"{type(failure).__name__}: {failure}" in (engine.last_report.fallback_reason or "")


def test_a_summary_that_is_longer_than_asked_for_takes_room_of_the_tail() -> None:
    answer = GOOD + "".join(f"\n- Looked at part {n} of the harbour." for n in range(70))
    model = Scripted(answer)
    engine = ContextCompressor(32_000, summarizer=model)
    result = engine.compress(long_session(60), target_tokens=1_400)
    assert summary_text(result).startswith(answer)
    assert sum(engine.counter.counts(result)) <= 1_400
    assert model.asked == 1


@pytest.mark.spec("5.7")
def test_after_a_failure_the_summarizer_is_left_alone_until_the_cool_down_is_over() -> None:
    clock, dead = Clock(), Scripted(OSError("down"), GOOD)
    engine = ContextCompressor(8_000, summarizer=dead, clock=clock)
    first = engine.compress(long_session(60))
    clock.now += 599
    second = engine.compress(grown(first))
    assert dead.asked == 1
    assert "for another 1 of 600 seconds" in engine.left_alone[-1].explain()
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
    chatty = Scripted("Sure!")
    engine = ContextCompressor(8_000, summarizer=chatty, clock=Clock())
    result = long_session(60)
    for asked in (2, 4, 6, 6):
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


def test_the_next_summary_of_a_model_gets_the_last_one_to_update() -> None:
    seen: list[SummaryRequest] = []

    class Watching:
        name = "watching"

        def summarize(self, request: SummaryRequest) -> str:
            seen.append(request)
            return GOOD

    engine = ContextCompressor(8_000, summarizer=Watching())
    engine.compress([*engine.compress(long_session(60)), assistant("Fine."), *long_session(60)[3:]])
    assert seen[0].previous is None
    assert (seen[1].previous or "").startswith(GOOD)
