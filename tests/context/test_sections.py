"""What belongs into which section: preferences and decisions of people, variants told once, no code among the done."""

from __future__ import annotations

import pytest

from everlong.context.summary.clauses import clauses, prose
from everlong.context.summary.facts import read_facts
from everlong.context.summary.language import phrases_for, sentences
from everlong.context.summary.outline import Candidate, Outline
from everlong.context.summary.retractions import find_retractions
from everlong.context.summary.selection import select
from everlong.tokens import EstimatingCounter
from tests.context.builders import assistant, step, user
from tests.context.test_extractive import sections, summarize

CONSTRAINTS = "Constraints & Preferences"


@pytest.mark.parametrize(
    "said",
    [
        "I should be eligible for a full refund of 300 euros.",
        "I've achieved 99.9% uptime within 7 days of the launch.",
        "Can you plan the sprint carefully so that we meet the deadline?",
        "I want to cache the tiles to avoid a slow map of berth B-17.",
        "My accuracy has gone from 70% to 90%.",
    ],
)
def test_claims_reports_and_requests_are_no_preference(said: str) -> None:
    assert read_facts(user(said)).preferences == ()


@pytest.mark.parametrize(
    "said",
    [
        "The map should be readable on phones.",
        "I have a deadline of April 15 for the map.",
        "I want to avoid external services.",
        "We're on Postgres 15 here.",
        "My berth number is B-17.",
    ],
)
def test_wishes_limits_and_circumstances_are_preferences(said: str) -> None:
    assert len(read_facts(user(said)).preferences) == 1


@pytest.mark.parametrize(
    ("said", "is_decided"),
    [
        ("I've decided to host the map on our own server.", True),
        ("I chose vector tiles over images because they are small.", True),
        ("I'll stick to the agenda you suggested.", False),
        ("I've heard that switching to vector tiles could help.", False),
        ("Let's do it!", False),
    ],
)
def test_a_decision_was_made_and_says_what(said: str, *, is_decided: bool) -> None:
    assert bool(read_facts(user(said)).decisions) is is_decided


def chosen(*items: str) -> list[str]:
    outline = Outline(phrases_for(["The map"]), 9)
    outline.candidates = [Candidate(CONSTRAINTS, place, f"- {item}", 3 - place / 9) for place, item in enumerate(items)]
    document = select(outline, 900, EstimatingCounter().count_text, None)
    return [item.removeprefix("- ") for item in document.items[CONSTRAINTS]]


def test_variants_of_a_circumstance_are_told_once_with_all_their_figures() -> None:
    assert chosen(
        "I'm using Leaflet 1.9 for the map",
        "I'm using Leaflet v1.9",
        "I'm using Django 5.1 and Leaflet 1.9",
        "I'm using Leaflet",
    ) == ["I'm using Django 5.1 and Leaflet 1.9"]


def test_other_figures_and_other_things_are_no_variants() -> None:
    items = ["a deadline of April 5 for the map", "a deadline of April 20 for the map", "keep tiles under 200KB each"]
    assert chosen(*items) == items


def test_dropping_something_here_takes_nothing_back() -> None:
    handed, given_up = "Just drop the details here.", "Drop the details."
    assert find_retractions(handed, sentences(handed)) == ()
    assert find_retractions(given_up, sentences(given_up)) != ()


def test_formulas_titles_and_comments_of_a_pasted_text_are_no_clauses() -> None:
    pasted = (
        "Fix the tide table\n<!-- you need not remove this comment -->\n**Describe the bug**\nThe area is \\( 3b \\)."
    )
    assert [clause.text for clause in clauses(prose(pasted))] == ["Fix the tide table"]


def test_a_closing_quotation_mark_stays() -> None:
    assert [clause.text for clause in clauses('The tide table fails with mode set to "lunar".')] == [
        'The tide table fails with mode set to "lunar"'
    ]


def test_an_edit_by_a_command_names_the_file_and_no_code() -> None:
    turns = [
        user("Correct the tide table."),
        *step(1, "ok", command="sed -i '12s/return None/return tide.level(at)/' harbour/tides.py"),
        assistant("The table is corrected."),
    ]
    done = "\n".join(sections(summarize(turns))["Done"])
    assert "tides.py" in done
    assert "return tide.level" not in done


def test_looking_thinking_and_earlier_runs_of_a_command_are_no_progress() -> None:
    turns = [
        *step(1, "2 failed, 7 passed in 0.3s", command="pytest -q"),
        *step(2, "def price(): ...", command="nl -ba harbour/rates.py | sed -n '1,20p'"),
        *step(3, "I should look at the rates.", tool="think", thought="what is wrong with the rates"),
        *step(4, "", command="mkdir -p build"),
        *step(5, "9 passed in 0.2s", command="pytest -q 2>&1 | tail -3"),
    ]
    (done,) = sections(summarize(turns))["Done"]
    assert done.endswith("→ 9 passed in 0.2s")


def test_a_file_is_named_once_where_it_was_changed_last_and_not_at_all_when_it_is_gone() -> None:
    turns = [
        *step(1, "", command="echo 1 > probe.py"),
        *step(2, "ok", tool="edit_file", path="harbour/rates.py"),
        *step(3, "3 passed in 0.1s", command="pytest -q"),
        *step(4, "ok", tool="edit_file", path="harbour/rates.py"),
        *step(5, "", command="rm probe.py"),
    ]
    items = sections(summarize(turns))
    assert sum("harbour/rates.py" in item for item in items["Done"]) == 1
    assert [item for item in items["Relevant Files"] if "probe.py" in item] == []


@pytest.mark.parametrize(
    "said",
    [
        "The step-by-step breakdown makes it clear how berths are priced!",
        "I'll definitely practice more.",
        "Can you show me how to do this again?",
        "Sounds like a great idea.",
    ],
)
def test_agreement_and_wishes_for_more_of_it_do_not_stand_alone(said: str) -> None:
    assert not any(clause.stands for clause in clauses(said))


@pytest.mark.parametrize(
    "said",
    [
        "Can you explain how the berth planner prices winter storage?",
        "I've reduced the load time from 2.3s to 1.4s.",
        "I met Ida at the harbour festival about the berth planner.",
    ],
)
def test_requests_with_their_subject_and_facts_stand_alone(said: str) -> None:
    assert any(clause.stands for clause in clauses(said))
