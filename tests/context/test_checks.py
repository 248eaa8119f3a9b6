"""The checks of a summary: each sees its own fault, names it, and takes it off the score."""

from __future__ import annotations

import pytest
from bench.retention.damage import DAMAGES, LEAST_DROP, LEAST_NAMED, LEAST_ORIGINAL, outcomes
from bench.retention.written_damage import outcomes as written_outcomes
from everlong.context.verify import Yardstick

from everlong import ContextCompressor, SummarizerChain
from everlong.context import SummaryRequest
from everlong.context.model_summary import Choice
from tests.context.builders import assistant, long_session, user


@pytest.mark.spec("9.1")
def test_the_score_sees_every_kind_of_damage_and_names_it() -> None:
    originals, found = outcomes(sessions=6, seed=41)
    assert min(originals) >= LEAST_ORIGINAL
    assert {one.kind for one in found} == set(DAMAGES)
    assert [one for one in found if not one.is_held] == []
    assert all(one.original - one.score >= LEAST_DROP for one in found)
    assert sum(one.is_named for one in found) >= LEAST_NAMED * len(found)


SAID = [
    user("Move the berth planner to Postgres 15. Never write to config/prod.yaml."),
    assistant("I will not keep Redis as a cache. The load takes 250 ms now."),
    user("Add the tide tables, please."),
]


def faults(summary: str) -> list[str]:
    yardstick = Yardstick(SAID, SAID, SAID, newest="Add the tide tables, please.")
    return [fault.check for fault in yardstick.faults(summary)]


NEWEST = "\n## Pending User Asks\n- Newest request: Add the tide tables, please."


@pytest.mark.parametrize(
    ("summary", "fault"),
    [
        ("## Goal\n- Move the berth planner to Postgres 15.", None),
        ("## Goal\n- Bake an apple cake with cinnamon.", "goal"),
        ("## Goal\n- Move the planner.\n## Constraints & Preferences\n- Write to config/prod.yaml.", "contradiction"),
        ("## Goal\n- Move the planner.\n## Key Decisions\n- Redis is kept as a cache.", "contradiction"),
        ("## Goal\n- Move the planner to Postgres.\n### Done\n- The load takes 150 ms now.", "invented"),
        ("## Goal\n- Move the planner to Postgres.\n### Done\n- Agreed with Quentin on it.", "invented"),
        ("## Goal\n- Move the planner.\n## Constraints & Preferences\n- max-width: 1200px;\n- <div>", "code"),
        (
            "## Goal\n- Move the planner.\n## Next Steps\n- <system-reminder>Today is Monday.</system-reminder>",
            "wrapper",
        ),
    ],
)
def test_each_check_has_its_own_fault(summary: str, fault: str | None) -> None:
    found = faults(summary + NEWEST)
    assert fault in found if fault else found == []


def test_a_request_that_is_not_the_newest_is_seen() -> None:
    stale = (
        "## Goal\n- Move the planner.\n## Pending User Asks\n- Newest request: Move the berth planner to Postgres 15."
    )
    assert faults(stale) == ["newest request"]
    assert faults("## Goal\n- Move the planner.") == ["newest request"]


class Writer:
    """A model that turns round what the user said, or not."""

    def __init__(self, name: str, *, is_poor: bool) -> None:
        self.name = name
        self.is_poor = is_poor
        self.asked = 0

    def summarize(self, request: SummaryRequest) -> str:
        del request
        self.asked += 1
        decided = ["display: flex;", "margin: auto;", "</div>", "color: red;"] if self.is_poor else ["Build first."]
        lines = [
            "## Goal",
            "- Build the project and fix what is broken.",
            "## Key Decisions",
            *(f"- {d}" for d in decided),
        ]
        return "\n".join([*lines, "## Next Steps", "- Go on with the build."])


@pytest.mark.spec("9.3")
@pytest.mark.parametrize("choose", ["first_good", "best"])
def test_of_several_models_the_one_that_writes_well_is_taken(choose: Choice) -> None:
    poor, good = Writer("poor", is_poor=True), Writer("good", is_poor=False)
    engine = ContextCompressor(32_000, summarizer=SummarizerChain([poor, good], choose))
    engine.compress(long_session(120))
    assert engine.last_report is not None
    assert (engine.last_report.summarizer, poor.asked, good.asked) == ("good", 1, 1)


@pytest.mark.spec("9.1")
@pytest.mark.spec("9.3")
def test_two_poor_summaries_in_a_row_change_the_strategy_step_by_step() -> None:
    one, other = Writer("one", is_poor=True), Writer("other", is_poor=True)
    engine = ContextCompressor(32_000, summarizer=SummarizerChain([one, other]))
    told: list[str | None] = []
    for _ in range(7):
        engine.compress(long_session(120))
        report = engine.last_report
        assert report is not None
        told.append(report.strategy)
    assert told == [
        *[None] * 2,
        *["two poor summaries in a row: a larger budget"] * 2,
        *["two poor summaries in a row with a larger budget: other is asked first"] * 2,
        "poor summaries in a row: made of the conversation's own lines for a while",
    ]
    assert (one.asked, other.asked) == (6, 6)  # and at last nobody


def test_a_good_summary_forgives_a_poor_one() -> None:
    writer = Writer("one", is_poor=True)
    engine = ContextCompressor(32_000, summarizer=writer)
    for is_poor in (True, False, True, False):
        writer.is_poor = is_poor
        engine.compress(long_session(120))
        assert engine.last_report is not None
        assert engine.last_report.strategy is None


def test_the_score_sees_damage_that_was_written_by_hand() -> None:
    originals, found = written_outcomes()
    assert min(originals) >= LEAST_ORIGINAL
    assert len(found) >= 200
    missed = [one.faults[0] for one in found if not (one.is_held and one.is_named)]
    assert len(missed) <= 2, missed
