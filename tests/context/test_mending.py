"""No model can make a summary worse: what is wrong with its answer is named, cut out, mended once, and filled up."""

from __future__ import annotations

import json
from itertools import cycle

import pytest
from everlong.context.summary.judge import judge_answer
from everlong.context.verify import Yardstick

from everlong import ContextCompressor, Message, Quality, SummarizerError, SummaryRequest
from everlong.context import CompletionSummarizer, Weakness
from tests.context.builders import assistant, step, summary_text, system, user
from tests.context.scripted import COUNT, Model

FILES = ["parser", "ledger", "router", "invoice", "session", "upload", "worker", "schema"]
GOOD = (
    "## Goal\n- Make the harbour planner import berth tables from src/parser/load_0.py.\n\n"
    "## Constraints & Preferences\n- Port 8443 only, never touch src/ledger/api.py.\n\n"
    "## Progress\n### Done\n- Fixed the importer of invoices in src/invoice/load_3.py.\n\n"
    "## Next Steps\n- Check the worker tables for berth 17.\n"
)
ANSWERS = {
    "good": GOOD,
    "empty": "  ",
    "truncated": GOOD[: GOOD.index(" tables for berth 17") + 4],
    "off-topic": (
        "## Goal\n- Bake an apple cake for grandmother.\n## Progress\n### Done\n- Melted butter, whipped cream, "
        "peeled apples with cinnamon.\n## Next Steps\n- Preheat the oven, invite cousins, choose candles.\n"
    ),
    "answering": "Sure! I fixed the importer for you. Let me know if there is anything else.",
    "inventing": GOOD + "- Deploy config/zeta_plan.yaml to prod-cluster-17 on port 48213.\n",
}
COMPLAINTS = {
    "empty": "empty",
    "truncated": "breaks off",
    "off-topic": "off the subject",
    "answering": "a refusal or a reply",
    "inventing": "config/zeta_plan.yaml",
}


def session(steps: int = 60) -> list[Message]:
    messages = [
        system(),
        user("Make the harbour planner import berth tables. Use port 8443 only."),
        assistant("I start."),
    ]
    for n in range(steps):
        name = FILES[n % len(FILES)]
        result = "\n".join(
            f"src/{name}/load_{n}.py:{row}: invoice importer reads worker table {n * 40 + row}" for row in range(30)
        )
        messages += step(n, result, tool="read", path=f"src/{name}/load_{n}.py")
        if n % 9 == 0:
            messages += [
                user(f"Never touch src/{name}/api.py. Check the tables of berth {n + 17}."),
                assistant("Understood."),
            ]
    return messages


class Scripted:
    name = "scripted"

    def __init__(self, *answers: str) -> None:
        self._answers = cycle(answers)

    def summarize(self, request: SummaryRequest) -> str:
        del request
        return next(self._answers)


def quality(engine: ContextCompressor) -> Quality:
    assert engine.last_report is not None
    assert engine.last_report.quality is not None
    return engine.last_report.quality


@pytest.mark.spec("9.1")
def test_whatever_a_summarizer_returns_the_report_names_what_was_wrong() -> None:
    engine = ContextCompressor(32_000, summarizer=Scripted(*ANSWERS.values()))
    for kind in ANSWERS:
        result = engine.compress(session())
        measured = quality(engine)
        assert measured.invented == (
            ("config/zeta_plan.yaml", "prod-cluster-17", "48213") if kind == "inventing" else ()
        )
        assert COMPLAINTS.get(kind, "") in " ".join(measured.problems)
        assert bool(measured.problems) == (kind != "good"), measured.problems
        for wrong in ("zeta_plan", "prod-cluster-17", "cinnamon", "Let me know"):
            assert wrong not in summary_text(result)


def test_the_models_own_words_stay_where_they_are_sound() -> None:
    for kind in ("good", "truncated", "inventing"):
        engine = ContextCompressor(64_000, summarizer=Scripted(ANSWERS[kind]))
        text = summary_text(engine.compress(session(150)))
        assert "- Make the harbour planner import berth tables from src/parser/load_0.py." in text
        assert engine.last_report is not None
        assert engine.last_report.summarizer == "scripted"


@pytest.mark.spec("9.1")
def test_a_weak_summary_is_mended_once_and_the_model_is_told_what_is_missing() -> None:
    model = Model(lambda number, _: "" if number == 1 else GOOD)
    engine = ContextCompressor(64_000, summarizer=CompletionSummarizer(model, window=100_000))
    text = summary_text(engine.compress(session(120)))
    assert len(model.prompts) == 2
    assert "it falls short: the summary is empty" in model.asked
    assert "src/" in model.asked[model.asked.index("<missing") :]
    assert "- Check the worker tables for berth 17." in text
    assert quality(engine).problems == ("the summary is empty",)


def test_a_model_that_cannot_mend_either_leaves_the_built_in_summary() -> None:
    engine = ContextCompressor(32_000, summarizer=CompletionSummarizer(Model("Sure!"), window=100_000))
    engine.compress(session())
    assert engine.last_report is not None
    assert (engine.last_report.summarizer, len(quality(engine).problems)) == ("extractive", 1)


