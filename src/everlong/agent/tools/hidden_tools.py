"""Hidden tools: a host between a client and a model offers tools of its own, and answers and hides their calls.

The gateway offers them to the models of its clients, the adapters to those of other frameworks. A conversation is known
by its place in the store, because such hosts have no session of their own. Calls are found, answered and removed in the
formats of the APIs, in whole answers and in streams; each API has a `Hiding` for its streams.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Set
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import orjson

from everlong.agent.tools.context import ToolContext
from everlong.agent.tools.history import read_turn, recall
from everlong.agent.tools.tool import engine_tools, without_clashes
from everlong.agent.tools.workspace import Workspace
from everlong.errors import EverlongError
from everlong.providers.anthropic_api import AnthropicAssembler
from everlong.providers.client import StreamAssembler
from everlong.providers.openai_api import FirstChoiceAssembler, ResponsesAssembler
from everlong.wire.event_stream import MOST_ANSWER, MOST_EVENTS, EventPiece, EventStream

if TYPE_CHECKING:
    from everlong.context import ContextEngine
    from everlong.store import Branch, Store
    from everlong.tokens import TokenCounter

__all__ = [
    "ANTHROPIC",
    "NAMES",
    "NO_ROOM",
    "OPENAI",
    "READ",
    "RECALL",
    "RESPONSES",
    "ROUNDS",
    "TOOLS",
    "HiddenTool",
    "Hiding",
    "RecallLookup",
    "find_lookups",
    "hide_lookups",
    "hiding_for",
    "lacks_room",
    "look_up_all",
    "lookup_entries",
    "tool_schema",
    "tools_to_hide",
]

RECALL, READ = "everlong_recall", "everlong_read_turn"
NAMES = frozenset({RECALL, READ})
NO_ROOM = "[there is no room to look something up now; go on with what you have]"
_CUT = "[cut: there is no room for the rest]"
_LEAST = 30
"""Tokens that are reserved for saying that something was cut."""
ROUNDS = 8
"""Times that a model may look something up in one turn."""
MOST_LOOKUPS = 8
"""Calls that are answered at each of these times; the server that writes them does not decide how long others wait."""


class HiddenTool(NamedTuple):
    """A tool that a host offers to the model, and whose calls it answers itself."""

    name: str
    about: str
    takes: Mapping[str, Any]
    """A JSON schema of the arguments."""


TOOLS = (
    HiddenTool(
        RECALL,
        "Find what was said earlier in this conversation, also what is no longer in sight because it was summarized. "
        "Gives passages in their own words, best first. Use it before asking for something that was told already.",
        {
            "type": "object",
            "properties": {
                "query": {"type": "string", "description": "Words of what you look for; a question works too."},
                "page": {"type": "integer", "minimum": 1, "description": "Which page of the hits."},
            },
            "required": ["query"],
        },
    ),
    HiddenTool(
        READ,
        f"Read a whole message of an earlier part of this conversation by the id that {RECALL} gave.",
        {
            "type": "object",
            "properties": {
                "id": {"type": "string", "description": "The id of the message."},
                "page": {"type": "integer", "minimum": 1, "description": "Which page of a long message."},
            },
            "required": ["id"],
        },
    ),
)


def tools_to_hide(engine: ContextEngine, warn: Callable[[str], None]) -> tuple[HiddenTool, ...]:
    """Return the tools that an engine offers; one that cannot be offered is left out, with a warning."""
    found = without_clashes(engine_tools(engine, warn), (), "an engine's", warn)
    return tuple(HiddenTool(one.name, one.description, one.parameters) for one in found)


class RecallLookup(NamedTuple):
    """One call of a hidden tool."""

    id: str
    name: str
    arguments: Mapping[str, Any]


def look_up_all(
    store: Store | None,
    at: Branch | None,
    lookups: list[RecallLookup],
    room: int,
    counter: TokenCounter,
    call: Callable[[str, Mapping[str, Any]], str] | None = None,
    window: int = 0,
) -> dict[str, str]:
    """Return the answers of hidden tools by call, from the conversation up to a place, in so many tokens; blocks.

    The best results come first, so the end is cut off if there is no room. Only the first calls are answered if there
    are many. ``call`` answers for tools that are not the host's own; without a store it answers all of them. Pages of a
    message are smaller in a small ``window``, so that they are not cut.
    """
    found = {lookup.id: NO_ROOM for lookup in lookups}
    answered = lookups[:MOST_LOOKUPS]
    for number, lookup in enumerate(answered):
        share = room // (len(answered) - number)
        if store is not None and at is not None and (call is None or lookup.name in NAMES):
            text = _looked_up(store, at, lookup, window)
        else:
            text = f"[there is no tool {lookup.name}]" if call is None else call(lookup.name, lookup.arguments)
        found[lookup.id] = _fitting(text, share, counter)
        room -= counter.count_text(found[lookup.id])
    return found


def _fitting(text: str, room: int, counter: TokenCounter) -> str:
    count = counter.count_text(text)
    if count <= room:
        return text
    cut = text[: max(0, room - _LEAST) * len(text) // count]
    while cut and counter.count_text(cut) > room - _LEAST:
        cut = cut[: len(cut) * 9 // 10]
    return f"{cut.rstrip()}\n{_CUT}" if cut else NO_ROOM


def lacks_room(found: Mapping[str, str]) -> bool:
    """Return whether an answer of hidden tools was cut."""
    return any(text == NO_ROOM or text.endswith(_CUT) for text in list(found.values())[:MOST_LOOKUPS])


def _looked_up(store: Store, at: Branch, lookup: RecallLookup, window: int) -> str:
    asked = "query" if lookup.name == RECALL else "id"
    words, page = lookup.arguments.get(asked), lookup.arguments.get("page")
    if not isinstance(words, str) or not words.strip():
        return f"[say what to look for: {asked}]"
    context = ToolContext(Workspace(Path.cwd(), ()), store, "", window=window, upto=at)
    number = page if isinstance(page, int) and page > 0 else 1
    try:
        text = recall(words, context, number) if lookup.name == RECALL else read_turn(words, context, number)
    except EverlongError as error:
        return f"[{error}]"
    return text.replace("; read_turn gives the rest]", f"; {READ} gives the rest]")


# -- calls in the formats of the APIs ----------------------------------------------------------------------------------

ANTHROPIC, OPENAI, RESPONSES = "anthropic", "openai", "openai-responses"
"""The names of the APIs."""

_MADE_UP = (KeyError, IndexError, TypeError, ValueError, AttributeError, RecursionError)
"""The errors of reading events that a server made up."""
_GATHERINGS: Mapping[str, Callable[[], StreamAssembler]] = {
    ANTHROPIC: AnthropicAssembler,
    OPENAI: FirstChoiceAssembler,
    RESPONSES: ResponsesAssembler,
}


def tool_schema(api: str, tool: HiddenTool) -> dict[str, Any]:
    """Return a tool as an API takes it."""
    if api == ANTHROPIC:
        return {"name": tool.name, "description": tool.about, "input_schema": tool.takes}
    function = {"name": tool.name, "description": tool.about, "parameters": tool.takes}
    if api == RESPONSES:
        return {"type": "function", **function, "strict": False}
    return {"type": "function", "function": function}


def find_lookups(api: str, answer: Mapping[str, Any], names: Set[str] = NAMES) -> tuple[list[RecallLookup], bool]:
    """Return the calls of hidden tools in a whole answer, and whether their results alone are not enough to go on.

    They are not enough if the client has calls to answer too, or if the answer was cut short.
    """
    found: list[RecallLookup] = []
    others = answer.get("status") == "incomplete"
    for ident, name, arguments in _calls(api, answer):
        if name in names:
            found.append(RecallLookup(ident, name, arguments))
        else:
            others = True
    return found, others


def _calls(api: str, answer: Mapping[str, Any]) -> list[tuple[str, str, Mapping[str, Any]]]:
    if api == ANTHROPIC:
        return [
            (str(block.get("id")), str(block.get("name")), _arguments(block.get("input")))
            for block in _mappings(answer.get("content"))
            if block.get("type") == "tool_use"
        ]
    if api == RESPONSES:
        return [
            (str(item.get("call_id")), str(item.get("name")), _arguments(item.get("arguments")))
            for item in _mappings(answer.get("output"))
            if isinstance(item.get("call_id"), str) or item.get("type") == "mcp_approval_request"
        ]
    found: list[tuple[str, str, Mapping[str, Any]]] = []
    for call in _mappings(_message(answer).get("tool_calls")):
        function = call.get("function") or {}
        found.append((str(call.get("id")), str(function.get("name")), _arguments(function.get("arguments"))))
    return found


def lookup_entries(api: str, answer: Mapping[str, Any], results: Mapping[str, str]) -> list[dict[str, Any]]:
    """Return what a request ends with after look-ups: the model's answer with its calls, and their results."""
    entries: list[dict[str, Any]] = []
    if api == ANTHROPIC:
        entries.append({"role": "assistant", "content": answer.get("content")})
        blocks = [{"type": "tool_result", "tool_use_id": ident, "content": text} for ident, text in results.items()]
        entries.append({"role": "user", "content": blocks})
    elif api == RESPONSES:
        said = _mappings(answer.get("output"))
        entries += [item for item in said if item.get("type") != "reasoning" or item.get("encrypted_content")]
        entries += [
            {"type": "function_call_output", "call_id": ident, "output": text} for ident, text in results.items()
        ]
    else:
        entries.append({name: value for name, value in _message(answer).items() if value is not None})
        entries += [{"role": "tool", "tool_call_id": ident, "content": text} for ident, text in results.items()]
    return entries


