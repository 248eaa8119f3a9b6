"""``everlong compress``: formats in and out, sizes, reports, and what a person reads when it cannot be done."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from everlong import Message
from everlong.context.invariants import check_all
from everlong.context.literals import is_summary
from everlong.testing import Fault, ModelServer
from tests.cli.conftest import Run
from tests.context.scripted import GOOD

SMALL = ("--context-length", "8000")


@pytest.mark.spec("11")
def test_a_message_list_goes_in_and_comes_out(run: Run, session_file: Path, session: list[Message]) -> None:
    ran = run("compress", str(session_file), *SMALL)
    result = json.loads(ran.out)
    assert ran.code == 0
    assert sum(map(is_summary, result)) == 1
    assert check_all(result, session) == []
    assert f"read {session_file} as an OpenAI message list of 125 messages" in ran.err
    assert "summarized" in ran.err


def test_a_request_body_stays_one_with_all_its_fields(run: Run, tmp_path: Path, session: list[Message]) -> None:
    path = tmp_path / "request.json"
    tools = [{"type": "function", "function": {"name": "bash", "parameters": {"type": "object"}}}]
    path.write_text(json.dumps({"model": "gpt-4o", "messages": session, "tools": tools, "temperature": 0.2}))
    ran = run("compress", str(path), *SMALL)
    body = json.loads(ran.out)
    assert list(body) == ["model", "messages", "tools", "temperature"]
    assert body["tools"] == tools
    assert len(body["messages"]) < len(session)
    assert "a chat-completions request for gpt-4o" in ran.err


def test_an_impossible_budget_is_an_error_that_names_the_least(run: Run, session_file: Path) -> None:
    ran = run("compress", str(session_file), "--budget", "10")
    assert (ran.code, ran.out) == (1, "")
    least = int(ran.err.rsplit("at least ", 1)[1])
    assert run("compress", str(session_file), "--budget", str(least)).code == 0


def test_the_diff_shows_what_became_of_each_message(run: Run, session_file: Path) -> None:
    lines = run("compress", str(session_file), *SMALL, "--diff").out.splitlines()
    assert lines[0].startswith("~     1 noted      system")
    assert lines[1].startswith("      2 kept       user      Build the project")
    assert any(line.startswith("-     4 summarized") for line in lines)
    assert any(line.startswith("+       added      user      [CONTEXT COMPACTION") for line in lines)
    assert any(re.match(r"\d+ kept.* summarized", line) for line in lines)
    assert "## Goal" in lines, "and then the summary"


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "empty"),
        (b"{", "line 1"),
        (b"\xff\xfe\x00garbage", "everlong:"),
    ],
)
def test_a_file_that_is_no_conversation_is_refused_in_one_line(
    run: Run, tmp_path: Path, content: bytes, words: str
) -> None:
    path = tmp_path / "broken.json"
    path.write_bytes(content)
    ran = run("compress", str(path))
    assert (ran.code, ran.out) == (1, "")
    assert words in ran.err
    assert "Traceback" not in ran.err


def test_one_file_has_one_count_in_every_command(run: Run, tmp_path: Path, session: list[Message]) -> None:
    call = {"id": "lost", "type": "function", "function": {"name": "bash", "arguments": "{}"}}
    unanswered: list[Message] = [*session, {"role": "assistant", "content": None, "tool_calls": [call]}]
    tools = [{"type": "function", "function": {"name": "bash", "parameters": {"type": "object"}}}]
    path = tmp_path / "request.json"
    path.write_text(json.dumps({"model": "gpt-4o", "messages": [*unanswered, session[0]], "tools": tools}))
    tokens = run("inspect", str(path), "--json").json["conversations"][0]["tokens"]
    assert run("compress", str(path), *SMALL, "--json").json["tokens_before"] == tokens
    assert f"{tokens:,} →" in run("compress", str(path), *SMALL).err
    (replayed,) = run("cache-sim", str(path), "--json").json["sessions"]
    assert replayed["strategies"]["automatic"]["requests"][-1]["prompt"] == tokens


def test_an_error_names_the_file_that_was_asked_for(run: Run, session_file: Path, tmp_path: Path) -> None:
    ran = run("compress", str(session_file), "-o", str(tmp_path / "missing" / "result.json"))
    assert ran.code == 1
    assert f"{tmp_path}/missing/result.json: No such file or directory" in ran.err


NARROW = ("--context-length", "8000", "--json")


def test_auto_takes_the_model_of_the_configuration_and_a_failure_falls_back(
    run: Run, session_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with ModelServer(GOOD, dialect="llama.cpp", faults={0: Fault("unauthorized")}) as server:
        monkeypatch.setenv("EVERLONG_AUXILIARY__COMPRESSION__BASE_URL", server.openai_url)
        monkeypatch.setenv("EVERLONG_AUXILIARY__COMPRESSION__MODEL", "tiny")
        failed = run("compress", str(session_file), *NARROW, "--summarizer", "auto")
        worked = run("compress", str(session_file), *NARROW, "--summarizer", "auto")
    assert failed.json["conversations"][0]["summarizer"] == "built-in rules"
    assert "AuthenticationFailed" in failed.json["conversations"][0]["fallback_reason"]
    assert worked.json["conversations"][0]["summarizer"] == "custom:tiny"
