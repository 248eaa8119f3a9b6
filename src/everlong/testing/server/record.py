"""What the server remembers of each request, for a test to look at."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

Api = Literal["openai", "anthropic", "responses"]
"""Whose rules a request is held to: chat completions, messages, responses."""


@dataclass(slots=True)
class Record:
    """One request and what became of it."""

    number: int
    """The how-many-th request for a completion this was, from 0."""
    api: Api
    path: str
    headers: dict[str, str]
    """With names in lower case."""
    body: dict[str, Any]
    status: int = 0
    """The HTTP status that was sent; 0 where the connection was dropped before one was."""
    error: str | None = None
    """The words of the refusal or the fault."""
    fault: str | None = None
    """The kind of the fault that was made on purpose."""
    prompt_tokens: int = 0
    usage: dict[str, Any] = field(default_factory=dict)
    """The usage that was reported, in the shape of the API."""

    @property
    def rejected(self) -> bool:
        """Whether the server itself found fault with the request."""
        return self.error is not None and self.fault is None
