"""What a long talk is for: the wish that the other requests are about, not what happened to be said first."""

from __future__ import annotations

import pytest
from everlong.context.summary.facts import read_facts
from everlong.context.summary.goal import central_goal, goal_in
from everlong.context.summary.tasks import Task, cut_into_tasks

from tests.context.builders import user

OPENING = "Can you help me find out which weekday April 9 is?"
DETAILS = (
    "I'm trying to add a harbour map to my berth planner, can you help me?",
    "How do I sort the berths of my planner by length?",
    "I want to fix the berth prices in my planner, they are off by 3 %.",
    "I need to test the berth planner with 40 boats.",
    "I'm getting a KeyError in the berth planner when I delete a boat.",
    "I want to write a test for the price table of the berth planner.",
)


def tasks_of(*said: str) -> list[Task]:
    return [task for task in cut_into_tasks([read_facts(user(text)) for text in said], {}) if task.clauses]


@pytest.mark.parametrize(
    ("said", "goal"),
    [
        (
            "I'm Ida, a patient engineer, eager to build a berth planner with Rust. Can you show me a first step?",
            "build a berth planner with Rust",
        ),
        ("I'm building my first berth planner for our marina.", "I'm building my first berth planner for our marina"),
        ("I'm trying to build a berth planner in Rust, can you help me with that?", "build a berth planner in Rust"),
        ("Can you help me build a berth planner in Rust?", "build a berth planner in Rust"),
    ],
)
def test_the_goal_of_a_long_talk_is_what_its_requests_are_about(said: str, goal: str) -> None:
    assert central_goal(tasks_of(OPENING, said, *DETAILS), OPENING) == goal


def test_of_a_short_talk_what_was_said_first_is_the_goal() -> None:
    assert central_goal(tasks_of(OPENING, *DETAILS[:2]), OPENING) == ""


def test_a_goal_that_was_found_stays_while_the_talk_goes_on_about_it() -> None:
    known = "build a berth planner with Rust"
    assert (
        central_goal(tasks_of("I want to design a map of the berths for the planner.", *DETAILS), OPENING, known) == ""
    )


def test_a_goal_gives_way_where_the_talk_has_left_it() -> None:
    known = "find out which weekday April 9 is"
    tasks = tasks_of("I'm trying to build a berth planner in Rust.", *DETAILS)
    assert central_goal(tasks, OPENING, known) == "build a berth planner in Rust"


def test_what_someone_found_out_or_asks_is_no_goal() -> None:
    told = "I discovered that a berth planner with a berth map can build trust in the planner."
    asked = "What berth planner should I build for the planner of berths?"
    wish = "I want to create a berth planner for small marinas."
    assert central_goal(tasks_of(told, asked, wish, *DETAILS), OPENING) == "create a berth planner for small marinas"


@pytest.mark.parametrize(
    ("said", "goal"),
    [
        (
            "Hello! I've always been happy with you, but my train was cancelled. I'm looking to discuss a refund "
            "for the hotel that I had to pay.",
            "discuss a refund for the hotel that I had to pay",
        ),
        (
            "I think I may have ordered the same lamp twice. Could you check my account for double orders?",
            "check my account for double orders?",
        ),
        ("I have a report that is late. Can you help me with that?", "I have a report that is late"),
    ],
)
def test_someone_who_tells_what_happened_and_then_asks_wants_what_they_ask_for(said: str, goal: str) -> None:
    assert goal_in(said) == goal
