"""The contract between a host and a context engine.

A host asks an engine after every response whether to compact, and hands it the message list if so. An engine takes a
list and returns a list; how it remembers, summarizes or retrieves is its own affair.
"""

from __future__ import annotations

import copy
import json
from abc import ABC, abstractmethod
from typing import Any, Self

from everlong.model import Message

__all__ = ["MESSAGE_TAG", "OptionalHostMethods"]

MESSAGE_TAG = "_node"
"""The key under which a host with a store tells an engine the ids of messages."""


class OptionalHostMethods:
    """Optional methods of other hosts' engines, without effect here."""

    emit_automatic_compaction_status: bool = True

    def clone_for_agent(self) -> Self:
        """Return a separate engine for one more agent; here every agent has its own from the start."""
        return copy.deepcopy(self)

    def should_compress_info(self, prompt_tokens: int | None = None) -> tuple[bool, str | None]:
        """Return whether to compact, and the reason why not."""
        return bool(self.should_compress(prompt_tokens)), None  # type: ignore[attr-defined]  # every engine has it

    def should_defer_preflight_to_real_usage(self, rough_tokens: int) -> bool:
        """Return whether to distrust an estimate and wait for reported usage."""
        del rough_tokens
        return False

    def prune_tool_results_only(
        self, messages: list[Message], current_tokens: int | None = None
    ) -> tuple[list[Message], int]:
        """Return the messages with old tool results trimmed, and the number of trimmed ones."""
        del current_tokens
        return messages, 0

    def select_context(self, request_messages: list[Message], **facts: Any) -> list[Message] | None:
        """Return another list for one request; None for the usual one."""
        del request_messages, facts
        return None

    def on_turn_complete(self, messages: list[Message], usage: dict[str, Any] | None = None, **facts: Any) -> None:
        """Take in that a prompt has its answer."""

    def pending_compression_operation(self, messages: list[Message]) -> str | None:
        """Return the kind of the next compaction, if it is known."""
        del messages
        return None

    def get_automatic_compaction_status_message(self, *, phase: str, default_message: str, **facts: Any) -> str | None:
        """Return the message that tells the user of a compaction; None for none."""
        del phase, facts
        return default_message if self.emit_automatic_compaction_status else None


class ContextEngine(OptionalHostMethods, ABC):
    """The base of all context engines; a host may read the attributes below at any time.

    >>> class Newest(ContextEngine):
    ...     name = "newest"
    ...
    ...     def compress(self, messages, current_tokens=None, focus_topic=None, force=False, memory_context=None):
    ...         return messages[-20:]
    ...
    ...     def should_compress(self, prompt_tokens=None):
    ...         return True
    ...
    ...     def update_from_response(self, usage):
    ...         pass
    >>> len(Newest().compress(messages))
    20
    """

    last_prompt_tokens: int = 0
    last_completion_tokens: int = 0
    last_total_tokens: int = 0
    threshold_tokens: int = 0
    context_length: int = 0
    compression_count: int = 0
    threshold_percent: float = 0.50
    protect_first_n: int = 3
    protect_last_n: int = 20

    @property
    @abstractmethod
    def name(self) -> str:
        """The short name by which a user chooses the engine."""

    @abstractmethod
    def update_from_response(self, usage: dict[str, Any]) -> None:
        """Take in the token usage that the provider reported for a response."""

    @abstractmethod
    def should_compress(self, prompt_tokens: int | None = None) -> bool:
        """Return whether to compact now, by the given tokens or else by the last reported usage."""

    @abstractmethod
    def compress(
        self,
        messages: list[Message],
        current_tokens: int | None = None,
        focus_topic: str | None = None,
    ) -> list[Message]:
        """Return a shorter list that is a valid message sequence; the input is not changed."""

    def on_session_start(self, session_id: str, **kwargs: Any) -> None:
        """Take in that a conversation begins or goes on under a new session id."""

    def on_session_end(self, session_id: str, messages: list[Message]) -> None:
        """Take in that a conversation has ended by exit, reset or expiry; a single turn does not end one."""

    def on_session_reset(self) -> None:
        """Forget the counters of the conversation so far."""
        self.last_prompt_tokens = 0
        self.last_completion_tokens = 0
        self.last_total_tokens = 0
        self.compression_count = 0

    def update_model(
        self,
        model: str,
        context_length: int,
        base_url: str = "",
        api_key: str = "",
        provider: str = "",
        **kwargs: Any,
    ) -> None:
        """Switch to another model and recompute all figures that depend on its window."""
        del model, base_url, api_key, provider, kwargs
        self.context_length = context_length
        self.threshold_tokens = int(context_length * self.threshold_percent)

    def get_tool_schemas(self) -> list[dict[str, Any]]:
        """Return the tools that the engine offers to the agent."""
        return []

    def handle_tool_call(self, name: str, args: dict[str, Any], **kwargs: Any) -> str:
        """Answer a call of one of the engine's tools with a JSON text."""
        del args, kwargs
        return json.dumps({"error": f"Unknown tool: {name}"})

    def should_compress_preflight(self, messages: list[Message]) -> bool:
        """Return whether a request about to be sent is already too large, by a cheap estimate."""
        del messages
        return False

    def has_content_to_compress(self, messages: list[Message]) -> bool:
        """Return whether a compaction would have anything to do."""
        del messages
        return True

    def get_status(self) -> dict[str, Any]:
        """Return the token and threshold figures for display."""
        used = self.last_prompt_tokens
        return {
            "engine": self.name,
            "last_prompt_tokens": used,
            "last_completion_tokens": self.last_completion_tokens,
            "last_total_tokens": self.last_total_tokens,
            "threshold_tokens": self.threshold_tokens,
            "context_length": self.context_length,
            "compression_count": self.compression_count,
            "usage_percent": round(min(100.0, 100 * used / self.context_length), 1) if self.context_length else 0.0,
        }