def hide_lookups(api: str, answer: dict[str, Any], names: Set[str] = NAMES) -> dict[str, Any]:
    """Return a whole answer without the calls of hidden tools, of which the client knows nothing."""
    if api == ANTHROPIC:
        kept = [block for block in _mappings(answer["content"]) if block.get("name") not in names]
        is_over = answer.get("stop_reason") == "tool_use" and not any(one.get("type") == "tool_use" for one in kept)
        return {**answer, "content": kept, **({"stop_reason": "end_turn"} if is_over else {})}
    if api == RESPONSES:
        return {**answer, "output": _visible_items(_mappings(answer.get("output")), names)}
    message = _message(answer)
    calls = [call for call in _mappings(message["tool_calls"]) if (call.get("function") or {}).get("name") not in names]
    choice = {**answer["choices"][0], "message": {**message, "tool_calls": calls}}
    if not calls:
        del choice["message"]["tool_calls"]
        choice["finish_reason"] = "stop"
    return {**answer, "choices": [choice, *answer["choices"][1:]]}


def _visible_items(items: list[dict[str, Any]], names: Set[str]) -> list[dict[str, Any]]:
    """Return items without calls of hidden tools, and without reasoning that led to nothing else."""
    shown: list[dict[str, Any]] = []
    held: list[dict[str, Any]] = []
    for item in items:
        if item.get("type") == "reasoning":
            held.append(item)
        elif item.get("name") not in names:
            shown += [*held, item]
            held = []
    return shown if items and items[-1].get("name") in names else [*shown, *held]


