"""The base class of memory providers, which keep what an agent learns beyond one session.

Only `name` is required; every other method does nothing by default. `everlong.memory.manager` calls these methods, and
deals with a provider that raises or hangs.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from typing import Any

from everlong.model import Message


class MemoryProvider(ABC):
    """A provider of memories; all calls of one session come one at a time and from one thread."""

    reading_tools: frozenset[str] = frozenset()
    """Names of its tools that only read; calls of other tools need the user's approval."""

    @property
    @abstractmethod
    def name(self) -> str:
        """The provider's name in warnings."""

    def initialize(self, session_id: str, **facts: Any) -> None:
        """Begin a session; ``facts`` are what the host knows of it, such as ``platform`` and ``folder``."""
        del session_id, facts

    def system_prompt_block(self) -> str:
        """Return text for the system prompt; called once per session, after `initialize`."""
        return ""

    def get_tool_schemas(self) -> list[dict[str, Any]]:
        """Return tools for the agent in the OpenAI format; called once per session, after `initialize`."""
        return []

    def handle_tool_call(self, name: str, args: dict[str, Any], **kwargs: Any) -> str:
        """Answer a call of one of the provider's tools, with a JSON text."""
        del args, kwargs
        return json.dumps({"error": f"Unknown tool: {name}"}, ensure_ascii=False)

    def prefetch(self, query: str) -> str:
        """Return memories that bear on the user's message."""
        del query
        return ""

    def sync_turn(self, user: str, assistant: str) -> None:
        """Take in a complete turn: the user's message and the assistant's answer."""
        del user, assistant

    def on_pre_compress(self, messages: list[Message]) -> str:
        """Return text for the summarizer, before a compaction."""
        del messages
        return ""

    def on_session_end(self, messages: list[Message]) -> None:
        """End the session: the user left the program, or began anew."""
        del messages

    def on_session_switch(self, session_id: str, **facts: Any) -> None:
        """Go on under another session id, as after a compaction."""
        del session_id, facts

    def shutdown(self) -> None:  # noqa: B027 - there is nothing to let go of by default
        """Close connections and files; this is the last call."""
