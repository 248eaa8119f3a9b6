"""What the base class of engines has on other hosts, beyond Everlong's contract.

Everlong calls none of this. It is here so that an engine which was written for such a host finds what it overrides, and
may pass a call on with ``super()``. Each does nothing, or gives the answer that means "as usual".
"""

from __future__ import annotations

import copy
from typing import Any, Self

from everlong.model import Message

__all__ = ["ElsewhereMethods"]


class ElsewhereMethods:
    """Optional methods of other hosts' engines, none of which has an effect here."""

    emit_automatic_compaction_status: bool = True

    def clone_for_agent(self) -> Self:
        """An engine of its own for one more agent; here every agent has its own from the start."""
        return copy.deepcopy(self)

    def should_compress_info(self, prompt_tokens: int | None = None) -> tuple[bool, str | None]:
        """Whether to compact, and what keeps the engine from it."""
        return bool(self.should_compress(prompt_tokens)), None  # type: ignore[attr-defined]  # every engine has it

    def should_defer_preflight_to_real_usage(self, rough_tokens: int) -> bool:
        """Whether an estimate is not to be believed."""
        del rough_tokens
        return False

    def prune_tool_results_only(
        self, messages: list[Message], current_tokens: int | None = None
    ) -> tuple[list[Message], int]:
        """The messages with old tool results trimmed, and how many were."""
        del current_tokens
        return messages, 0

    def select_context(self, request_messages: list[Message], **facts: Any) -> list[Message] | None:
        """Another list for one request; None for the usual one."""
        del request_messages, facts
        return None

    def on_turn_complete(self, messages: list[Message], usage: dict[str, Any] | None = None, **facts: Any) -> None:
        """A prompt has its answer."""

    def pending_compression_operation(self, messages: list[Message]) -> str | None:
        """What the next compaction would be, where that is known."""
        del messages
        return None

    def get_automatic_compaction_status_message(self, *, phase: str, default_message: str, **facts: Any) -> str | None:
        """What is said of a compaction."""
        del phase, facts
        return default_message if self.emit_automatic_compaction_status else None
