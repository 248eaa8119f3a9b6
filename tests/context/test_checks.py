"""The checks of a summary: they can fail, they say what they found, and they change nothing."""

from __future__ import annotations

from typing import Any

import pytest
from bench.retention.ranking import request_for

from everlong.context.report import Quality, check_summary
from tests.context.builders import assistant, call, user

TALK = [
    user("Move the berth planner of the harbour office from Postgres to SQLite, in src/planner.py."),
    *call(1, "bash", "src/planner.py uses berth_table\nberth_table has 46 rows", command="grep berth_table src"),
    assistant("src/planner.py reads berth_table."),
    *call(2, "bash", "4 passed", command="pytest tests/test_planner.py"),
    user("Now write the notes for Marta about berth_table and the port 8437."),
]
GOOD = (
    "## Goal\n- Move the berth planner of the harbour office from Postgres to SQLite (src/planner.py)\n"
    "## Progress\n### Done\n- berth_table has 46 rows; tests/test_planner.py passes\n"
    "## Pending User Asks\n- Notes for Marta about berth_table and port 8437"
)
VAGUE = "## Goal\n- Help the user with their project\n## Next Steps\n- Continue the work"


def checked(text: str, **more: Any) -> Quality:
    return check_summary(text, request_for(TALK), **more)


@pytest.mark.spec("9.1")
def test_a_good_summary_keeps_task_request_and_names() -> None:
    quality = checked(GOOD, rules=(2, 2))
    assert (quality.task_kept, quality.request_kept, quality.invented) == (True, True, ())
    assert quality.score > 0.85
    assert quality.in_words().startswith("task kept · 2 of 2 rules · ")


@pytest.mark.spec("9.1")
def test_a_vague_summary_fails_the_checks_and_the_words_say_which() -> None:
    quality = checked(VAGUE)
    assert (quality.task_kept, quality.request_kept, quality.names_kept) == (False, False, 0.0)
    assert quality.score <= 0.2
    assert quality.in_words() == (
        "the summary does not name the task · the newest request is not in the summary · "
        "0% of the recurring names in the summary, the rest by search"
    )


@pytest.mark.spec("9.1")
def test_every_invented_name_costs_and_is_told() -> None:
    quality = checked(f"{GOOD}\n- src/made_up.py listens on 9999")
    assert {"src/made_up.py", "9999"} <= set(quality.invented)
    assert quality.score < checked(GOOD).score - 0.09
    assert "names not in the source: src/made_up.py" in quality.in_words()


def test_lost_rules_cost_and_are_told() -> None:
    assert "1 of 2 rules" in checked(GOOD, rules=(1, 2)).in_words()
    assert checked(GOOD, rules=(1, 2)).score == pytest.approx(checked(GOOD).score - 0.05)
