"""The summary that needs no model: its headings, its budget, what it takes from a conversation, how it is updated."""

from __future__ import annotations

import pytest

from everlong import ContextCompressor, ExtractiveSummarizer, Message, SummaryRequest
from everlong.context.document import SummaryDocument
from everlong.tokens import EstimatingCounter
from tests.context.builders import assistant, long_session, output, step, summary_text, system, user

HEADINGS = [
    "## Goal",
    "## Constraints & Preferences",
    "## Progress",
    "### Done",
    "### In Progress",
    "### Blocked",
    "## Key Decisions",
    "## Resolved Questions",
    "## Pending User Asks",
    "## Relevant Files",
    "## Next Steps",
    "## Critical Context",
    "## Tools & Patterns",
]
COUNT = EstimatingCounter().count_text

TURNS: list[Message] = [
    user("Never touch the legacy/ folder. Prices are stored in öre, always as integers."),
    assistant("We keep SQLite because the marina has one writer. Next I will write the schema."),
    *step(1, "ok", tool="write_file", path="harbour/schema.py", content="CREATE TABLE berth"),
    *step(2, "harbour/rates.py", tool="read_file", path="harbour/rates.py"),
    *step(3, "E  ImportError: cannot import name 'Berth'\n3 failed, 5 passed in 0.41s", command="pytest -q tests/unit"),
    user("Which port does the API use?"),
    assistant("The API listens on port 8437."),
    *step(4, "Traceback (most recent call last):\nKeyError: 'B-17'", command="python -m harbour.importer data.csv"),
    assistant("The importer stops at berth B-17. Remaining: handle missing rows."),
]


def summarize(turns: list[Message], budget: int = 900, **wishes: str) -> str:
    request = SummaryRequest(
        turns=turns,
        previous=wishes.get("previous"),
        budget_tokens=budget,
        count=COUNT,
        opening=user("Build a berth planner for the marina"),
        latest_user=None,
        focus_topic=wishes.get("focus"),
        memory_context=wishes.get("memory"),
    )
    return ExtractiveSummarizer().summarize(request)


def sections(text: str) -> dict[str, list[str]]:
    return SummaryDocument.parse(text).items


@pytest.mark.spec("5.3")
def test_headings_stand_in_their_fixed_order_and_empty_ones_are_left_out() -> None:
    found = [line for line in summarize(TURNS).splitlines() if line.startswith("#")]
    assert found == [heading for heading in HEADINGS if heading in found]
    assert "## Pending User Asks" not in found
    assert {"## Goal", "## Progress", "### Done", "## Relevant Files"} <= set(found)


@pytest.mark.spec("5.3")
def test_goal_constraints_decisions_files_errors_and_open_items_come_from_the_conversation() -> None:
    items = sections(summarize(TURNS))
    assert items["Goal"] == ["- Build a berth planner for the marina"]
    assert any("legacy/" in item for item in items["Constraints & Preferences"])
    assert any("SQLite because" in item for item in items["Key Decisions"])
    assert "- `harbour/schema.py` — wrote" in items["Relevant Files"]
    assert "- `harbour/rates.py` — read" in items["Relevant Files"]
    assert any("pytest -q tests/unit" in item and "3 failed" in item for item in items["Done"])
    assert any("KeyError: 'B-17'" in item for item in items["Blocked"])
    assert any("8437" in item for item in items["Resolved Questions"])
    assert any("Remaining: handle missing rows" in item for item in items["Next Steps"])


@pytest.mark.spec("5.3")
@pytest.mark.parametrize("budget", [40, 60, 120, 300, 900, 5_000])
def test_the_budget_is_kept(budget: int) -> None:
    turns = [*TURNS, *long_session(40)]
    text = summarize(turns, budget)
    assert 0 < COUNT(text) <= budget


@pytest.mark.spec("5.3")
def test_what_relates_to_the_focus_comes_first_and_has_most_of_the_room() -> None:
    turns = [
        user(f"The {topic} of module {n} must be checked on 2026-01-{n:02}")
        for n in range(1, 29)
        for topic in ("invoice", "berth")
    ]
    plain, focused = summarize(turns, 700), summarize(turns, 700, focus="invoice")

    def share(text: str) -> float:
        lines = [line for line in text.splitlines() if line and not line.startswith("#")]
        return sum(COUNT(line) for line in lines if "invoice" in line) / sum(map(COUNT, lines))

    assert share(focused) >= 0.6 > share(plain)
    constraints = sections(focused)["Constraints & Preferences"]
    assert ["invoice" in item for item in constraints] == sorted(
        ("invoice" in item for item in constraints), reverse=True
    )


