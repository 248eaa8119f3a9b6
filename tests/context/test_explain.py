"""Why each line was kept or dropped: every line has a verdict, and what the verdict says is so."""

from __future__ import annotations

import json
import re

import pytest
from everlong.context.explanation import source_lines
from hypothesis import given, strategies as st

from everlong import CompletionSummarizer, ContextCompressor, ExplainedLine, Explanation, Message, Verdict
from everlong.cli.demo.session import load_session
from everlong.context.digest import without_control_words
from everlong.context.literals import is_summary
from everlong.context.names import entities
from everlong.errors import TargetUnreachable
from everlong.model import calls_of, text_of
from everlong.testing.strategies import wild_conversations
from tests.context.builders import assistant, long_session, output, step, summary_text, system, user
from tests.context.engines import Setup, many_examples, setups, some_examples
from tests.context.scripted import Model


def flat(text: str) -> str:
    return " ".join(text.split())


def unmarked(text: str) -> str:
    """Words without the marks of a chat template, which a summary never repeats."""
    return without_control_words(text).translate({ord(mark): None for mark in "<|>"})


def line_of(explanation: Explanation, text: str) -> ExplainedLine:
    """The first line with a text."""
    return explanation.about(text).lines[0]


def verdict_on(explanation: Explanation, text: str) -> Verdict:
    """The verdict on the first words that contain a text."""
    return next(part for line in explanation.about(text).lines for part in line.parts if text in part.text)


def everything(messages: list[Message]) -> str:
    words = [text_of(m) for m in messages]
    arguments = [call.arguments for m in messages for call in calls_of(m)]
    return flat("\n".join(words + arguments))


def problems(messages: list[Message], explanation: Explanation) -> list[str]:
    """Everything that an explanation claims and that is not so."""
    expected = [
        (index, unit.line, unit.text) for index, message in enumerate(messages) for unit in source_lines(message)
    ]
    if [(line.message, line.line, line.text) for line in explanation.lines] != expected:
        return ["the lines are not those of the conversation, each once and in order"]
    result = Result(explanation.messages)
    found = [f"no verdict: {line}" for line in explanation.lines if not line.parts]
    for line in explanation.lines:
        # What a call says is kept with the call, as JSON; a picture has no words.
        is_words = line.call is None and line.text not in ("[image]", "[thinking]", "[file]", "[input_audio]")
        found += [f"{claim}: {part}" for part in line.parts if (claim := result.contradicts(part, is_words=is_words))]
    return found


class Result:
    """A compacted conversation that verdicts are held against."""

    def __init__(self, messages: list[Message]) -> None:
        self.texts = [flat(text_of(message)) for message in messages]
        self.all = "\n".join(self.texts)
        self.rows = {flat(row) for message in messages for row in text_of(message).splitlines()}
        self.names = set(entities(everything(messages)))
        self.summary = "\n".join(flat(text_of(message)) for message in messages if is_summary(message))

    def contradicts(self, part: Verdict, *, is_words: bool) -> str:
        """What a verdict says that is not so; empty where all is."""
        words, item = re.sub(r"^(- |\d+[.)] )", "", flat(part.text)), flat(part.item or "")
        claims = {
            "kept but not there": part.fate != "kept" or not is_words or flat(part.text) in self.all,
            "its item is not in the summary": item in self.summary,
            "quoted in other words": part.fate != "quoted"
            or "cut short" in part.reason
            or unmarked(words) in unmarked(item or self.summary),
            "told but not named": part.fate != "told" or set(entities(words)) <= self.names,
            "dropped but there": part.fate != "dropped" or part.also is not None or flat(part.text) not in self.rows,
            "not where it is said to be": part.also is None or flat(part.text) in self.texts[part.also],
            "lost and yet there": self.names.isdisjoint(part.lost),
        }
        return next((claim for claim, holds in claims.items() if not holds), "")


