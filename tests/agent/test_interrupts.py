"""Stopping an agent at every point: the conversation stays valid, stored and able to go on."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from bench.agent.faults import play

from everlong.agent import Agent, AgentEvent, TextDelta, ToolContext, tool
from everlong.context.invariants import check_all
from everlong.model import find_groups
from everlong.store import Store
from everlong.testing import Answer, Ask, Call, Fault
from tests.agent.conftest import APIS, Opened
from tests.program import everlong_program
from tests.testing_server.conftest import Serve
from tests.waiting import PATIENCE, until


def two_calls(ask: Ask) -> Answer:
    """Calls a tool that waits, and another one after it."""
    if any(turn.results for turn in ask.turns):
        return Answer("Well then.")
    return Answer("Working.", [Call("wait", {}), Call("wait", {}), Call("list_files", {})])


@pytest.mark.parametrize("api", APIS)
def test_stopped_inside_a_tool_every_call_has_a_result(serve: Serve, opened: Opened, store: Store, api: str) -> None:
    server = serve(two_calls)
    made: list[Agent] = []

    def wait(context: ToolContext) -> str:
        """Wait until somebody has enough."""
        threading.Thread(target=made[0].interrupt).start()
        context.interrupted.wait(PATIENCE)
        return "waited"

    made.append(opened(server, api, tools=[tool(wait)]))
    agent = made[0]
    finished = agent.run("Wait for it.")
    assert finished.stop == "interrupted"
    messages = agent.conversation.messages
    assert not find_groups(messages).groups[-1].missing
    assert "Not run" in messages[-1]["content"]
    assert check_all(messages) == []
    assert store.context(agent.conversation.branch) == messages  # type: ignore[arg-type]
    assert agent.run("Go on.").text == "Well then."
    assert server.rejections == []


@pytest.mark.parametrize("api", APIS)
def test_stopped_while_the_answer_comes_what_was_said_is_kept(
    serve: Serve, opened: Opened, heard: list[AgentEvent], api: str
) -> None:
    server = serve("One two three four five six seven eight nine ten eleven twelve.")
    server.fail_next(Fault("slow", seconds=0.05))
    made: list[Agent] = []

    def listen(event: AgentEvent) -> None:
        heard.append(event)
        if isinstance(event, TextDelta) and len(heard) == 5:
            made[0].interrupt()

    made.append(opened(server, api, listen=listen))
    agent = made[0]
    assert agent.run("Count.").stop == "interrupted"
    last = agent.conversation.messages[-1]
    assert last["role"] == "assistant"
    assert last["content"].startswith("One")
    assert "Stopped by the user" in last["content"]
    assert agent.run("Again.").stop == "end"
    assert server.rejections == []


def test_ctrl_c_in_the_program_leaves_a_session_that_can_be_resumed(serve: Serve, tmp_path: Path) -> None:
    server = serve("Too late.")
    server.fail_next(Fault("silent", seconds=PATIENCE))
    env = {**os.environ, "EVERLONG_HOME": str(tmp_path / "home"), "PYTHONUNBUFFERED": "1"}
    command = [*everlong_program(), "run", "Hello?", "-m", "some-model", "--base-url", server.openai_url]
    process = subprocess.Popen(
        command, env=env, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    until(lambda: server.requests or process.poll() is not None)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 130, err
    assert "interrupted" in err
    assert out == ""
    again = subprocess.run([*command, "--continue"], env=env, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert again.stdout == "Too late.\n"
    assert server.rejections == []


@pytest.mark.spec("5.7", "7.1", "7.2", "7.3")
@pytest.mark.skipif(sys.platform == "win32", reason="processes are killed with SIGKILL")
def test_whatever_fails_every_acknowledged_message_is_stored_once_and_the_session_goes_on() -> None:
    run = play(60, 3, "openai", is_quick=True)
    assert run.problems == []
    assert run.acknowledged == list(range(60))
    assert sum(run.kills.values()) == 3
    assert sum(run.faults.values()) >= 5
    assert run.seen["compaction"] >= 1
    assert run.most_hung <= 1
