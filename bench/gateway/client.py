"""A client that only appends: it sends its whole history with every request, and keeps it as bytes to be quick."""

from __future__ import annotations

import http.client
import json
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

from everlong.model import ToolCall

__all__ = ["Refused", "WholeHistory"]


_HEADERS = {
    "Content-Type": "application/json",
    "x-api-key": "made-up",
    "Authorization": "Bearer made-up",
    "anthropic-version": "2023-06-01",
}


class Refused(Exception):  # noqa: N818 - an answer
    """The gateway answered with an error."""


class WholeHistory:
    """One conversation of a stateless client."""

    def __init__(self, url: str, api: str, model: str, system: str, tools: Sequence[Mapping[str, Any]]) -> None:
        self._address = urlsplit(url)
        self._api = api
        self._path = "/v1/messages" if api == "anthropic" else "/v1/chat/completions"
        head: dict[str, Any] = {"model": model, "max_tokens": 1_000, "stream": True}
        if api == "anthropic":
            head |= {"system": system, "tools": [_anthropic_tool(tool) for tool in tools]}
        else:
            head |= {"tools": list(tools), "stream_options": {"include_usage": True}}
        self._parts = [json.dumps(head).encode()[:-1] + b', "messages": [']
        self._count = 0
        self._connection = http.client.HTTPConnection(str(self._address.hostname), self._address.port, timeout=300)
        if api != "anthropic":
            self.add({"role": "system", "content": system})

    @property
    def size(self) -> int:
        """Bytes of the next request."""
        return sum(map(len, self._parts)) + 2

    def add(self, message: Mapping[str, Any]) -> None:
        """Append a message."""
        self._parts.append((b", " if self._count else b"") + json.dumps(message).encode())
        self._count += 1

    def ask(self) -> tuple[str, list[ToolCall]]:
        """Send everything; what was answered, which is appended, too."""
        if len(self._parts) > 500:
            self._parts = [b"".join(self._parts)]
        body = b"".join([*self._parts, b"]}"])
        self._connection.request("POST", self._path, body, _HEADERS)
        response = self._connection.getresponse()
        data = response.read()
        if response.status != 200:
            raise Refused(f"{response.status}: {data[:300].decode('utf-8', 'replace')}")
        events = [json.loads(line[6:]) for line in data.decode().splitlines() if line.startswith("data: {")]
        return self._taken_anthropic(events) if self._api == "anthropic" else self._taken_openai(events)

    def close(self) -> None:
        """Hang up."""
        self._connection.close()

    def answer(self, results: Sequence[tuple[str, str]]) -> None:
        """Append the results of calls."""
        if self._api == "anthropic":
            blocks = [{"type": "tool_result", "tool_use_id": ident, "content": text} for ident, text in results]
            self.add({"role": "user", "content": blocks})
            return
        for ident, text in results:
            self.add({"role": "tool", "tool_call_id": ident, "content": text})

    def _taken_openai(self, events: list[dict[str, Any]]) -> tuple[str, list[ToolCall]]:
        text = ""
        calls: dict[int, dict[str, str]] = {}
        for choice in (choice for event in events for choice in event.get("choices") or ()):
            text += choice["delta"].get("content") or ""
            for part in choice["delta"].get("tool_calls") or ():
                call = calls.setdefault(part["index"], {"id": "", "name": "", "arguments": ""})
                call["id"] = call["id"] or part.get("id") or ""
                call["name"] = call["name"] or part["function"].get("name") or ""
                call["arguments"] += part["function"].get("arguments") or ""
        made = [ToolCall(call["id"], call["name"], call["arguments"]) for call in calls.values()]
        listed = [
            {"id": one.id, "type": "function", "function": {"name": one.name, "arguments": one.arguments}}
            for one in made
        ]
        self.add({"role": "assistant", "content": text, **({"tool_calls": listed} if listed else {})})
        return text, made

    def _taken_anthropic(self, events: list[dict[str, Any]]) -> tuple[str, list[ToolCall]]:
        blocks: list[dict[str, Any]] = []
        for event in events:
            if event["type"] == "content_block_start":
                blocks.append({**event["content_block"], "json": ""})
            elif event["type"] == "content_block_delta":
                block, delta = blocks[event["index"]], event["delta"]
                if delta["type"] == "text_delta":
                    block["text"] += delta["text"]
                elif delta["type"] == "input_json_delta":
                    block["json"] += delta["partial_json"]
        made = [ToolCall(one["id"], one["name"], one["json"] or "{}") for one in blocks if one["type"] == "tool_use"]
        said: list[dict[str, Any]] = [
            {"type": "text", "text": one["text"]} for one in blocks if one["type"] == "text" and one["text"]
        ]
        said += [
            {"type": "tool_use", "id": one.id, "name": one.name, "input": json.loads(one.arguments)} for one in made
        ]
        self.add({"role": "assistant", "content": said})
        return "".join(one["text"] for one in said if one["type"] == "text"), made


def _anthropic_tool(tool: Mapping[str, Any]) -> dict[str, Any]:
    function = tool["function"]
    return {"name": function["name"], "description": function["description"], "input_schema": function["parameters"]}
