"""The official clients get from the server what they would get from the real APIs, whole and as a stream."""

from __future__ import annotations

import json
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import anthropic
import openai
import pytest

from everlong.model import SUMMARY_STARTS
from everlong.testing import Answer, Ask, Call, ModelServer
from everlong.testing.__main__ import repeat_question
from tests.testing_server.conftest import Serve
from tests.waiting import PATIENCE

Claude = Callable[[ModelServer], anthropic.Anthropic]
Gpt = Callable[[ModelServer], openai.OpenAI]
HELLO: Any = [{"role": "user", "content": "Hello"}]
SCHEMA: Any = {"type": "object", "properties": {"path": {"type": "string"}}}
CLAUDE_TOOLS: Any = [{"name": "read_file", "description": "Read a file", "input_schema": SCHEMA}]
GPT_TOOLS: Any = [{"type": "function", "function": {"name": "read_file", "parameters": SCHEMA}}]
TWO_CALLS = Answer("Both.", [Call("read_file", {"path": "ä.py"}), Call("read_file", {"path": "b.py"})])


def test_claude_streams_thinking_text_and_parallel_calls(serve: Serve, claude: Claude) -> None:
    server = serve([Answer("Both.", TWO_CALLS.calls, thinking="Which files?", redacted_thinking="hidden")])
    thinking: Any = {"type": "adaptive"}
    with claude(server).messages.stream(
        model="claude-opus-5", max_tokens=2000, messages=HELLO, tools=CLAUDE_TOOLS, thinking=thinking
    ) as stream:
        kinds = [event.type for event in stream]
        message = stream.get_final_message()
    assert [block.type for block in message.content] == ["thinking", "redacted_thinking", "text", *["tool_use"] * 2]
    assert message.content[3].to_dict()["input"] == {"path": "ä.py"}
    assert message.stop_reason == "tool_use"
    assert kinds[0] == "message_start"
    assert kinds[-2:] == ["message_delta", "message_stop"]


def test_gpt_streams_parallel_calls_and_usage_when_asked(serve: Serve, gpt: Gpt) -> None:
    client = gpt(serve([TWO_CALLS, TWO_CALLS]))
    chunks = list(
        client.chat.completions.create(
            model="gpt-5", messages=HELLO, tools=GPT_TOOLS, stream=True, stream_options={"include_usage": True}
        )
    )
    assert chunks[-1].choices == []
    assert chunks[-1].usage is not None
    arguments: dict[int, str] = {}
    for chunk in chunks[:-1]:
        for call in chunk.choices[0].delta.tool_calls or []:
            assert call.function is not None
            arguments[call.index] = arguments.get(call.index, "") + (call.function.arguments or "")
    assert [json.loads(text) for text in arguments.values()] == [{"path": "ä.py"}, {"path": "b.py"}]
    quiet = list(client.chat.completions.create(model="gpt-5", messages=HELLO, tools=GPT_TOOLS, stream=True))
    assert all(chunk.usage is None and chunk.choices for chunk in quiet)


def test_a_tool_loop_goes_round_on_both_apis(serve: Serve, claude: Claude, gpt: Gpt) -> None:
    def script(ask: Ask) -> Answer:
        if ask.results:
            return Answer(f"It says {ask.results[-1][1]}")
        return Answer(
            "Looking.", [Call("read_file", {"path": "a.py"})], thinking="Where?" if ask.api == "anthropic" else None
        )

    server = serve(script)
    client = claude(server)
    history: Any = [*HELLO]
    first = client.messages.create(model="claude-opus-5", max_tokens=500, messages=history, tools=CLAUDE_TOOLS)
    result = {"type": "tool_result", "tool_use_id": first.content[-1].to_dict()["id"], "content": "42"}
    history += [{"role": "assistant", "content": first.content}, {"role": "user", "content": [result]}]
    second = client.messages.create(model="claude-opus-5", max_tokens=500, messages=history, tools=CLAUDE_TOOLS)
    assert second.content[0].to_dict()["text"] == "It says 42"

    other = gpt(server)
    turns: Any = [*HELLO]
    asked = other.chat.completions.create(model="gpt-5", messages=turns, tools=GPT_TOOLS).choices[0].message
    assert asked.tool_calls
    turns += [asked, {"role": "tool", "tool_call_id": asked.tool_calls[0].id, "content": "42"}]
    said = other.chat.completions.create(model="gpt-5", messages=turns, tools=GPT_TOOLS).choices[0].message
    assert said.content == "It says 42"
    assert server.rejections == []


def test_a_script_that_runs_out_says_so_to_the_client_and_to_the_test(gpt: Gpt) -> None:
    server = ModelServer(["only this"])
    server.__enter__()
    client = gpt(server)
    client.chat.completions.create(model="gpt-5", messages=HELLO)
    with pytest.raises(openai.InternalServerError, match="script failed"):
        client.chat.completions.create(model="gpt-5", messages=HELLO)
    with pytest.raises(AssertionError, match="the script has 1 answers and was asked for one more"):
        server.__exit__(None, None, None)


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
