"""What a session is, as a value."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

from sqlalchemy import Row

TOTALS = (
    "input_tokens",
    "output_tokens",
    "cache_read_tokens",
    "cache_write_tokens",
    "reasoning_tokens",
    "api_calls",
)


@dataclass(frozen=True, slots=True)
class Session:
    """A named stretch of a conversation; open while ``ended`` is None."""

    id: str
    parent: str | None
    conversation: str
    """The first session of its lineage."""
    branch: int | None
    from_depth: int
    to_depth: int | None
    kind: Literal["main", "side", "agent"]
    """What people talk in; a title or a probe of a client's; what works for another conversation."""
    title: str | None
    source: str
    platform: str | None
    user: str | None
    model: str | None
    system_prompt: bytes | None
    """Names the system prompt; `Sessions.system_prompt` gives its text."""
    origin: dict[str, Any] | None
    client: str | None
    folder: str | None
    client_session: str | None
    """What its client calls it."""
    works_for: str | None
    """The conversation that had it begun, or that it was forked from."""
    opened: int | None
    """How deep its first request reached, where it is recognised by its words; None where its host knows it."""
    started: float
    active: float
    """When something was last said in it."""
    ended: float | None
    end_reason: str | None
    input_tokens: int
    output_tokens: int
    cache_read_tokens: int
    cache_write_tokens: int
    reasoning_tokens: int
    api_calls: int
    cost: float

    @classmethod
    def of(cls, row: Row[Any]) -> Session:
        """A session as its row tells it."""
        values = dict(row._mapping)  # noqa: SLF001 - the documented way to a row's names
        for name in ("tenant", "preamble"):
            values.pop(name)
        values["origin"] = json.loads(values["origin"]) if values["origin"] else None
        values["system_prompt"] = bytes(values["system_prompt"]) if values["system_prompt"] is not None else None
        return cls(**values)

    def to_dict(self) -> dict[str, Any]:
        """The session as JSON-ready data."""
        prompt = self.system_prompt
        return {**asdict(self), "system_prompt": prompt.hex() if prompt is not None else None}


def usage_totals(usage: Mapping[str, Any]) -> dict[str, int]:
    """What a call's usage adds to the totals; input that a cache served is counted as such only."""

    def number(name: str) -> int | None:
        value = usage.get(name)
        return int(value) if isinstance(value, int | float) and not isinstance(value, bool) else None

    read, written = number("cache_read_tokens") or 0, number("cache_write_tokens") or 0
    given, prompt = number("input_tokens"), number("prompt_tokens") or 0
    said = number("output_tokens")
    return {
        "input_tokens": max(0, prompt - read - written) if given is None else given,
        "output_tokens": (number("completion_tokens") or 0) if said is None else said,
        "cache_read_tokens": read,
        "cache_write_tokens": written,
        "reasoning_tokens": number("reasoning_tokens") or 0,
    }