def _mappings(given: object) -> list[dict[str, Any]]:
    return [item for item in given if isinstance(item, dict)] if isinstance(given, list) else []


def _arguments(given: object) -> dict[str, Any]:
    return given if isinstance(given, dict) else _read(str(given or "{}").encode()) or {}


def _message(answer: Mapping[str, Any]) -> dict[str, Any]:
    choices = answer.get("choices")
    first = choices[0] if isinstance(choices, list) and choices else {}
    message = first.get("message") if isinstance(first, dict) else None
    return message if isinstance(message, dict) else {}


def _read(data: bytes) -> dict[str, Any] | None:
    try:
        value = orjson.loads(data)
    except ValueError:
        return None
    return value if isinstance(value, dict) else None


class Hiding(ABC):
    """The hiding of calls of hidden tools in the streams of one turn."""

    def __init__(self, api: str, names: Set[str] = NAMES) -> None:
        self._api = api
        self._names = names
        self._events = EventStream()
        self._read = self._withheld = 0
        """Events that were read, and bytes that were not passed on at once."""
        self._is_over = False
        """True if more came than can be kept or read: from there on everything passes as it comes."""
        self._end: list[bytes] = []
        self._is_first = True
        self._gathering = _GATHERINGS[api]()
        self._renew()

    def take(self, chunk: bytes) -> bytes:
        """Return the part of a chunk that goes on to the client now."""
        return b"".join(map(self._piece, self._events.take(chunk)))

    def _piece(self, piece: EventPiece) -> bytes:
        if self._is_over or piece.data is None:
            return piece.raw
        try:
            shown = self._event(piece.raw, piece.data)
        except _MADE_UP:
            return self._give_up() + piece.raw
        self._read += 1
        self._withheld += 0 if shown else len(piece.raw)
        is_much = max(self._withheld, self._gathering.weight) > MOST_ANSWER or self._read > MOST_EVENTS
        return shown + self._give_up() if is_much else shown

    def _give_up(self) -> bytes:
        """Hide nothing any more; return the end that was held back."""
        end, self._end, self._is_over = b"".join(self._end), [], True
        return end

    def end(self, *, has_calls: bool = True) -> bytes:
        """Return the end of the answer, which was held back; without ``has_calls`` it must not wait for calls."""
        return (
            b"".join(raw if has_calls else self._end_without_calls(raw) for raw in self._end) + self._events.end().raw
        )

    def whole(self) -> dict[str, Any] | None:
        """Return the answer with all its calls; None if it broke off, or was too much to be kept."""
        return None if self._is_over else self._gathering.whole()

    @property
    def refusal(self) -> str | None:
        """The error with which a stream ended before it said anything; None if it did not."""
        return None

    def again(self) -> None:
        """Prepare for another answer, which the client takes for a part of this one."""
        self._events, self._end, self._is_first = EventStream(), [], False
        self._gathering = _GATHERINGS[self._api]()
        self._renew()

    def _event(self, raw: bytes, data: bytes) -> bytes:
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
        return self._visible_bytes(raw, event)

    @abstractmethod
    def _visible_bytes(self, raw: bytes, event: dict[str, Any]) -> bytes:
        """Return the part of an event that the client sees."""

    def _end_without_calls(self, raw: bytes) -> bytes:
        """Return one of the last events of an answer whose only calls are hidden."""
        return raw

    @abstractmethod
    def _renew(self) -> None:
        """Forget what belongs to one answer only."""


