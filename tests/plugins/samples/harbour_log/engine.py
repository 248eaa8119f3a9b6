"""The engine: everything but the newest six messages becomes a log."""

from __future__ import annotations

import json
from typing import Any

from everlong import ContextEngine, repair_messages

from . import lines

_NEWEST = 6


class HarbourLog(ContextEngine):
    """Keeps a log."""

    def __init__(self, context_length: int = 100_000) -> None:
        self.update_model("", context_length)
        self.sessions: list[str] = []
        self._kept: list[str] = []

    @property
    def name(self) -> str:
        """As in the configuration."""
        return "harbour_log"

    def on_session_start(self, session_id: str, **kwargs: Any) -> None:
        """Note the session."""
        self.sessions.append(session_id)

    def update_from_response(self, usage: dict[str, Any]) -> None:
        """Take over what was counted."""
        self.last_prompt_tokens = usage.get("prompt_tokens") or 0

    def should_compress(self, prompt_tokens: int | None = None) -> bool:
        """At the threshold."""
        return (self.last_prompt_tokens if prompt_tokens is None else prompt_tokens) >= self.threshold_tokens

    def compress(
        self, messages: list[dict[str, Any]], current_tokens: int | None = None, focus_topic: str | None = None
    ) -> list[dict[str, Any]]:
        """A log in place of all that is old."""
        head = [one for one in messages[:1] if one["role"] == "system"]
        cut = max(len(head), len(messages) - _NEWEST)
        while cut < len(messages) - 1 and messages[cut]["role"] != "user":
            cut += 1
        old = messages[len(head) : cut]
        if len(old) < 4:
            return list(messages)
        self.compression_count += 1
        self._kept = lines.lines_of(old)
        log = lines.summary(old, most=400)
        result = [*head, log, {"role": "assistant", "content": "I have read the log."}, *messages[cut:]]
        self.last_prompt_tokens = current_tokens or 0
        return repair_messages(result)

    def get_tool_schemas(self) -> list[dict[str, Any]]:
        """One tool."""
        return [{"name": "log_size", "description": "How many lines the log has.", "parameters": {"type": "object"}}]

    def handle_tool_call(self, name: str, args: dict[str, Any], **kwargs: Any) -> str:
        """Count the lines, and the messages that are there."""
        return json.dumps({"lines": len(self._kept), "messages": len(kwargs.get("messages") or [])})
