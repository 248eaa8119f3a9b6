"""``everlong inspect``: figures that add up, pictures that fit."""

from __future__ import annotations

import json
from pathlib import Path

from everlong import Message, MessageCounter
from everlong.cli.picture import curve, fit
from tests.cli.conftest import Run


def test_tokens_are_shown_by_role_and_by_tool_and_add_up(run: Run, session_file: Path, session: list[Message]) -> None:
    figure = run("inspect", str(session_file), "--json").json["conversations"][0]
    assert figure["tokens"] == sum(figure["by_role"].values()) == sum(MessageCounter().counts(session))
    assert figure["by_tool"]["bash"]["calls"] == 60
    assert figure["by_tool"]["bash"]["result_tokens"] == figure["by_role"]["tool"]
    assert [entry["tokens"] for entry in figure["largest"]] == sorted(
        (entry["tokens"] for entry in figure["largest"]), reverse=True
    )


def test_a_named_model_is_counted_exactly(run: Run, session_file: Path) -> None:
    assert run("inspect", str(session_file), "--model", "gpt-4o", "--json").json["conversations"][0]["counter"] == (
        "o200k_base"
    )


def test_the_picture_has_a_bar_for_every_role(run: Run, session_file: Path) -> None:
    ran = run("inspect", str(session_file))
    for role in ("system", "user", "assistant", "tool"):
        assert any(line.split()[:1] == [role] and ("█" in line or "▏" in line) for line in ran.out.splitlines())
    assert max(map(len, ran.out.splitlines())) <= 100


def test_every_share_is_one_of_the_whole_conversation(run: Run, session_file: Path) -> None:
    figure = run("inspect", str(session_file), "--largest", "3", "--json").json["conversations"][0]
    shown = run("inspect", str(session_file), "--largest", "3").out
    assert "(estimated)" in shown.splitlines()[0]
    largest = figure["largest"][0]
    line = next(line for line in shown.splitlines() if f"#{largest['index'] + 1} {largest['role']} " in line)
    assert f"{largest['tokens'] / figure['tokens']:.0%} " in line


def test_calls_and_results_that_stand_alone_are_counted(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "broken.json"
    call = {"id": "a", "function": {"name": "f", "arguments": "{}"}}
    path.write_text(
        json.dumps(
            [
                {"role": "assistant", "content": None, "tool_calls": [call]},
                {"role": "user", "content": "x"},
                {"role": "tool", "tool_call_id": "zzz", "content": "y"},
            ]
        )
    )
    figure = run("inspect", str(path), "--json").json["conversations"][0]
    assert (figure["unanswered_calls"], figure["orphaned_results"]) == (1, 1)
    assert "1 call without a result" in run("inspect", str(path)).out


def test_an_empty_conversation_has_no_tokens(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "empty.json"
    path.write_text("[]")
    assert run("inspect", str(path)).code == 0


def test_wide_characters_are_cut_by_the_cells_they_take() -> None:
    assert fit("泊位泊位", 5) == "泊位…"
    assert fit("tab\tand\x1b[31m", 40) == "tab�and�[31m"


def test_a_curve_reaches_as_high_as_its_values() -> None:
    assert curve([0, 50, 100], 100, 2, 3) == ["  █", " ██"]
    assert curve([], 100, 2, 3) == []