class _AnthropicRecall(Hiding):
    def __init__(self, api: str, names: Set[str] = NAMES) -> None:
        super().__init__(api, names)
        self._count = 0

    def _renew(self) -> None:
        self._places: dict[int, int] = {}

    def _visible_bytes(self, raw: bytes, event: dict[str, Any]) -> bytes:
        kind = event.get("type")
        if kind == "message_start":
            return raw if self._is_first else b""
        if kind in {"message_delta", "message_stop"}:
            self._end.append(raw)
            return b""
        if kind == "content_block_start":
            block = event.get("content_block") or {}
            if block.get("name") in self._names:
                return b""
            self._places[event["index"]] = self._count
            self._count += 1
        if "index" not in event:
            return raw
        place = self._places.get(event["index"])
        if place is None:
            return b""
        return raw if place == event["index"] else _event_bytes({**event, "index": place})

    def _end_without_calls(self, raw: bytes) -> bytes:
        return raw.replace(b'"tool_use"', b'"end_turn"') if b"message_delta" in raw else raw


class _OpenAIRecall(Hiding):
    def _renew(self) -> None:
        self._hidden: set[int] = set()
        self._places: dict[int, int] = {}

    def _visible_bytes(self, raw: bytes, event: dict[str, Any]) -> bytes:
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
        kept = [placed for fragment in fragments if (placed := self._place_event(fragment)) is not None]
        if kept == fragments:
            return raw
        if not kept:
            return b""
        changed = {**choices[0], "delta": {**delta, "tool_calls": kept}}
        return b"data: " + _json({**event, "choices": [changed, *choices[1:]]}) + b"\n\n"

    def _place_event(self, fragment: dict[str, Any]) -> dict[str, Any] | None:
        index = int(fragment.get("index", 0))
        if (fragment.get("function") or {}).get("name") in self._names:
            self._hidden.add(index)
        if index in self._hidden:
            return None
        place = self._places.setdefault(index, len(self._places))
        return fragment if place == index else {**fragment, "index": place}

    def _end_without_calls(self, raw: bytes) -> bytes:
        return raw.replace(b'"tool_calls"', b'"stop"')


