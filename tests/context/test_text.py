"""Names and texts: what counts as a name, and how texts are cut."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, strategies as st

from everlong import Message
from everlong.context.chronicle import Chronicle
from everlong.context.digest import escaped
from everlong.context.names import names_by_line
from tests.context.builders import call, user
from tests.examples import length

HUGE = length(300_000, 30_000)


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


@given(st.text("# \t>*-a\n\\", max_size=30))
def test_headings_are_escaped_at_the_beginning_of_a_line_only(text: str) -> None:
    lines = [re.sub(r"^([ \t>*-]*)(#{1,6}[ \t])", r"\1\\\2", line) for line in text.split("\n")]
    assert escaped(text) == "\n".join(lines)


def test_a_line_of_very_many_names_is_read_in_one_pass() -> None:
    # Other threads wait for the whole line, and only a test that hangs would show that it takes too long.
    assert names_by_line(["at 11 of a.py " * 400_000, "one"]) == [("11", "a.py"), ()]
