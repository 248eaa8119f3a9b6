"""A context engine in a package: it has no base class, and keeps what it counts in a file of its own."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

__all__ = ["make_engine"]


class Tally:
    """Drops the oldest messages and says how many there were."""

    name = "tally"
    context_length = 0
    threshold_tokens = 0
    threshold_percent = 0.5
    last_prompt_tokens = 0
    last_completion_tokens = 0
    last_total_tokens = 0
    compression_count = 0

    def __init__(self, file: Path) -> None:
        self._file = file
        self.dropped = json.loads(file.read_text(encoding="utf-8")) if file.exists() else 0

    def update_model(self, model: str, context_length: int, **kwargs: Any) -> None:
        """Another window."""
        self.context_length = context_length
        self.threshold_tokens = context_length // 2

    def update_from_response(self, usage: dict[str, Any]) -> None:
        """Take over what was counted."""
        self.last_prompt_tokens = usage.get("prompt_tokens") or 0

    def should_compress(self, prompt_tokens: int | None = None) -> bool:
        """At the threshold."""
        return (self.last_prompt_tokens if prompt_tokens is None else prompt_tokens) >= self.threshold_tokens

    def compress(
        self, messages: list[dict[str, Any]], current_tokens: int | None = None, focus_topic: str | None = None
    ) -> list[dict[str, Any]]:
        """A number in place of all that is old."""
        cut = next((at for at in range(max(1, len(messages) - 6), len(messages)) if messages[at]["role"] == "user"), 0)
        if cut < 4:
            return messages
        self.dropped += cut - 1
        self._file.parent.mkdir(parents=True, exist_ok=True)
        self._file.write_text(json.dumps(self.dropped), encoding="utf-8")
        self.compression_count += 1
        self.last_prompt_tokens = 0
        told = {"role": "user", "content": f"[{self.dropped} messages were said before this.]"}
        return [messages[0], told, {"role": "assistant", "content": "I see."}, *messages[cut:]]


def make_engine() -> Tally:
    """An engine that goes on where the last one stopped."""
    return Tally(Path(os.environ["TALLY_FILE"]))
