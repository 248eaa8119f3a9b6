"""``everlong inspect``: figures that add up, pictures that fit."""

from __future__ import annotations

import json
import re
from pathlib import Path

from everlong import Message, MessageCounter
from tests.cli.conftest import Run


def test_tokens_are_shown_by_role_and_by_tool_and_add_up(run: Run, session_file: Path, session: list[Message]) -> None:
    figure = run("inspect", str(session_file), "--json").json["conversations"][0]
    assert figure["tokens"] == sum(figure["by_role"].values()) == sum(MessageCounter().counts(session))
    assert figure["by_tool"]["bash"]["calls"] == 60
    assert figure["by_tool"]["bash"]["result_tokens"] == figure["by_role"]["tool"]
    assert [entry["tokens"] for entry in figure["largest"]] == sorted(
        (entry["tokens"] for entry in figure["largest"]), reverse=True
    )


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


def test_a_file_of_two_conversations_has_a_total_and_a_small_share_is_not_nothing(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "two.jsonl"
    one = [{"role": "user", "content": "Where? " * 999}, {"role": "assistant", "content": "There."}]
    path.write_text("\n".join(json.dumps({"messages": one}) for _ in range(2)))
    tokens, out = 2 * sum(MessageCounter().counts(one)), run("inspect", str(path)).out
    assert out.endswith(f"2 conversations: {tokens:,} tokens in 4 messages\n")
    assert re.findall(r"^  assistant +\d+ +(\S+) ", out, re.MULTILINE) == ["<1%", "<1%"]


def test_a_binary_file_is_called_no_text_file(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "bin.dat"
    file.write_bytes(bytes(range(256)) * 4 + b"\xd8\x00\x00")
    assert "bin.dat: the input is no text file" in run("inspect", str(file)).err


def test_who_names_a_conversation_instead_of_a_file_is_told_where_to_look(run: Run) -> None:
    ran = run("inspect", "20261119_172632_a70263")
    assert (ran.code, "everlong inspect --web" in ran.err) == (2, True)
