"""An engine that was written for another host runs unchanged: many turns, a restart, tools, a file."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import everlong
from everlong.agent import AgentEvent, CompactionFinished, ToolFinished
from everlong.config.paths import data_home
from everlong.plugins.guard import GuardedEngine
from everlong.store import Store
from tests.examples import length
from tests.plugins.conftest import FOLDERS, WINDOW, WithEngine, notices, talk, talker
from tests.testing_server.conftest import Serve
from tests.waiting import PATIENCE

HALF = length(150, 12)
"""Turns before the restart, and after it."""


def told(home: Path) -> list[tuple[str, str, dict[str, Any]]]:
    """What the engine was told, as it noted it itself."""
    with sqlite3.connect(home / "ledger.db") as connection:
        rows = connection.execute("SELECT kind, session, facts FROM told ORDER BY rowid").fetchall()
    return [(kind, session, json.loads(facts)) for kind, session, facts in rows]


def kept(home: Path) -> list[dict[str, Any]]:
    """The messages that the engine kept."""
    with sqlite3.connect(home / "ledger.db") as connection:
        return [json.loads(body) for (body,) in connection.execute("SELECT body FROM message ORDER BY rowid")]


@pytest.mark.spec("1.4", "1.5", "2.8")
def test_many_turns_a_tool_and_a_restart(
    with_engine: WithEngine, serve: Serve, store: Store, heard: list[AgentEvent]
) -> None:
    server = serve(talker, window=WINDOW)
    agent = with_engine("ledger", server=server, title="Log", plugins={"ledger": {"keep": 4}})
    first = agent.conversation.session_id
    talk(agent, HALF)
    left = agent.conversation.session_id
    agent.close()
    agent = with_engine("ledger", server=server, resume="Log", plugins={"ledger": {"keep": 4}})
    talk(agent, HALF, start=HALF)

    for refused, said in zip(("register_command", "register_hook"), sorted(set(notices(heard))), strict=True):
        assert f"called {refused}, which Everlong does not offer" in said
    assert server.rejections == []
    assert isinstance(agent.engine, GuardedEngine)
    assert agent.engine.inner.keep == 4  # type: ignore[attr-defined]  # of its own section of the configuration
    done = [event for event in heard if isinstance(event, CompactionFinished)]
    assert len(done) >= length(18, 3)
    assert {event.outcome for event in done} == {"compacted"}
    assert {event.fallback for event in done} == {None}

    starts = [one for one in told(data_home()) if one[0] == "start"]
    assert starts[0][1] == first
    assert {facts["conversation_id"] for _, _, facts in starts} == {first}
    assert starts[0][2] == {
        "platform": "cli",
        "model": "claude-sonnet-5",
        "context_length": WINDOW,
        "conversation_id": first,
        "hermes_home": str(data_home()),
    }
    assert starts[1][2]["boundary_reason"] == starts[1][2]["reason"] == "compression"
    assert starts[1][2]["old_session_id"] == starts[1][2]["parent_session_id"] == first
    assert [one[1] for one in told(data_home()) if one[0] == "end"] == [left]
    last = agent.conversation.messages[-1]
    assert last["role"] == "assistant"
    agent.end()
    assert [one[1] for one in told(data_home()) if one[0] == "end"] == [left, agent.conversation.session_id]
    # No hook is needed to see every message: each request shows them, and the end of a session the last answer.
    texts = [str(message["content"]) for message in kept(data_home()) if message["role"] == "user"]
    assert all(any(text.startswith(f"Entry {number}: ") for text in texts) for number in range(2 * HALF))
    assert kept(data_home())[-1]["content"] == last["content"]

    calls = [event for event in heard if isinstance(event, ToolFinished)]
    assert {event.call.name for event in calls} == {"ledger_find"}
    assert all(event.outcome == "done" for event in calls)
    assert agent.engine.get_status()["stored"] >= 4 * HALF
    assert "agent" not in sys.modules
    assert "hermes_constants" not in sys.modules
    assert store.verify().problems == []


def in_another_process(*command: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    source = str(Path(everlong.__file__).parent.parent)
    env = {**os.environ, "PYTHONPATH": source, "PYTHONDONTWRITEBYTECODE": "1"}
    whole = [sys.executable, "-m", "everlong.plugins.foreign", *command]
    return subprocess.run(whole, cwd=cwd, env=env, capture_output=True, text=True, timeout=PATIENCE, check=False)


def test_a_foreign_plugins_own_tests_pass_with_the_modules_of_its_host(tmp_path: Path) -> None:
    tests = FOLDERS / "ledger" / "own_tests"
    options = (
        "-q",
        "-p",
        "no:cacheprovider",
        "-c",
        os.devnull,
        f"--rootdir={tests}",
        "--basetemp",
        str(tmp_path / "t"),
    )
    done = in_another_process("pytest", *options, str(tests / "check_ledger.py"), cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "5 passed" in done.stdout


SNIPPET = """
from your_engine import YourEngine
{printed}
"""
YOUR_ENGINE = """
from agent.context_engine import ContextEngine


class YourEngine(ContextEngine):
    name = "your-name"

    def __init__(self, context_length=0):
        self.context_length = context_length

    def update_from_response(self, usage):
        self.last_prompt_tokens = usage["prompt_tokens"]

    def should_compress(self, prompt_tokens=None):
        return False

    def compress(self, messages, current_tokens=None, focus_topic=None):
        return list(messages)
"""


def test_the_engine_tests_of_the_docs_run_as_they_are_printed(tmp_path: Path) -> None:
    page = (Path(__file__).parents[2] / "docs" / "foreign-engines.md").read_text(encoding="utf-8")
    (printed,) = (block for block in page.split("```") if block.startswith("python\n"))
    assert "from agent.context_engine import ContextEngine\n" in printed
    (tmp_path / "your_engine.py").write_text(YOUR_ENGINE, encoding="utf-8")
    (tmp_path / "test_engine.py").write_text(SNIPPET.format(printed=printed.removeprefix("python\n")), encoding="utf-8")
    done = in_another_process(
        "pytest", "-q", "-p", "no:cacheprovider", "-c", os.devnull, "--rootdir=.", ".", cwd=tmp_path
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 passed" in done.stdout
