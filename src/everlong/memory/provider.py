"""What a memory provider is: the class that authors subclass to keep what an agent learns beyond one session.

Only `name` is required; every other method has a default that does nothing. This module knows no provider, no file and
no settings. Who calls these methods, and what happens to a provider that raises or hangs, is the business of
`everlong.memory.manager`.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from typing import Any

from everlong.model import Message


class MemoryProvider(ABC):
    """Keeps memories; all calls of one session come one at a time and from one thread."""

    reading_tools: frozenset[str] = frozenset()
    """Names of its tools that only read; every call of another one is put to the user first."""

    @property
    @abstractmethod
    def name(self) -> str:
        """What the provider is called in warnings."""

    def initialize(self, session_id: str, **facts: Any) -> None:
        """A session begins; ``facts`` are what the host knows of it, such as ``platform`` and ``folder``."""
        del session_id, facts

    def system_prompt_block(self) -> str:
        """Text for the system prompt; asked once, after `initialize`, and then the same for the whole session."""
        return ""

    def get_tool_schemas(self) -> list[dict[str, Any]]:
        """Tools for the agent in the OpenAI format; asked once, after `initialize`."""
        return []

    def handle_tool_call(self, name: str, args: dict[str, Any], **kwargs: Any) -> str:
        """Answer a call of one of the provider's tools with a JSON text."""
        del args, kwargs
        return json.dumps({"error": f"Unknown tool: {name}"}, ensure_ascii=False)

    def prefetch(self, query: str) -> str:
        """What is remembered that bears on what the user has just said."""
        del query
        return ""

    def sync_turn(self, user: str, assistant: str) -> None:
        """A turn is complete: what the user said and what the assistant answered."""
        del user, assistant

    def on_pre_compress(self, messages: list[Message]) -> str:
        """A compaction is about to happen; what is returned goes to the summarizer."""
        del messages
        return ""

    def on_session_end(self, messages: list[Message]) -> None:
        """The session is over: the program is left, or the user began anew."""
        del messages

    def on_session_switch(self, session_id: str, **facts: Any) -> None:
        """The conversation goes on under another session id, as after a compaction."""
        del session_id, facts

    def shutdown(self) -> None:  # noqa: B027 - there is nothing to let go of by default
        """The last call: let go of connections and files."""
