"""``python -m everlong.testing``: a stand-in model that people start in a shell."""

from __future__ import annotations

import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from typing import Any

import anthropic
import openai
import pytest

from everlong.model import SUMMARY_STARTS
from everlong.testing import ModelServer
from everlong.testing.__main__ import repeat_question
from tests.waiting import PATIENCE

COMMAND = [sys.executable, "-m", "everlong.testing"]
WITH_CTRL_C = (
    # Whoever starts the tests in the background has their processes ignore Ctrl-C; here it is what is tested.
    "import runpy, signal; signal.signal(signal.SIGINT, signal.default_int_handler); "
    "runpy.run_module('everlong.testing', run_name='__main__', alter_sys=True)"
)


class Shell:
    """The server as a person starts it, and the addresses that it printed."""

    def __init__(self, *options: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", WITH_CTRL_C, *options],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            encoding="utf-8",
        )
        assert self.process.stdout is not None
        self.printed = ""
        for line in self.process.stdout:
            self.printed += line
            if line.startswith("Ctrl-C"):
                break
        self.variables = dict(re.findall(r"\b([A-Z_]+)=(\S+)", self.printed))

    def stop(self) -> tuple[int, str, str]:
        """Press Ctrl-C; return the exit code and what was printed after it."""
        self.process.send_signal(signal.SIGINT)
        out, err = self.process.communicate(timeout=PATIENCE)
        return self.process.returncode, out, err


@pytest.fixture
def shell() -> Iterator[type[Shell]]:
    started: list[Shell] = []

    class Kept(Shell):
        def __init__(self, *options: str) -> None:
            started.append(self)
            super().__init__(*options)

    yield Kept
    for one in started:
        one.process.kill()
        one.process.communicate()


def test_it_prints_its_addresses_and_answers_both_apis(shell: type[Shell]) -> None:
    server = shell()
    assert re.fullmatch(r"http://127\.0\.0\.1:\d+", server.variables["ANTHROPIC_BASE_URL"])
    assert server.variables["OPENAI_BASE_URL"] == server.variables["ANTHROPIC_BASE_URL"] + "/v1"
    with anthropic.Anthropic(
        base_url=server.variables["ANTHROPIC_BASE_URL"], api_key=server.variables["ANTHROPIC_API_KEY"], max_retries=0
    ) as claude:
        said = claude.messages.create(
            model="claude-opus-5", max_tokens=100, messages=[{"role": "user", "content": "Which port?"}]
        )
    assert said.content[0].to_dict()["text"] == "You said: Which port?"
    with openai.OpenAI(
        base_url=server.variables["OPENAI_BASE_URL"], api_key=server.variables["OPENAI_API_KEY"], max_retries=0
    ) as gpt:
        answer = gpt.chat.completions.create(model="gpt-4o", messages=[{"role": "user", "content": "word " * 100}])
    text = answer.choices[0].message.content
    assert text is not None
    assert text.startswith("You said: word word")
    assert text.endswith("…")


def test_it_runs_a_command_and_writes_a_summary() -> None:
    tool = {"name": "run_command", "parameters": {"type": "object", "properties": {"command": {"type": "string"}}}}
    told: list[Any] = [{"role": "user", "content": text} for text in (f"{SUMMARY_STARTS[0]} …", "run: ls -l")]
    with ModelServer(repeat_question) as server, openai.OpenAI(base_url=server.openai_url, api_key="any") as client:
        ask = partial(client.chat.completions.create, model="gpt-4o")
        called = ask(messages=told, tools=[{"type": "function", "function": tool}]).choices[0].message
        assert called.tool_calls is not None
        told += [
            called.to_dict(),
            {"role": "tool", "tool_call_id": called.tool_calls[0].id, "content": "total 8"},
        ]
        answered = ask(messages=told).choices[0].message
        told += [answered.to_dict(), {"role": "user", "content": "The headings are\n\n## Goal\n## Progress"}]
        summary = ask(messages=told).choices[0].message
        part = ask(messages=[{"role": "system", "content": "…\n\n## Goal\n"}, {"role": "user", "content": "Part 1"}])
    assert called.tool_calls[0].to_dict()["function"] == {"name": "run_command", "arguments": '{"command": "ls -l"}'}
    assert answered.content == "The tool said: total 8"
    assert summary.content == "## Progress\n### Done\n- run: ls -l\n"
    assert part.choices[0].message.content == "## Progress\n### Done\n- a part of the conversation\n"


def test_a_port_that_is_taken_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        done = subprocess.run([*COMMAND, "--port", port], capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert done.returncode == 1
    assert f"port {port} cannot be used (Address already in use)" in done.stderr
    assert "--port" in done.stderr
    assert "Traceback" not in done.stderr
