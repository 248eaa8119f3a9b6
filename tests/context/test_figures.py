"""Figures that people give: which of them a later one replaces, and what of a summary's room they get."""

from __future__ import annotations

import pytest
from everlong.context.summary.clauses import clauses
from everlong.context.summary.facts import read_facts
from everlong.context.summary.figures import find_outdated, read_figures

from everlong import ContextCompressor, Message
from everlong.context.literals import is_summary
from everlong.model import text_of
from tests.context.builders import assistant, system, user


def replaced(*said: str) -> list[str]:
    """What a conversation says that holds no longer."""
    found = find_outdated(list(enumerate(said)))
    return [text for place, text in enumerate(said) if place in found]


# -- which figure holds ------------------------------------------------------------------------------------------------

OTHER_TALK = (
    "We have 40 pilots at the harbour",
    "the tug needs 12 minutes from the pier",
    "I met Ada on May 3 at the lighthouse",
    "our crane lifts 80 tons",
)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("I've set the snack budget to $65", "I've adjusted the snack budget to $75"),
        ("the test coverage of the planner is 65%", "the coverage of the planner has recently improved to 78%"),
        ("the gallery has 8 cards", "I've added two, so now the gallery has a total of 10 cards"),
        ("the deadline of the first sprint is April 1", "the new deadline of the first sprint is April 5"),
        ("the workshop is for 12 staff members", "the workshop for staff is now up to 15 after late registrations"),
        ("the berth cycle went from 28 to 18 days", "we've just reduced the berth cycle to 16 days"),
    ],
)
def test_a_newer_value_of_the_same_thing_replaces_the_older_one(old: str, new: str) -> None:
    assert replaced(old, *OTHER_TALK, new) == [old]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("the pier is 300 meters long", "the budget for the pier is now $300"),
        ("my meeting with Ada is on March 10", "my dinner with Ada is on March 20"),
        ("I sold 20 tickets for the fair", "the new ferry carries 90 cars"),
        ("images are under 200KB each", "images are under 200KB each"),
    ],
)
def test_figures_of_different_things_both_hold(one: str, other: str) -> None:
    assert replaced(one, *OTHER_TALK, other) == []


def test_the_same_figures_of_many_things_of_a_kind_all_hold() -> None:
    sides = ("3, 4, 5", "6, 8, 10", "5, 12, 13", "8, 15, 17", "7, 24, 25", "9, 12, 15")
    assert replaced(*(f"classify a triangle with sides {side} cm" for side in sides)) == []


def test_a_value_that_held_before_the_clause_was_said_is_none_of_its_figures() -> None:
    assert read_figures("it fell from 300 ms to 180 ms").values == {"ms": {"180"}}


def chat_of(*said: str) -> list[Message]:
    """Each sentence with a long answer, so that a compaction covers it."""
    filler = "The harbour has piers and berths, and ships come and go with the tide. " * 60
    talk = [message for text in said for message in (user(text), assistant(filler))]
    return [system(), user("Please help me with the fair."), assistant("Gladly."), *talk]


def summary_of(*said: str) -> str:
    more = [f"What about the stand of the {name}?" for name in ("bakers", "smiths", "weavers", "potters", "fishers")]
    compacted = ContextCompressor(8_000).compress(chat_of(*said, *more), force=True)
    return next(text_of(message) for message in compacted if is_summary(message))


def test_a_summary_has_the_newer_figure_and_not_the_older_one() -> None:
    summary = summary_of(
        "I've set the budget of the fair to $650, what can I get for that?",
        "How many stands fit?",
        "I've now raised the budget of the fair to $720, is that enough?",
    )
    assert "$720" in summary
    assert "$650" not in summary


def test_what_people_tell_of_themselves_in_a_question_is_kept() -> None:
    summary = summary_of(
        "What should I sell, given that I prefer cold dishes and my stand is only 3 meters wide?",
        "I've decided to bake rye bread, what do you think about that?",
    )
    assert "I prefer cold dishes" in summary
    assert "3 meters" in summary
    assert "I've decided to bake rye bread" in summary


# -- what a clause states and what it asks -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("said", "states", "asks"),
    [
        ("I prefer tabs, what would you take?", ["I prefer tabs"], ["what would you take?"]),
        (
            "How do I name berths, given that we have 40 of them?",
            ["we have 40 of them"],
            ["How do I name berths"],
        ),
        ("Is the pier open?", [], ["Is the pier open?"]),
        ("We keep the pier open?", [], ["We keep the pier open?"]),
        (
            "I've chosen oak for the pier, but I'm wondering if it lasts 20 years?",
            ["I've chosen oak for the pier"],
            ["if it lasts 20 years?"],
        ),
    ],
)
def test_a_sentence_that_ends_with_a_question_may_state_something(
    said: str, states: list[str], asks: list[str]
) -> None:
    found = clauses(said)
    assert [clause.text for clause in found if not clause.asks] == states
    assert [clause.text for clause in found if clause.asks] == asks


@pytest.mark.parametrize(
    "said",
    [
        "My niece Ada, who is 11, steers the tug since May 3",
        "I met Grace, my oldest friend, at the pier on May 3",
        "I choose between a $950 stand at the pier and my $850 place in the hall",
        "the crane, which we bought in 2019, is slow",
    ],
)
def test_what_is_told_in_between_does_not_break_a_clause(said: str) -> None:
    assert [clause.text for clause in clauses(said)] == [said]


def test_feelings_around_a_figure_do_not_hide_it() -> None:
    found = clauses("I'm excited that Ada booked a dinner at the pier on May 3 at 7 PM, what shall I wear?")
    assert any("May 3" in clause.text for clause in found)


def test_a_deadline_is_a_fact_about_the_user_also_behind_a_request() -> None:
    facts = read_facts(user("I want to see how the map of berth B-17 works, considering my deadline is April 15."))
    assert [clause.text for clause in facts.preferences] == ["my deadline is April 15"]
