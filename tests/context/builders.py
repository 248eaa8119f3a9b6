"""Small conversations for tests, built in plain sight."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from everlong import ContextCompressor, Message
from everlong.context.literals import SUMMARY_PREFIX, is_summary
from everlong.model import text_of


def system(text: str = "You are a careful agent.") -> Message:
    return {"role": "system", "content": text}


def user(text: str) -> Message:
    return {"role": "user", "content": text}


def assistant(text: str) -> Message:
    return {"role": "assistant", "content": text}


def step(number: int, result: str, *, tool: str = "bash", **arguments: str) -> list[Message]:
    """A call and its result."""
    call_id = f"call_{number}"
    function = {"name": tool, "arguments": json.dumps(arguments or {"command": f"make step-{number}"})}
    return [
        {
            "role": "assistant",
            "content": f"Step {number}.",
            "tool_calls": [{"id": call_id, "type": "function", "function": function}],
        },
        {"role": "tool", "tool_call_id": call_id, "content": result},
    ]


def call(number: int, name: str, result: str | None, /, **arguments: Any) -> list[Message]:
    """A call of any tool, with its result if there is one."""
    function = {"name": name, "arguments": json.dumps(arguments)}
    made: Message = {
        "role": "assistant",
        "content": "",
        "tool_calls": [{"id": f"c{number}", "type": "function", "function": function}],
    }
    return [made] if result is None else [made, {"role": "tool", "tool_call_id": f"c{number}", "content": result}]


def output(words: int, word: str = "output") -> str:
    """A tool result of about so many tokens."""
    return "\n".join(f"{word} of the build, line after line" for _ in range(words // 9 + 1))


def long_session(steps: int, words: int = 400) -> list[Message]:
    """System prompt, a request, and many calls with results."""
    messages = [system(), user("Build the project and fix what is broken."), assistant("I start with the build.")]
    for number in range(steps):
        messages += step(number, output(words))
    return messages


def summaries(messages: Sequence[Message]) -> list[Message]:
    return [message for message in messages if is_summary(message)]


def summary_text(messages: Sequence[Message]) -> str:
    """The words of the one summary."""
    (summary,) = summaries(messages)
    return text_of(summary).removeprefix(SUMMARY_PREFIX).strip()


def tokens(engine: ContextCompressor, messages: Sequence[Message]) -> int:
    return sum(engine.counter.counts(messages))
