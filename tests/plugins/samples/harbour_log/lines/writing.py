"""What is left of a request: its first line."""

from __future__ import annotations

from typing import Any

FIRST = "The log so far, for reference only:"


def lines_of(messages: list[dict[str, Any]]) -> list[str]:
    """A line for each request, those of an earlier log first."""
    found: list[str] = []
    for message in messages:
        text = message.get("content")
        if message.get("role") != "user" or not isinstance(text, str):
            continue
        found += text.splitlines()[1:] if text.startswith(FIRST) else [f"- {text.splitlines()[0][:10]}"]
    return found


def summary(messages: list[dict[str, Any]], most: int) -> dict[str, Any]:
    """The log as a message."""
    return {"role": "user", "content": "\n".join([FIRST, *lines_of(messages)[-most:]])}
