"""Which lines of a conversation a summary could keep, and what makes one worth its room."""

from __future__ import annotations

import json

import pytest
from everlong.context.summary.actions import outcome_of
from everlong.context.summary.key_lines import many_lines, records

from everlong.context.summarizers import ExtractiveSummarizer, SummaryRequest
from everlong.model import Message
from tests.context.builders import user
from tests.context.scripted import COUNT

FLIGHTS = {
    "reservation_id": "UM3OG5",
    "cabin": "economy",
    "flights": [
        {"origin": "SEA", "destination": "DFW", "flight_number": "HAT113", "date": "2024-05-26"},
        {"origin": "DFW", "destination": "ATL", "flight_number": "HAT282", "date": "2024-05-28"},
    ],
    "payment": {"gift_card_73": {"amount": 39}},
    "note": "first line of a long remark\nsecond line names dock_17",
}


def tool(content: str) -> Message:
    return {"role": "tool", "tool_call_id": "c1", "content": content}


def test_json_becomes_one_line_for_each_record_with_keys_beside_values() -> None:
    told = [line.text for line in records(json.dumps(FLIGHTS)) or []]
    assert told[0] == (
        "reservation_id: UM3OG5, cabin: economy, flights: origin SEA, destination DFW, flight_number HAT113, "
        "date 2024-05-26; origin DFW, destination ATL, flight_number HAT282, date 2024-05-28, "
        "payment: gift_card_73 amount 39"
    )
    assert "second line names dock_17" in told
    assert not any(mark in line for line in told for mark in '{}"')


def test_every_scalar_of_a_json_text_stands_on_some_line() -> None:
    deep = {"a": {"b": {"c": {"d": [{"id": f"x{n}_{n}", "tags": ["t1", "t2"], "ok": True} for n in range(30)]}}}}
    text = "\n".join(line.text for line in records(json.dumps(deep)) or [])
    assert all(f"x{n}_{n}" in text for n in range(30))


def test_keys_are_no_names_worth_keeping() -> None:
    names = {name for line in many_lines(tool(json.dumps(FLIGHTS))) for name in line.entities}
    assert {"UM3OG5", "HAT113", "2024-05-28", "dock_17"} <= names
    assert not names & {"reservation_id", "flight_number"}


@pytest.mark.parametrize("text", ["{}", "[1, 2]", "{broken " + "x" * 100 + "}", "[" * 5_000 + "]" * 5_000, ""])
def test_what_is_no_json_or_too_short_is_left_as_it_is(text: str) -> None:
    assert records(text) is None


def test_indentation_is_not_paid_for_but_a_date_keeps_its_two_spaces() -> None:
    lines = [
        line.text
        for line in many_lines(tool("12\t        return load_map(x)\n# and so on\n-rw-r--r-- Oct  3 harbour.py"))
    ]
    assert lines == ["12 return load_map(x)", "-rw-r--r-- Oct  3 harbour.py"]


def test_what_stands_beside_the_summary_anyway_is_not_said_again() -> None:
    turns = [user(f"Berth number {n} belongs to boat_{n:03d} of the fleet") for n in range(40)]

    def said(*, before: list[Message], after: list[Message]) -> int:
        request = SummaryRequest(turns, None, 160, COUNT, before=before, after=after)
        summary = ExtractiveSummarizer().summarize(request)
        return sum(f"boat_{n:03d}" in summary for n in range(20))

    beside = turns[20:]
    nothing = said(before=[], after=[])
    assert said(before=beside, after=[]) > nothing
    assert said(before=[], after=beside) > nothing


def test_a_result_that_no_one_has_answered_to_outweighs_an_older_one() -> None:
    listing = "\n".join(f"entry alpha_{n:03d} waits" for n in range(60))
    newest = "\n".join(f"entry omega_{n:03d} waits" for n in range(60))
    turns = [user("Look at both lists"), tool(listing), user("and now the other"), tool(newest)]
    summary = ExtractiveSummarizer().summarize(SummaryRequest(turns, None, 130, COUNT))
    assert summary.count("omega_") > 3 * summary.count("alpha_")


@pytest.mark.parametrize(
    ("result", "failed"),
    [
        ("<returncode>0</returncode>\n<output>\nTraceback (most recent call last):\nValueError: odd\n</output>", False),
        ("<returncode>1</returncode>\n<output>\nValueError: odd\n</output>", True),
        ("error: no such berth\nexit code: 3", True),
        ('DELETE FROM "harbour_texterror" WHERE id IN (1)', False),
        ("sqlite3.OperationalError: no such table: berth", True),
    ],
)
def test_a_return_code_decides_whether_a_call_failed(result: str, failed: bool) -> None:
    assert outcome_of(result).failed is failed


def test_that_all_went_well_is_no_outcome_worth_telling() -> None:
    assert outcome_of("<returncode>0</returncode>\n<output>\n</output>").line == ""