class _ResponsesRecall(Hiding):
    """Output indexes and sequence numbers run through all answers, and the last event has the items of all of them.

    Reasoning waits for what it leads to: without a following item an API refuses it when it is sent again. Where that
    is a call of the tool, the client sees neither.
    """

    def __init__(self, api: str, names: Set[str] = NAMES) -> None:
        super().__init__(api, names)
        self._ident: Any = None
        self._number: int | None = None
        self._items: list[Any] = []
        self._count = 0
        self._is_changed = False

    def _renew(self) -> None:
        self._places: dict[int, int] = {}
        self._hidden: set[int] = set()
        self._held: list[tuple[bytes, dict[str, Any]]] = []
        self._is_held_for_lookup, self._is_changed = False, True

    @property
    def refusal(self) -> str | None:
        if self._count or self._held or self._hidden or len(self._end) != 1:
            return None
        event = _read(_data_of(self._end[0])) or {}
        error = (event.get("response") or {}).get("error")
        return str(error.get("message") or error.get("code")) if isinstance(error, dict) else None

    def end(self, *, has_calls: bool = True) -> bytes:
        del has_calls  # nothing at the end of these answers tells
        held = b"" if self._is_held_for_lookup else self._release_held()
        last = b"".join(self._close_response(raw) for raw in self._end)
        return held + last + self._events.end().raw

    def _give_up(self) -> bytes:
        held = b"".join(raw for raw, _ in self._held)
        self._held = []
        return held + super()._give_up()

    def _visible_bytes(self, raw: bytes, event: dict[str, Any]) -> bytes:
        kind = event.get("type")
        if kind in _OPENING:
            if not self._is_first:
                return b""
            self._ident = self._ident or (event.get("response") or {}).get("id")
            return self._renumber(raw, event)
        if kind in _CLOSING:
            self._end.append(raw)
            return b""
        index = event.get("output_index")
        if not isinstance(index, int):
            return self._renumber(raw, event)
        item = event.get("item")
        before = self._begin_item(index, item) if isinstance(item, dict) else b""
        if index in self._hidden:
            return before
        if index in self._places:
            return before + self._place_event(raw, event, index)
        self._held.append((raw, event))
        return before

    def _begin_item(self, index: int, item: dict[str, Any]) -> bytes:
        """Note an item that begins; return the reasoning that waited for it."""
        if index in self._hidden or index in self._places:
            return b""
        if item.get("name") in self._names:
            self._hidden.add(index)
            self._is_changed, self._is_held_for_lookup = True, bool(self._held)
            return b""
        if item.get("type") == "reasoning":
            return b""
        released = self._release_held()
        self._place(index)
        return released

    def _place(self, index: int) -> None:
        self._places[index] = self._count
        self._count += 1

    def _release_held(self) -> bytes:
        told: list[bytes] = []
        for raw, event in self._held:
            index = event["output_index"]
            if index not in self._places:
                self._place(index)
            told.append(self._place_event(raw, event, index))
        self._held, self._is_held_for_lookup = [], False
        return b"".join(told)

    def _place_event(self, raw: bytes, event: dict[str, Any], index: int) -> bytes:
        if event.get("type") == "response.output_item.done":
            self._items.append(event.get("item"))
        place = self._places[index]
        return self._renumber(raw, event) if place == index else self._renumber(None, {**event, "output_index": place})

    def _renumber(self, raw: bytes | None, event: dict[str, Any]) -> bytes:
        """Return an event with the number that it has for the client; None stands for bytes that do not hold."""
        number = event.get("sequence_number")
        if not isinstance(number, int):
            return _event_bytes(event) if raw is None else raw
        if self._number is None:
            self._number = number
        own, self._number = self._number, self._number + 1
        return raw if raw is not None and own == number else _event_bytes({**event, "sequence_number": own})

    def _close_response(self, raw: bytes) -> bytes:
        """Return the last event, as the end of all that the client has seen."""
        data = _data_of(raw)
        if data == b"[DONE]":
            return raw
        event = orjson.loads(data)
        response = event.get("response")
        if not self._is_changed or not isinstance(response, dict):
            return self._renumber(raw, event)
        whole = {**response, "id": self._ident or response.get("id")}
        if response.get("output"):
            whole["output"] = self._items
        return self._renumber(None, {**event, "response": whole})


_OPENING = frozenset({"response.created", "response.queued", "response.in_progress"})
_CLOSING = frozenset({"response.completed", "response.incomplete", "response.failed"})
_HIDINGS: Mapping[str, Callable[[str, Set[str]], Hiding]] = {
    ANTHROPIC: _AnthropicRecall,
    OPENAI: _OpenAIRecall,
    RESPONSES: _ResponsesRecall,
}


def _json(value: Any) -> bytes:
    try:
        return orjson.dumps(value)
    except TypeError:  # a lone surrogate, or a number that is too large for it
        return json.dumps(value, separators=(",", ":")).encode()


def _data_of(raw: bytes) -> bytes:
    return b"\n".join(line[5:].strip() for line in raw.split(b"\n") if line.startswith(b"data:"))


def _event_bytes(event: dict[str, Any]) -> bytes:
    return b"event: " + str(event.get("type", "")).encode() + b"\ndata: " + _json(event) + b"\n\n"


def hiding_for(api: str, names: Set[str] = NAMES) -> Hiding:
    """Return the hiding of tools of these names in the streams of an API."""
    return _HIDINGS[api](api, names)