def test_a_chinese_conversation_is_summarized_in_chinese() -> None:
    turns = [
        user("价格必须用整数保存，不要动 legacy 目录。"),
        assistant("我决定采用 SQLite，因为只有一个写入者。"),
        *step(1, "写入成功", tool="write_file", path="港口/模型.py"),
        *step(2, "错误：找不到泊位 B-17", command="python 导入.py"),
    ]
    items = sections(summarize(turns))
    assert any("整数保存" in item for item in items["Constraints & Preferences"])
    assert any("采用 SQLite" in item for item in items["Key Decisions"])
    assert "- `港口/模型.py` — 写入" in items["Relevant Files"]
    assert any(item.startswith("- 运行 `python 导入.py`") for item in items["Done"])
    assert any("B-17" in item for item in items["Blocked"])


def test_an_error_that_was_fixed_later_is_not_blocking() -> None:
    turns = [*step(1, "2 failed, 1 passed", command="pytest -q"), *step(2, "3 passed in 0.2s", command="pytest -q")]
    assert sections(summarize(turns))["Blocked"] == []


def test_a_change_of_mind_is_a_decision() -> None:
    turns = [user("Use PostgreSQL."), assistant("Fine."), user("Actually, forget PostgreSQL, use SQLite.")]
    assert any("forget PostgreSQL" in item for item in sections(summarize(turns))["Key Decisions"])


@pytest.mark.spec("7.3")
def test_what_a_memory_provider_wants_kept_is_kept() -> None:
    wanted = "the skipper's dog is called Balder"
    assert wanted in summarize(TURNS, memory=wanted)
    crowded = [*TURNS, *(assistant(f"berth {n} of pier_{n} costs {n * 7} crowns") for n in range(2_000))]
    assert wanted in summarize(crowded, memory=f"Two lines:\n## Goal\n{wanted}")
    assert "\n## Goal\nthe skipper" not in summarize(crowded, memory=f"Two lines:\n## Goal\n{wanted}")


@pytest.mark.spec("5.5")
def test_the_previous_summary_is_updated_not_rewritten() -> None:
    previous = """## Goal
- Build a berth planner

## Constraints & Preferences
- Never touch legacy/

## Progress
### In Progress
- Writing the importer
### Blocked
- `pytest -q` failed: KeyError 'B-17'

## Relevant Files
- `harbour/schema.py` — wrote

## Next Steps
- Write the importer

## Critical Context
- The API listens on port 8437

## Tools & Patterns
- Tools used: bash ×7"""
    turns = [
        *step(1, "ok", tool="edit_file", path="harbour/importer.py"),
        *step(2, "9 passed in 0.3s", command="pytest -q"),
        assistant("The importer works. Next: document it."),
    ]
    items = sections(summarize(turns, previous=previous))
    assert items["Goal"] == ["- Build a berth planner"]
    assert "- Never touch legacy/" in items["Constraints & Preferences"]
    assert "- Writing the importer" in items["Done"]
    assert items["Blocked"] == []
    assert {"- `harbour/schema.py` — wrote", "- `harbour/importer.py` — edited"} <= set(items["Relevant Files"])
    assert "- Write the importer" not in items["Next Steps"]
    assert any("8437" in item for item in items["Critical Context"])
    assert items["Tools & Patterns"] == ["- Tools used: bash ×7"]


@pytest.mark.spec("5.5")
def test_the_previous_summary_is_found_in_the_conversation_by_a_new_engine() -> None:
    session = [
        system(),
        user("Keep berth B-17 free for the pilot boat."),
        assistant("Noted."),
        *TURNS,
        *long_session(60)[3:],
    ]
    once = ContextCompressor(16_000).compress(session)
    twice = ContextCompressor(16_000).compress([*once, *long_session(60)[3:]])
    assert "harbour/schema.py" in summary_text(once)
    assert "harbour/schema.py" in summary_text(twice)


def test_the_same_turns_always_give_the_same_summary() -> None:
    turns = [*TURNS, *long_session(30)]
    assert (
        summarize(turns)
        == summarize(turns)
        == ExtractiveSummarizer().summarize(
            SummaryRequest(turns, None, 900, COUNT, opening=user("Build a berth planner for the marina"))
        )
    )


def test_nothing_to_say_still_gives_a_summary() -> None:
    empty = SummaryRequest([{"role": "assistant", "content": None}], None, 40, COUNT)
    assert ExtractiveSummarizer().summarize(empty).startswith("## ")


def test_a_megabyte_in_one_message_is_no_trouble() -> None:
    turns: list[Message] = [user("x" * 1_000_000), assistant(output(100_000)), user("\ud800 lone surrogate 4711")]
    assert COUNT(summarize(turns)) <= 900
