"""What is read of a message: the same as plain expressions would find, in bounded work, whatever the message holds."""

from __future__ import annotations

import json
import re
from collections import Counter
from typing import Any

import pytest
from everlong.context.summary.actions import _STRUCTURE, ActionOutcome, _is_structure, action_of, outcome_of
from everlong.context.summary.facts import read_facts
from everlong.context.summary.key_lines import LineGroup, MessageLine, few_lines, many_lines
from everlong.context.summary.language import marks, sentences
from everlong.context.summary.selection import Gains
from hypothesis import assume, given, strategies as st

from everlong import Message
from everlong.context.digest import escaped
from everlong.context.names import _TOKEN, _named_in, entities
from everlong.context.text import beginning, clip, one_line
from everlong.model import ToolCall
from tests.context.builders import user

ALPHABET = "abZ19_~@#$./:+%=&?-, \n\t\r\x0b\u3000中é١。；！.!? A3"
HUGE = 300_000


@given(st.text(ALPHABET, max_size=40))
def test_entities_are_those_of_the_tokens_that_one_expression_finds(text: str) -> None:
    assert entities(text) == [name for token in _TOKEN.findall(text) for name in _named_in(token)]


@given(st.text("#-=:/.@~?&+$ ", max_size=30))
def test_marks_alone_name_nothing(text: str) -> None:
    assert entities(text) == []


@given(st.text(ALPHABET, max_size=40))
def test_sentences_end_at_marks_before_capitals_at_wide_marks_and_at_line_breaks(text: str) -> None:
    ends = re.compile(r"(?<=[.!?])\s+(?=[A-Z\"'`(\[*_#-]|\d)|(?<=[。！？；])\s*|\n+")
    pieces = [raw.strip(" \t\r-*•>") for raw in ends.split(text)]
    assert sentences(text) == [piece for piece in pieces if len(piece) > 1]


def test_marks_are_seen_in_any_case() -> None:
    assert marks("constraint", "NEVER touch it")
    assert marks("decision", "So I will use the other one")
    assert not marks("constraint", "whenever")


def call(arguments: Any) -> Message:
    text = arguments if isinstance(arguments, str) else json.dumps(arguments)
    made = {"id": "c", "type": "function", "function": {"name": "run", "arguments": text}}
    return {"role": "assistant", "content": None, "tool_calls": [made]}


