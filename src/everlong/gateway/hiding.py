"""A stream without the calls of the gateway's own tool: what the client sees of several answers is one.

Events that are not concerned go on byte for byte. The end of an answer is held back until it is known whether another
one follows. Knows server-sent events of both APIs, and sends nothing.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

import orjson

from everlong.gateway.raw import dumped
from everlong.gateway.recalling import NAMES

if TYPE_CHECKING:
    from everlong.gateway.dialects import Dialect

__all__ = ["Hiding", "hiding_for"]


class Hiding(ABC):
    """Hides the calls of the tool in the streams of one turn."""

    def __init__(self, dialect: Dialect) -> None:
        self._dialect = dialect
        self._rest = b""
        self._end: list[bytes] = []
        self._is_first = True
        self._gathering = dialect.gathering()

    def take(self, chunk: bytes) -> bytes:
        """What of a chunk goes on to the client now."""
        *events, self._rest = (self._rest + chunk).replace(b"\r\n", b"\n").split(b"\n\n")
        return b"".join(self._event(event + b"\n\n") for event in events)

    def end(self) -> bytes:
        """The end of the answer, which was held back."""
        return b"".join(self._end) + self._rest

    def whole(self) -> dict[str, Any] | None:
        """The answer with all its calls; None where it broke off."""
        return self._gathering.whole()

    def again(self) -> None:
        """Another answer follows, and the client takes it for a part of this one."""
        self._rest, self._end, self._is_first = b"", [], False
        self._gathering = self._dialect.gathering()
        self._renew()

    def _event(self, raw: bytes) -> bytes:
        data = b"\n".join(line[5:].lstrip() for line in raw.split(b"\n") if line.startswith(b"data:"))
        if data == b"[DONE]":
            self._end.append(raw)
            return b""
        try:
            event = orjson.loads(data)
        except ValueError:
            return raw
        if not isinstance(event, dict):
            return raw
        for _ in self._gathering.take(event):
            pass
        return self._shown(raw, event)

    @abstractmethod
    def _shown(self, raw: bytes, event: dict[str, Any]) -> bytes:
        """What the client sees of an event."""

    @abstractmethod
    def _renew(self) -> None:
        """Forget what belongs to one answer only."""


class _Anthropic(Hiding):
    def __init__(self, dialect: Dialect) -> None:
        super().__init__(dialect)
        self._places: dict[int, int] = {}
        self._count = 0

    def _renew(self) -> None:
        self._places = {}

    def _shown(self, raw: bytes, event: dict[str, Any]) -> bytes:
        kind = event.get("type")
        if kind == "message_start":
            return raw if self._is_first else b""
        if kind in {"message_delta", "message_stop"}:
            self._end.append(raw)
            return b""
        if kind == "content_block_start":
            block = event.get("content_block") or {}
            if block.get("name") in NAMES:
                return b""
            self._places[event["index"]] = self._count
            self._count += 1
        if "index" not in event:
            return raw
        place = self._places.get(event["index"])
        if place is None:
            return b""
        return raw if place == event["index"] else _told({**event, "index": place})


class _OpenAI(Hiding):
    def __init__(self, dialect: Dialect) -> None:
        super().__init__(dialect)
        self._hidden: set[int] = set()
        self._places: dict[int, int] = {}

    def _renew(self) -> None:
        self._hidden, self._places = set(), {}

    def _shown(self, raw: bytes, event: dict[str, Any]) -> bytes:
        choices = event.get("choices")
        if not isinstance(choices, list):
            return raw
        if not choices or choices[0].get("finish_reason") is not None:
            self._end.append(raw)
            return b""
        delta = choices[0].get("delta") or {}
        fragments = delta.get("tool_calls")
        if not fragments:
            is_only_role = not any(value for name, value in delta.items() if name != "role")
            return b"" if is_only_role and not self._is_first else raw
        kept = [placed for fragment in fragments if (placed := self._placed(fragment)) is not None]
        if kept == fragments:
            return raw
        if not kept:
            return b""
        changed = {**choices[0], "delta": {**delta, "tool_calls": kept}}
        return b"data: " + dumped({**event, "choices": [changed, *choices[1:]]}) + b"\n\n"

    def _placed(self, fragment: dict[str, Any]) -> dict[str, Any] | None:
        index = int(fragment.get("index", 0))
        if (fragment.get("function") or {}).get("name") in NAMES:
            self._hidden.add(index)
        if index in self._hidden:
            return None
        place = self._places.setdefault(index, len(self._places))
        return fragment if place == index else {**fragment, "index": place}


def _told(event: dict[str, Any]) -> bytes:
    return b"event: " + str(event["type"]).encode() + b"\ndata: " + dumped(event) + b"\n\n"


def hiding_for(dialect: Dialect) -> Hiding:
    """What hides the tool in the streams of an API."""
    return _Anthropic(dialect) if dialect.name == "anthropic" else _OpenAI(dialect)