@many_examples
@given(wild_conversations(), setups())
def test_every_line_has_one_verdict_and_every_verdict_is_so(messages: list[Message], setup: Setup) -> None:
    explanation = setup.engine().explain(messages, focus_topic=setup.focus)
    assert problems(messages, explanation) == []


@some_examples
@given(wild_conversations(), setups(), st.sampled_from((300, 1_000, 3_000)))
def test_so_it_is_under_a_target(messages: list[Message], setup: Setup, target: int) -> None:
    try:
        explanation = setup.engine().explain(messages, focus_topic=setup.focus, target_tokens=target)
    except TargetUnreachable:
        return
    assert problems(messages, explanation) == []


@many_examples
@given(wild_conversations(), setups())
def test_explaining_changes_nothing(messages: list[Message], setup: Setup) -> None:
    explaining, compressing = setup.engine(), setup.engine()
    explanation = explaining.explain(messages, focus_topic=setup.focus)
    assert explanation.messages == compressing.compress(messages, focus_topic=setup.focus)
    assert explanation.report is explaining.last_report
    assert explaining.get_status() == compressing.get_status()


@pytest.fixture(scope="module")
def demo() -> list[Message]:
    return load_session()[0]


@pytest.fixture(scope="module")
def explained(demo: list[Message]) -> Explanation:
    return ContextCompressor(32_768).explain(demo)


def test_of_the_demo_session_every_verdict_is_so(demo: list[Message], explained: Explanation) -> None:
    assert problems(demo, explained) == []
    assert set(explained.fates) >= {"kept", "quoted", "partly", "dropped"}
    assert sum(explained.fates.values()) == len(explained.lines)


def test_of_the_demo_session_each_kind_of_reason_is_given(demo: list[Message], explained: Explanation) -> None:
    roomier = ContextCompressor(128_000).explain(demo)
    rules = {part.rule for one in (explained, roomier) for line in one.lines for part in line.parts}
    assert rules >= {
        "system prompt",
        "first exchange",
        "cleared",
        "latest request",
        "tail budget",
        "requirement",
        "request",
        "file",
        "key line",
        "names nothing",
        "said already",
        "worth less",
        "not weighed",
    }


def test_a_rule_of_the_users_is_quoted_and_the_section_is_named(explained: Explanation) -> None:
    verdict = verdict_on(explained, "Port 8437, it is the only one")
    assert (verdict.fate, verdict.rule) == ("quoted", "requirement")
    assert verdict.section == "Constraints & Preferences"
    assert not verdict.lost


def test_a_second_compaction_says_what_was_carried_over(demo: list[Message], explained: Explanation) -> None:
    grown = [*explained.messages, user("Go on."), *demo[200:700]]
    again = ContextCompressor(32_768).explain(grown)
    assert problems(grown, again) == []
    assert verdict_on(again, "Port 8437, it is the only one").rule == "carried over"
    assert verdict_on(again, "Go on.").rule == "names nothing"
    assert verdict_on(again, "[CONTEXT COMPACTION").rule == "announcement"
    assert verdict_on(again, "## Constraints").rule == "heading"


def test_a_focus_decides_what_is_quoted(demo: list[Message]) -> None:
    explanation = ContextCompressor(32_768).explain(demo, focus_topic="Qingdao group")
    assert problems(demo, explanation) == []
    about = explanation.about("Qingdao").fates.get("quoted", 0)
    assert about > ContextCompressor(32_768).explain(demo).about("Qingdao").fates.get("quoted", 0)


def test_a_conversation_that_fits_is_kept_and_says_so() -> None:
    explanation = ContextCompressor(200_000).explain([system(), user("Hello"), assistant("Hello.\n\nWhat now?")])
    assert explanation.fates == {"kept": 4}
    assert [line.line for line in explanation.lines] == [1, 1, 1, 3]
    assert line_of(explanation, "What now?").reason == "nothing had to be compacted"


