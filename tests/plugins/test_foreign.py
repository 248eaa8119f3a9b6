"""An engine that was written for another host runs unchanged: many turns, a restart, tools, a file."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import everlong
from everlong.agent import AgentEvent, CompactionFinished, ToolFinished
from everlong.config import Settings
from everlong.config.paths import data_home
from everlong.errors import PluginError
from everlong.plugins.foreign import import_module
from everlong.plugins.guard import GuardedEngine
from everlong.plugins.host import Host, running_in
from everlong.store import Store
from everlong.testing import ModelServer
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


MESSAGES = [{"role": "user", "content": "Summarize the log."}]
auxiliary_client, context_compressor, context_engine, model_metadata = (
    import_module(f"agent.{name}")
    for name in ("auxiliary_client", "context_compressor", "context_engine", "model_metadata")
)
hermes_constants, config = import_module("hermes_constants"), import_module("hermes_cli.config")
runtime_provider = import_module("hermes_cli.runtime_provider")


def settings(server: ModelServer | None = None, **sections: Any) -> Settings:
    auxiliary = {"compression": {"base_url": server.openai_url, "model": "small-one"}} if server else {}
    return Settings.model_validate({"auxiliary": auxiliary, **sections})


@pytest.fixture
def inside(serve: Serve) -> Iterator[ModelServer]:
    """A server whose model is the user's auxiliary one, and a host that says so."""
    server = serve(lambda ask: f"{ask.model}: {ask.body.get('temperature')}", window=8_000)
    with running_in(Host(settings(server))):
        yield server


def test_the_auxiliary_model_answers_in_the_shape_of_openais_client(inside: ModelServer) -> None:
    answer = auxiliary_client.call_llm(
        task="compression", messages=MESSAGES, max_tokens=50, temperature=0.3, timeout=9, main_runtime={}, other=1
    )
    assert answer.choices[0].message.content == "small-one: 0.3"
    assert answer.choices[0].finish_reason == "stop"
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + answer.usage.completion_tokens > 0
    assert auxiliary_client.extract_content_or_reasoning(answer) == "small-one: 0.3"
    assert inside.requests[0].body["max_tokens"] == 50


def test_the_configuration_has_the_shape_that_plugins_know() -> None:
    chosen = settings(
        agent={"model": "anthropic:claude-sonnet-5"},
        models={"claude-sonnet-5": {"context_length": 9_000}},
        plugins={"ledger": {"keep": 4}},
        providers={"shed": {"base_url": "http://127.0.0.1:1/v1"}},
    )
    with running_in(Host(chosen)):
        found = config.load_config()
        assert found["model"] == {"default": "claude-sonnet-5", "provider": "anthropic", "context_length": 9_000}
        assert found["compression"]["threshold"] == 0.5
        assert found["context"]["engine"] == "compressor"
        assert found["ledger"] == found["plugins"]["ledger"] == found["plugins"]["entries"]["ledger"] == {"keep": 4}
        assert config.cfg_get(found, "plugins", "ledger", "keep") == 4
        assert config.cfg_get(found, "no", "such", default=3) == 3
        assert runtime_provider._get_named_custom_provider("shed")
        assert runtime_provider._get_named_custom_provider("cerebras") is None
        assert model_metadata.get_model_context_length("claude-sonnet-5") == 9_000
    with pytest.raises(PluginError, match="everlong config set"):
        config.save_config(found)


def test_the_home_is_everlongs_unless_the_environment_says_another(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("HERMES_HOME", raising=False)
    assert config.get_hermes_home() == hermes_constants.get_hermes_home() == data_home()
    monkeypatch.setenv("AIGENLABS_HOME", str(tmp_path / "a"))
    assert hermes_constants.get_aigenlabs_home() == tmp_path / "a"
    monkeypatch.setenv("HERMES_HOME", str(tmp_path / "h"))
    assert config.get_hermes_home() == tmp_path / "h"
    token = hermes_constants.set_hermes_home_override(tmp_path / "o")
    assert hermes_constants.get_hermes_home() == tmp_path / "o"
    hermes_constants.reset_hermes_home_override(token)
    assert hermes_constants.get_hermes_home() == tmp_path / "h"


def test_what_other_hosts_have_in_the_base_class_can_be_passed_on_and_does_nothing() -> None:
    class Newer(context_compressor.ContextCompressor):  # type: ignore[misc, name-defined]
        def on_turn_complete(self, messages: list[Any], usage: dict[str, Any] | None = None, **facts: Any) -> None:
            super().on_turn_complete(messages, usage=usage, **facts)

        def select_context(self, request_messages: list[Any], **facts: Any) -> list[Any] | None:
            return super().select_context(request_messages, **facts)  # type: ignore[no-any-return]

    engine = Newer(8_000)
    engine.on_turn_complete([], usage=None, turn_id="x")
    assert engine.select_context([], budget_tokens=1) is None
    assert engine.should_compress_info(7_999) == (True, None)
    assert engine.should_defer_preflight_to_real_usage(5) is False
    assert engine.prune_tool_results_only(MESSAGES) == (MESSAGES, 0)
    assert engine.pending_compression_operation([]) is None
    said = context_engine.automatic_compaction_status_message
    assert said(engine, phase="compress", default_message=" Compacting ") == "Compacting"
    engine.emit_automatic_compaction_status = False
    assert said(engine, phase="compress", default_message="Compacting") is None
