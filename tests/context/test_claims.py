"""Claims of a summary against what was said: signs, figures, names and order, and what is no contradiction."""

from __future__ import annotations

import pytest
from everlong.context.claims import Statements, clauses_of, read_clause, stem

SAID = (
    "We hire a coach rather than taking the train, because of the harp.",
    "Lille isn't settled yet: the cathedral has not answered.",
    "Sint-Jorishof is booked now, 17 rooms. Replacement for the machine, refund for the grinder.",
    "It has no insurance. My neighbour Torhild gave me 25 strawberry plants.",
    "The last frost is on May 18, not May 4 as I said before.",
    "不用虚拟滚动，因为最多只有 450 行。",
)


def turned(text: str) -> bool:
    told = Statements(SAID)
    return any(told.contradicts(clause) for clause in clauses_of(text))


@pytest.mark.parametrize(
    "text", ["Lille is settled", "The cathedral has answered.", "We use Redis; the cathedral answered", "用虚拟滚动"]
)
def test_what_was_denied_is_not_claimed(text: str) -> None:
    assert turned(text)


@pytest.mark.parametrize(
    "text",
    [
        "Lille isn't settled",
        "The cathedral has not answered yet",
        "不用虚拟滚动",
        "A hotel in Lille",
        "The harp is there.",
    ],
)
def test_what_was_said_or_never_spoken_of_is_no_contradiction(text: str) -> None:
    assert not turned(text)


def test_what_a_tool_may_have_mended_since_is_no_contradiction() -> None:
    said = ("tests/test_tide.py fails on macOS.", "I will look at it.")
    claim = read_clause("tests/test_tide.py passes")
    assert Statements(said, last_tool=0).contradicts(claim)
    assert not Statements(said, last_tool=2).contradicts(claim)
    assert Statements(said, last_tool=2).contradicts(claim, has_open_error=True)


def test_the_newest_word_counts() -> None:
    said = ("The index is not rebuilt.", "The index is rebuilt.")
    assert not Statements(said).contradicts(read_clause("The index is rebuilt"))


def test_another_figure_in_the_same_words_is_seen() -> None:
    assert Statements(SAID).other_figures(read_clause("Sint-Jorishof is booked, 19 rooms")) == {"19"}
    assert Statements(SAID).other_figures(read_clause("Sint-Jorishof is booked, 17 rooms")) == set()
    assert Statements(SAID).other_figures(read_clause("The choir has 19 singers")) == set()


def test_two_things_the_other_way_round_are_seen() -> None:
    told = Statements(SAID)
    assert told.reversed_order("The train rather than a coach")
    assert told.reversed_order("Refund for the machine, replacement for the grinder")
    assert not told.reversed_order("A coach rather than the train")
    assert not told.reversed_order("A coach rather than a boat")


def test_names_values_and_things_that_there_are_not() -> None:
    told = Statements(SAID)
    assert told.other_name("Ragnhild gave 25 strawberry plants") == "Torhild"
    assert [(old, new) for old, new, _ in told.superseded] == [("May 4", "May 18")]
    assert told.says_only_no("insurance")
    assert not told.says_only_no("harp")


def test_stems_bring_the_forms_of_a_word_together() -> None:
    assert stem("settled") == stem("settle")
    assert stem("mapped") == stem("mapping")
    assert stem("wrote") == stem("written")
    assert stem("deleted") == stem("delete") != stem("delta")