def test_a_mending_call_that_fails_leaves_the_first_draft() -> None:
    class Failing(Scripted):
        def mend(self, request: SummaryRequest, draft: str, weakness: Weakness) -> str:
            raise ConnectionError(f"gone with {len(draft)}, {len(weakness.missing)}, {request.budget_tokens}")

    engine = ContextCompressor(64_000, summarizer=Failing(ANSWERS["inventing"]))
    assert "harbour planner import berth tables from" in summary_text(engine.compress(session(150)))
    assert any("asked to mend it: ConnectionError" in problem for problem in quality(engine).problems)


# -- what is judged ------------------------------------------------------------------------------------------------


def problems_of(answer: str, turns: list[Message] | None = None) -> str:
    try:
        return " ".join(judge_answer(answer, Yardstick(session() if turns is None else turns), 2_000, COUNT).problems)
    except SummarizerError as error:
        return str(error)


@pytest.mark.parametrize(
    "ending", ["and the", "(see", "`src/par", "in src/pars", "because of,", "every invo", "it is "]
)
def test_an_answer_that_ends_in_the_middle_is_seen_to_break_off(ending: str) -> None:
    assert "breaks off" in problems_of(f"## Goal\n- Import the berth tables\n## Next Steps\n- Look {ending}")


@pytest.mark.parametrize("ending", ["tests", "src/parser/load_0.py", "the table of berth 17.", "the importer (again)"])
def test_an_answer_that_ends_like_an_item_is_whole(ending: str) -> None:
    assert problems_of(f"## Goal\n- Import the berth tables\n## Next Steps\n- Look at {ending}") == ""


def test_a_name_that_breaks_off_is_told_by_its_own_case() -> None:
    turns = [user("Check the mark on every page of the Markdown export of the invoices, please.")]
    assert "breaks off" in problems_of("## Goal\n- Check the pages of the Mark", turns)
    assert problems_of("## Goal\n- Check the pages of the mark", turns) == ""


def test_what_broke_off_goes_whichever_section_came_last() -> None:
    answer = "## Next Steps\n- Check berth 17.\n## Goal\n- Import the berth tables.\n- Look at src/pars"
    document = judge_answer(answer, Yardstick(session()), 2_000, COUNT).document
    assert document.items["Goal"] == ["- Import the berth tables."]
    assert document.items["Next Steps"] == ["- Check berth 17."]


def test_a_summary_off_the_subject_is_blamed_for_its_inventions_too() -> None:
    said = problems_of(ANSWERS["off-topic"] + "- Buy flour with config/zeta_plan.yaml.\n")
    assert "off the subject" in said
    assert "config/zeta_plan.yaml" in said


def test_headings_do_not_count_against_a_short_summary() -> None:
    turns = [user("Import berth tables from invoices"), assistant("Reading invoices and tables of every berth now")]
    sections = ("Goal", "Constraints & Preferences", "Key Decisions", "Resolved Questions", "Critical Context")
    answer = "\n".join(f"## {section}\n- berth tables" for section in (*sections, "Relevant Files", "Next Steps"))
    assert problems_of(answer, turns) == ""


def test_a_target_that_leaves_room_is_used_without_asking_the_model_again() -> None:
    model = Model("## Goal\n- Import berth tables.")
    engine = ContextCompressor(64_000, summarizer=CompletionSummarizer(model, window=100_000))
    # There is nothing to say of this talk, so a summary leaves most of its room to the newest turns.
    talk = [user("Go on.") if n % 2 else assistant("I go on as before and look around. " * 20) for n in range(200)]
    result = engine.compress([*session(1), *talk], target_tokens=8_000)
    assert len(model.prompts) <= 2  # once, and once more to mend it
    assert engine.last_report is not None
    assert engine.last_report.tokens_after >= 0.9 * 8_000
    assert "Import berth tables." in summary_text(result)


def test_an_invented_name_takes_only_its_own_line_along() -> None:
    answer = "## Goal\n- Import tables\n  from src/made_up_9.py\n  for berth 17\n- Read src/parser/load_0.py:12 first"
    document = judge_answer(answer, Yardstick(session()), 2_000, COUNT).document
    assert document.items["Goal"] == ["- Import tables\n  for berth 17", "- Read src/parser/load_0.py:12 first"]


def test_names_of_tools_redaction_marks_and_small_counts_are_not_inventions() -> None:
    turns = step(1, "done", tool="AskUserQuestion")
    assert problems_of("## Goal\n- AskUserQuestion was called 12 times with [redacted:api_key]", turns) == ""


def test_a_preamble_a_fence_and_thoughts_are_no_part_of_the_summary() -> None:
    wrapped = f"<think>hm</think>\n```markdown\n{GOOD}```"
    assert judge_answer(wrapped, Yardstick(session()), 2_000, COUNT).document.render() == GOOD.strip()
    assert judge_answer(f"Summary:\n{GOOD}", Yardstick(session()), 2_000, COUNT).document.render() == GOOD.strip()


def test_a_summary_in_the_users_language_is_on_the_subject() -> None:
    turns = [user("请修复登录页面的错误，不要改动接口。文件在 src/login/core.py"), assistant("我先看登录页面的代码。")]
    assert problems_of("## Goal\n- 修复登录页面的错误\n## Relevant Files\n- src/login/core.py", turns) == ""


def test_the_report_with_its_problems_is_json_ready() -> None:
    engine = ContextCompressor(32_000, summarizer=Scripted(ANSWERS["empty"]))
    engine.compress(session())
    assert engine.last_report is not None
    assert "the summary is empty" in json.dumps(engine.last_report.to_dict())
