"""Pings that keep a cached prompt alive through a pause, as long as that is cheaper than losing it.

A ping is the last request again, without a reply: it reads the whole prompt from the cache, which refreshes it, and
writes nothing. The caller sends it; this module says what to send, when, and when to stop.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from everlong.caching.rules import SECONDS, ModelRules

__all__ = ["KeepAlive", "keep_alive", "ping_request"]

_MARGIN = 10.0
"""Seconds between a ping and the end of the cache's life, for clocks and networks."""


@dataclass(frozen=True, slots=True)
class KeepAlive:
    """The plan for bridging a pause, with its arithmetic; prices in fresh input tokens."""

    interval: float
    """Seconds from one request to the next ping."""
    pings: int
    """The most pings that are worth it, 0 if none is. One more would cost as much as writing the prompt again."""
    ping_cost: float
    rewrite_cost: float
    """The extra cost of a request after the cache was lost."""
    reason: str

    @property
    def reach(self) -> float:
        """The longest pause that is bridged, in seconds."""
        return self.interval * (self.pings + 1) if self.pings else 0.0

    def times(self, since: float, until: float) -> list[float]:
        """Return the times of the pings in a pause between two requests."""
        found: list[float] = []
        while len(found) < self.pings and since + self.interval * (len(found) + 1) < until:
            found.append(since + self.interval * (len(found) + 1))
        return found


def keep_alive(request: Mapping[str, Any], tokens: int, rules: ModelRules, ttl: str = "5m") -> KeepAlive:
    """Return whether and how long a prompt of ``tokens`` is worth keeping alive after a request."""
    scale = rules.scale(tokens)
    ping, rewrite = rules.read * tokens * scale, (rules.write[ttl] - rules.read) * tokens * scale
    interval = SECONDS[ttl] - _MARGIN
    if refused := _obstacle(request):
        return KeepAlive(interval, 0, ping, rewrite, f"no pings: {refused}")
    if tokens < rules.minimum_tokens:
        return KeepAlive(interval, 0, ping, rewrite, f"no pings: prompts under {rules.minimum_tokens:,} are not cached")
    pings = int(rewrite / ping + 1e-9) if ping else 0
    reason = f"up to {pings} pings of {ping:,.0f} are cheaper than writing {tokens:,} tokens again for {rewrite:,.0f}"
    return KeepAlive(interval, pings, ping, rewrite, reason)


def ping_request(request: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the request that keeps another's prompt alive; None if the provider would refuse it."""
    if _obstacle(request):
        return None
    return {
        **{key: value for key, value in request.items() if key not in ("stream", "stream_options")},
        "max_tokens": 0,
    }


def _obstacle(request: Mapping[str, Any]) -> str:
    """Return what rules out a ping; switching it off for the ping would miss the cache."""
    thinking = request.get("thinking")
    if isinstance(thinking, Mapping) and thinking.get("type") != "disabled":
        return "thinking is on, and a request without a reply cannot think"
    choice = request.get("tool_choice")
    if isinstance(choice, Mapping) and choice.get("type") in ("any", "tool"):
        return "a tool is forced"
    config = request.get("output_config")
    if (
        request.get("response_format")
        or request.get("output_format")
        or (isinstance(config, Mapping) and config.get("format"))
    ):
        return "the output has a fixed structure"
    return ""