@pytest.mark.parametrize(
    "message",
    [
        user("#" * HUGE),
        user("@." * HUGE),
        user(". " * HUGE),
        user("。" * HUGE),
        {"role": "tool", "tool_call_id": "c", "content": "=" * HUGE + "a"},
        {"role": "tool", "tool_call_id": "c", "content": "a\n" * HUGE},
        call({"command": "sed -" + "i" * HUGE}),
        call({"command": "sed -i '" * (HUGE // 8)}),
        call("[" * HUGE),
        call({"rows": [{"id": f"row_{n}"} for n in range(HUGE // 10)]}),
    ],
    ids=lambda message: str(message)[:60],
)
def test_the_work_on_a_message_does_not_grow_with_the_square_of_its_size(message: Message) -> None:
    # Work that grew with the square of these sizes would not end while anyone waits.
    read_facts(message)
    assert len(few_lines(message)) <= 12
    assert len(many_lines(message)) <= 80
    entities(str(message))


def test_marks_without_a_name_are_gone_through_once() -> None:
    assert entities("#-" * HUGE + " src/app.py " + "$#" * HUGE) == ["src/app.py", "app.py"]


def test_of_huge_arguments_the_first_values_are_read() -> None:
    lines = many_lines(call({"rows": [f"row_{n} of the table" for n in range(HUGE)]}))
    assert lines[0].text == "row_0 of the table"


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text("ab'\"\n", max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text("ab", max_size=3), inner, max_size=4),
)


@given(values)
def test_arguments_are_shown_as_python_writes_them(value: object) -> None:
    assert action_of(ToolCall("c", "run", json.dumps({"x": value}))).title == f"run(x={clip(str(value), 60)})"


def test_deep_arguments_are_shown_by_their_beginning() -> None:
    title = action_of(ToolCall("c", "run", '{"x": ' + "[" * 900 + "]" * 900 + "}")).title
    assert title.startswith("run(x=[[[[")
    assert len(title) < 100


def test_a_text_on_one_line_is_not_copied() -> None:
    text = "one line of a message that the conversation holds anyway"
    assert one_line(text) is text
    assert one_line(" two \n lines ") == "two lines"


@given(st.text("ab \n\t\u3000中.", max_size=120), st.integers(2, 24))
def test_the_beginning_of_a_text_is_that_of_all_of_it_on_one_line(text: str, length: int) -> None:
    assert beginning(text, length) == clip(one_line(text), length)


@given(st.text("abZ19_./()- \n,中", max_size=40))
def test_plain_words_are_those_of_three_letters_that_are_no_part_of_a_name_or_a_call(text: str) -> None:
    words = re.findall(r"(?<![\w./])[A-Za-z]{3,}(?![\w./(])|[\u3400-\u9fff]{2}", text)
    assert MessageLine.of(text).words == min(6, len(words))


@given(
    st.lists(st.sampled_from(["ok", "{", "</out>", "=====", "made 3 files", "error: no room", "", "  "]), max_size=40)
)
def test_an_outcome_is_read_from_the_end_as_if_all_lines_had_been_read(lines: list[str]) -> None:
    telling = [line for line in lines if line.strip() and line not in ("{", "</out>", "=====")]
    outcome = outcome_of("\n".join(lines))
    complaint = "error: no room" in telling[-24:] and (len(telling) <= 4 or telling[-1] == "error: no room")
    if complaint:
        assert outcome == ActionOutcome(failed=True, line="error: no room")
    else:
        said = "" if not telling else telling[-1] if len(telling) < 12 else telling[0]
        assert outcome == ActionOutcome(failed=False, line=said)


@given(st.lists(st.sampled_from(["[exit: 0]", "npm notice", "Debugger ", "<a>", "}", "-", "a", " ", "é"])).map("".join))
def test_lines_that_say_nothing_are_those_of_one_expression(text: str) -> None:
    line = text.strip()
    assume(line)
    assert _is_structure(line) == (_STRUCTURE.match(line) is not None)


@given(st.text("# \t>*-a\n\\", max_size=30))
def test_headings_are_escaped_at_the_beginning_of_a_line_only(text: str) -> None:
    lines = [re.sub(r"^([ \t>*-]*)(#{1,6}[ \t])", r"\1\\\2", line) for line in text.split("\n")]
    assert escaped(text) == "\n".join(lines)


# -- what lines add ----------------------------------------------------------------------------------------------------


def group(order: int, weight: float, *texts: str) -> LineGroup:
    return LineGroup(order, weight, tuple(MessageLine.of(text) for text in texts))


def test_the_best_lines_are_those_with_most_worth_and_of_equal_ones_the_newest() -> None:
    groups = [group(0, 1.0, "see port_8443 here", "no name at all"), group(0, 1.0, "see port_9000 here")]
    gains = Gains(groups, Counter(), 10)
    assert [key_line.line.text for key_line in gains.key_lines(gains.best(1))] == ["see port_9000 here"]
    assert len(gains.best(9)) == 2


def test_what_is_said_adds_less_and_what_a_person_wrote_adds_more() -> None:
    groups = [group(0, 1.0, "see port_8443 here"), group(0, 4.0, "see port_9000 here")]
    said: Counter[str] = Counter()
    gains = Gains(groups, said, 10)
    first, second = (gains.gain_of(one.key_line(0)) for one in groups)
    assert second == pytest.approx(4 * first)
    for spoken, by_tool in ((0.4, 0.3), (0.0, 0.0)):  # a person who says it again also says what it is about
        said.update(["port_9000", "port_8443"])
        gains.cover(["port_9000", "port_8443", "port_1"])
        assert gains.gain_of(groups[1].key_line(0)) == pytest.approx(second * spoken)
        assert gains.gain_of(groups[0].key_line(0)) == pytest.approx(first * by_tool)
    assert Gains(groups, said, 10).gain_of(groups[1].key_line(0)) == 0.0
