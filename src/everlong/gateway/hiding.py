"""A stream without the calls of the gateway's own tool: what the client sees of several answers is one.

Events that are not concerned go on byte for byte. The end of an answer is held back until it is known whether another
one follows. Knows server-sent events of the three APIs, and sends nothing.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
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

    def end(self, *, has_calls: bool = True) -> bytes:
        """Return the end of the answer, which was held back; it may not wait for calls where it ``has_calls`` not."""
        return b"".join(raw if has_calls else self._settled(raw) for raw in self._end) + self._rest

    def whole(self) -> dict[str, Any] | None:
        """The answer with all its calls; None where it broke off."""
        return self._gathering.whole()

    def again(self) -> None:
        """Another answer follows, and the client takes it for a part of this one."""
        self._rest, self._end, self._is_first = b"", [], False
        self._gathering = self._dialect.gathering()
        self._renew()

    def _event(self, raw: bytes) -> bytes:
        data = _data_of(raw)
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

    def _settled(self, raw: bytes) -> bytes:
        """Return one of the last events of an answer whose only calls are hidden."""
        return raw

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

    def _settled(self, raw: bytes) -> bytes:
        return raw.replace(b'"tool_use"', b'"end_turn"') if b"message_delta" in raw else raw


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

    def _settled(self, raw: bytes) -> bytes:
        return raw.replace(b'"tool_calls"', b'"stop"')


class _Responses(Hiding):
    """Output indexes and sequence numbers run through all answers, and the last event has the items of all of them.

    Reasoning waits for what it leads to: without a following item an API refuses it when it is sent again. Where that
    is a call of the tool, the client sees neither.
    """

    def __init__(self, dialect: Dialect) -> None:
        super().__init__(dialect)
        self._ident: Any = None
        self._number: int | None = None
        self._items: list[Any] = []
        self._count = 0
        self._is_changed = False
        self._places: dict[int, int] = {}
        self._hidden: set[int] = set()
        self._held: list[tuple[bytes, dict[str, Any]]] = []
        self._is_held_for_lookup = False

    def _renew(self) -> None:
        self._places, self._hidden, self._held = {}, set(), []
        self._is_held_for_lookup, self._is_changed = False, True

    def end(self, *, has_calls: bool = True) -> bytes:
        del has_calls  # nothing at the end of these answers tells
        held = b"" if self._is_held_for_lookup else self._released()
        last = b"".join(self._closed(raw) for raw in self._end)
        return held + last + self._rest

    def _shown(self, raw: bytes, event: dict[str, Any]) -> bytes:
        kind = event.get("type")
        if kind in _OPENING:
            if not self._is_first:
                return b""
            self._ident = self._ident or (event.get("response") or {}).get("id")
            return self._passed(raw, event)
        if kind in _CLOSING:
            self._end.append(raw)
            return b""
        index = event.get("output_index")
        if not isinstance(index, int):
            return self._passed(raw, event)
        item = event.get("item")
        before = self._begun(index, item) if isinstance(item, dict) else b""
        if index in self._hidden:
            return before
        if index in self._places:
            return before + self._placed(raw, event, index)
        self._held.append((raw, event))
        return before

    def _begun(self, index: int, item: dict[str, Any]) -> bytes:
        """Take note of an item that begins; returns the reasoning that waited for it."""
        if index in self._hidden or index in self._places:
            return b""
        if item.get("name") in NAMES:
            self._hidden.add(index)
            self._is_changed, self._is_held_for_lookup = True, bool(self._held)
            return b""
        if item.get("type") == "reasoning":
            return b""
        released = self._released()
        self._place(index)
        return released

    def _place(self, index: int) -> None:
        self._places[index] = self._count
        self._count += 1

    def _released(self) -> bytes:
        told: list[bytes] = []
        for raw, event in self._held:
            index = event["output_index"]
            if index not in self._places:
                self._place(index)
            told.append(self._placed(raw, event, index))
        self._held, self._is_held_for_lookup = [], False
        return b"".join(told)

    def _placed(self, raw: bytes, event: dict[str, Any], index: int) -> bytes:
        if event.get("type") == "response.output_item.done":
            self._items.append(event.get("item"))
        place = self._places[index]
        return self._passed(raw, event) if place == index else self._passed(None, {**event, "output_index": place})

    def _passed(self, raw: bytes | None, event: dict[str, Any]) -> bytes:
        """Return an event with the number that it has for the client; None stands for bytes that do not hold."""
        number = event.get("sequence_number")
        if not isinstance(number, int):
            return _told(event) if raw is None else raw
        if self._number is None:
            self._number = number
        own, self._number = self._number, self._number + 1
        return raw if raw is not None and own == number else _told({**event, "sequence_number": own})

    def _closed(self, raw: bytes) -> bytes:
        """Return the last event, as the end of all that the client has seen."""
        data = _data_of(raw)
        if data == b"[DONE]":
            return raw
        event = orjson.loads(data)
        response = event.get("response")
        if not self._is_changed or not isinstance(response, dict):
            return self._passed(raw, event)
        whole = {**response, "id": self._ident or response.get("id")}
        if response.get("output"):
            whole["output"] = self._items
        return self._passed(None, {**event, "response": whole})


_OPENING = frozenset({"response.created", "response.queued", "response.in_progress"})
_CLOSING = frozenset({"response.completed", "response.incomplete", "response.failed"})
_HIDINGS: dict[str, Callable[[Dialect], Hiding]] = {
    "anthropic": _Anthropic,
    "openai": _OpenAI,
    "openai-responses": _Responses,
}


def _data_of(raw: bytes) -> bytes:
    return b"\n".join(line[5:].lstrip() for line in raw.split(b"\n") if line.startswith(b"data:"))


def _told(event: dict[str, Any]) -> bytes:
    return b"event: " + str(event["type"]).encode() + b"\ndata: " + dumped(event) + b"\n\n"


def hiding_for(dialect: Dialect) -> Hiding:
    """What hides the tool in the streams of an API."""
    return _HIDINGS[dialect.name](dialect)
