"""``everlong inspect`` and ``everlong demo``: figures that add up, pictures that fit."""

from __future__ import annotations

import json
from pathlib import Path

from everlong import ContextCompressor, Message, MessageCounter
from everlong.cli.demo import load_session, play, still_known
from everlong.cli.picture import curve, fit
from everlong.context.invariants import check_all
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
    assert "1 calls without a result" in run("inspect", str(path)).out


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


# -- the demo ------------------------------------------------------------------------------------------------------


def test_the_shipped_session_is_long_and_has_what_real_ones_have() -> None:
    session, facts = load_session()
    assert len(session) >= 1_000
    roles = [message["role"] for message in session]
    calls = [message.get("tool_calls") or [] for message in session]
    answered = {m.get("tool_call_id") for m in session}
    assert roles[0] == "system"
    assert any(len(group) > 1 for group in calls)
    assert any(call["id"] not in answered for group in calls for call in group)
    assert any("\u4e00" <= character <= "\u9fff" for m in session for character in str(m["content"]))
    assert all(
        any(
            needle in json.dumps(session[fact["message"]], ensure_ascii=False)
            or needle in str(session[fact["message"]]["content"])
            for needle in fact["needle"]
        )
        for fact in facts
    )


def test_played_in_a_small_window_no_request_is_over_it_and_every_context_is_valid() -> None:
    session, facts = load_session()
    played = play(session, 32_768)
    assert len(played.compactions) >= 5
    assert max(played.sizes) <= played.window
    assert max(played.raw_sizes) > 3 * played.window
    assert check_all(played.context) == []
    known = [fact for fact in facts if still_known(fact, played.context)]
    assert len(known) >= len(facts) * 0.35


def test_a_fact_is_known_only_if_its_words_stand_in_the_context() -> None:
    fact = {"needle": ["8437", "port eight"]}
    assert still_known(fact, [{"role": "user", "content": "use port 8437"}]) == "8437"
    assert still_known(fact, [{"role": "system", "content": "8437"}, {"role": "user", "content": "none"}]) == ""


def test_the_demo_prints_curve_compactions_and_facts(run: Run) -> None:
    ran = run("demo")
    assert ran.code == 0
    assert "Context size before each of" in ran.out
    assert "compactions" in ran.out
    assert "still known at the end" in ran.out
    assert "✓" in ran.out


def test_the_demos_figures_are_json_on_request(run: Run) -> None:
    figures = run("demo", "--json", "--window", "65536").json
    assert figures["largest_request"] <= 65_536
    assert figures["threshold"] == ContextCompressor(65_536).threshold_tokens
    assert figures["compactions"]
