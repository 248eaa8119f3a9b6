"""Names and texts: what counts as a name, and how texts are cut."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, strategies as st

from everlong import Message
from everlong.context.chronicle import Chronicle
from everlong.context.digest import escaped
from everlong.context.names import entities
from everlong.context.text import beginning, clip, cut_at_clause, one_line
from tests.context.builders import call, user

HUGE = 300_000


@given(st.text("#-=:/.@~?&+$ ", max_size=30))
def test_marks_alone_name_nothing(text: str) -> None:
    assert entities(text) == []


def test_marks_without_a_name_are_gone_through_once() -> None:
    assert entities("#-" * HUGE + " src/app.py " + "$#" * HUGE) == ["src/app.py", "app.py"]


@pytest.mark.parametrize(
    "messages",
    [
        [user("#" * HUGE)],
        [user("@." * HUGE)],
        [user(". " * HUGE)],
        [user("。" * HUGE)],
        call(1, "bash", "=" * HUGE + "a", command="make"),
        call(1, "bash", "a\n" * HUGE, command="make"),
        call(1, "bash", "ok", command="sed -" + "i" * HUGE),
        call(1, "bash", "ok", command="sed -i '" * (HUGE // 8)),
        call(1, "rows", "ok", rows=[{"id": f"row_{n}"} for n in range(HUGE // 10)]),
    ],
    ids=lambda messages: str(messages)[:60],
)
def test_the_work_on_a_message_does_not_grow_with_the_square_of_its_size(messages: list[Message]) -> None:
    # Work that grew with the square of these sizes would not end while anyone waits.
    assert len(Chronicle().extended([user("Go."), *messages]).write(400, len)) <= 400


def test_a_text_on_one_line_is_not_copied() -> None:
    text = "one line of a message that the conversation holds anyway"
    assert one_line(text) is text
    assert one_line(" two \n lines ") == "two lines"


@given(st.text("ab \n\t\u3000中.", max_size=120), st.integers(2, 24))
def test_the_beginning_of_a_text_is_that_of_all_of_it_on_one_line(text: str, length: int) -> None:
    assert beginning(text, length) == clip(one_line(text), length)


@given(st.text("ab ,.;中。", max_size=80), st.integers(4, 40))
def test_a_text_is_cut_at_its_words_and_says_so(text: str, length: int) -> None:
    cut = cut_at_clause(text, length)
    assert cut == text or (text.startswith(cut.removesuffix("…").rstrip()) and cut.endswith("…"))


@given(st.text("# \t>*-a\n\\", max_size=30))
def test_headings_are_escaped_at_the_beginning_of_a_line_only(text: str) -> None:
    lines = [re.sub(r"^([ \t>*-]*)(#{1,6}[ \t])", r"\1\\\2", line) for line in text.split("\n")]
    assert escaped(text) == "\n".join(lines)