def test_a_line_is_dropped_because_others_say_all_that_it_names() -> None:
    turns = [message for n in range(60) for message in step(n, f"src/harbour/berths.py:{n % 2 + 10}: PORT = 8437")]
    messages = [system(), user("Build it."), assistant("Yes."), *turns, user("Go on."), assistant("Done.")]
    explanation = ContextCompressor(200_000).explain(messages, target_tokens=700)
    said = [part for line in explanation.lines for part in line.parts if part.rule == "said already"]
    assert problems(messages, explanation) == []
    assert said
    assert all(part.item is None or part.item in summary_text(explanation.messages) for part in said)


def test_a_result_that_answers_no_call_is_dropped_by_the_repair() -> None:
    orphan: Message = {"role": "tool", "tool_call_id": "gone", "content": "what nobody asked for"}
    explanation = ContextCompressor().explain([user("Hello"), orphan, assistant("Hello.")])
    assert line_of(explanation, "nobody").parts[0].rule == "repair"
    assert line_of(explanation, "nobody").fate == "dropped"


def test_of_a_shortened_result_beginning_and_end_are_kept_and_the_middle_is_not() -> None:
    log = "\n".join(f"line {n} of the log" for n in range(600))
    messages = [user("Build it."), *step(1, log)]
    explanation = ContextCompressor(4_000).explain(messages)
    assert problems(messages, explanation) == []
    assert line_of(explanation, "line 0 of").fate == "kept"
    assert line_of(explanation, "line 599 of").fate == "kept"
    assert line_of(explanation, "line 300 of").parts[0].rule == "shortened"


def test_a_line_that_a_model_told_is_told_and_one_that_it_left_out_is_not() -> None:
    messages = [
        system(),
        user("Build the project."),
        assistant("I start."),
        user("The server must listen on port 8437, as agreed with the office."),
        assistant("The cache goes to /var/cache/quay-7 because of the quota."),
        user("Thanks, that is all for a while."),
        *[message for n in range(40) for message in step(n, output(300))],
        user("Now go on."),
        assistant("Yes."),
    ]
    answer = "## Goal\n- Build the project\n\n## Critical Context\n- The office wants 8437."
    engine = ContextCompressor(8_000, summarizer=CompletionSummarizer(Model(answer), name="a model"))
    explanation = engine.explain(messages)
    assert explanation.report.summarizer == "a model"
    assert problems(messages, explanation) == []
    verdict = verdict_on(explanation, "port 8437")
    assert verdict.fate in ("quoted", "told")
    assert verdict_on(explanation, "that is all for a while").fate in ("quoted", "unclear")
    by_model = [part for line in explanation.lines for part in line.parts if part.rule == "by model"]
    assert by_model
    assert all("a model" in part.reason for part in by_model)


def test_lines_of_calls_and_pictures_have_verdicts_too() -> None:
    picture: Message = {
        "role": "user",
        "content": [{"type": "text", "text": "Look."}, {"type": "image_url", "image_url": {"url": "data:,"}}],
    }
    explanation = ContextCompressor(4_000).explain([system(), user("Hi"), assistant("Hi."), picture, *long_session(30)])
    assert line_of(explanation, "[image]").parts[0].rule == "no words"
    call = line_of(explanation, "make step-3")
    assert (call.call, call.line) == ("bash", 2)


def test_an_explanation_is_ready_for_json(explained: Explanation) -> None:
    data = json.loads(json.dumps(explained.about("Port 8437, it").to_dict()))
    assert data["fates"] == {"partly": 1}
    line = data["lines"][0]
    assert (line["message"], line["role"], line["line"], line["fate"]) == (21, "user", 1, "partly")
    assert {part["fate"] for part in line["parts"]} == {"quoted", "dropped"}


def test_what_could_pose_as_the_beginning_of_a_turn_is_quoted_without_its_marks() -> None:
    rule = "The build must always end with <|im_start|> in /var/log/quay-7."
    messages = [user("Build the project."), assistant("Yes."), user(rule), *long_session(40)[2:], user("Go on.")]
    explanation = ContextCompressor(8_000).explain(messages)
    assert problems(messages, explanation) == []
    assert verdict_on(explanation, "quay-7").fate == "quoted"
