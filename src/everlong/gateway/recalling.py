"""A tool of the gateway's own: the model looks up what was said before, and the client never hears of it.

The tool is offered with every request of a route that wants it and that has tools of its own, so that the prompt stays
the same. A request without tools, such as one for a title, gets none, unless a part of its own conversation is no
longer in sight because the gateway has summarized it. Calls are answered inside the turn: the request is sent again
with the call and its answer behind it. A model that calls tools of the client at the same time gets those answered
first, by the client, and may look up again afterwards.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import orjson

from everlong.agent.tools.context import ToolContext
from everlong.agent.tools.history import read_turn, recall
from everlong.agent.tools.workspace import Workspace
from everlong.errors import EverlongError
from everlong.gateway.raw import dumped, read_body, spliced

if TYPE_CHECKING:
    from everlong.gateway.dialects import Dialect
    from everlong.gateway.drafts import Draft
    from everlong.store import Branch, Store
    from everlong.tokens import TokenCounter

__all__ = [
    "NAMES",
    "NO_ROOM",
    "ROUNDS",
    "Lookup",
    "all_looked_up",
    "answered_lookups",
    "can_offer",
    "lookups_in",
    "offered",
    "without_lookups",
]

RECALL, READ = "everlong_recall", "everlong_read_turn"
NAMES = frozenset({RECALL, READ})
NO_ROOM = "[there is no room to look something up now; go on with what you have]"
_LEAST = 30
"""Tokens that are kept back for saying that something was cut."""
ROUNDS = 8
"""So often a model may look something up in one turn."""

_TOOLS: tuple[tuple[str, str, dict[str, Any]], ...] = (
    (
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
    (
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


class Lookup(NamedTuple):
    """One call of the tool."""

    id: str
    name: str
    arguments: Mapping[str, Any]


def can_offer(dialect: Dialect, draft: Draft, *, is_compacted: bool = False) -> bool:
    """Return whether a request may get the tool: it has tools or was compacted, and nobody names its answer later.

    An answer of the Responses API that the upstream stores is one that later requests may name; it would hold calls
    that their client never saw.
    """
    if not _has_tools(draft) and (not is_compacted or "functions" in draft.fields):
        return False
    return dialect.name != _RESPONSES or draft.body[slice(*draft.fields.get("store", (0, 0)))] == b"false"


def _has_tools(draft: Draft) -> bool:
    start, end = draft.fields.get("tools", (0, 0))
    return draft.body[start : start + 1] == b"[" and bool(draft.body[start + 1 : end - 1].strip())


def offered(dialect: Dialect, draft: Draft) -> Draft:
    """A body with the tool behind those that it offers."""
    own = _SCHEMAS[dialect.name]
    if "tools" not in draft.fields:
        return draft.with_field("tools", b"[" + own + b"]")
    start, end = draft.fields["tools"]
    if draft.body[start : start + 1] != b"[":
        return draft.changed([(start, end, b"[" + own + b"]")])
    return draft.changed([(end - 1, end - 1, b"," + own if _has_tools(draft) else own)])


_RESPONSES = "openai-responses"
_SCHEMAS = {
    "anthropic": b",".join(
        dumped({"name": name, "description": about, "input_schema": takes}) for name, about, takes in _TOOLS
    ),
    "openai": b",".join(
        dumped({"type": "function", "function": {"name": name, "description": about, "parameters": takes}})
        for name, about, takes in _TOOLS
    ),
    _RESPONSES: b",".join(
        dumped({"type": "function", "name": name, "description": about, "parameters": takes, "strict": False})
        for name, about, takes in _TOOLS
    ),
}


def lookups_in(dialect: Dialect, answer: Mapping[str, Any]) -> tuple[list[Lookup], bool]:
    """Return the calls of the tool in a whole answer, and whether it cannot go on with their results alone.

    That is so where the client has calls to answer too, and where the answer was cut short.
    """
    found: list[Lookup] = []
    others = answer.get("status") == "incomplete"
    for ident, name, arguments in _calls(dialect, answer):
        if name in NAMES:
            found.append(Lookup(ident, name, arguments))
        else:
            others = True
    return found, others


def _calls(dialect: Dialect, answer: Mapping[str, Any]) -> list[tuple[str, str, Mapping[str, Any]]]:
    if dialect.name == "anthropic":
        blocks = [block for block in answer.get("content") or () if isinstance(block, dict)]
        return [
            (str(block.get("id")), str(block.get("name")), block.get("input") or {})
            for block in blocks
            if block.get("type") == "tool_use"
        ]
    if dialect.name == _RESPONSES:
        return [
            (str(item.get("call_id")), str(item.get("name")), _arguments(item))
            for item in _items(answer)
            if isinstance(item.get("call_id"), str) or item.get("type") == "mcp_approval_request"
        ]
    found: list[tuple[str, str, Mapping[str, Any]]] = []
    for call in _message(answer).get("tool_calls") or ():
        function = call.get("function") or {}
        found.append((str(call.get("id")), str(function.get("name")), _arguments(function)))
    return found


def all_looked_up(store: Store, at: Branch, lookups: list[Lookup], room: int, counter: TokenCounter) -> dict[str, str]:
    """Return what the tool answers of what was said up to a place, by call, in so many tokens together; blocks.

    The best of what is found comes first, so it is the end that is cut off where there is no room.
    """
    found: dict[str, str] = {}
    for number, lookup in enumerate(lookups):
        share = room // (len(lookups) - number)
        found[lookup.id] = _fitting(_looked_up(store, at, lookup), share, counter)
        room -= counter.count_text(found[lookup.id])
    return found


def _fitting(text: str, room: int, counter: TokenCounter) -> str:
    count = counter.count_text(text)
    if count <= room:
        return text
    cut = text[: max(0, room - _LEAST) * len(text) // count]
    while cut and counter.count_text(cut) > room - _LEAST:
        cut = cut[: len(cut) * 9 // 10]
    return f"{cut.rstrip()}\n[cut: there is no room for the rest]" if cut else NO_ROOM


def _looked_up(store: Store, at: Branch, lookup: Lookup) -> str:
    asked = "query" if lookup.name == RECALL else "id"
    words, page = lookup.arguments.get(asked), lookup.arguments.get("page")
    if not isinstance(words, str) or not words.strip():
        return f"[say what to look for: {asked}]"
    context = ToolContext(Workspace(Path.cwd(), ()), store, "", upto=at)
    number = page if isinstance(page, int) and page > 0 else 1
    try:
        text = recall(words, context, number) if lookup.name == RECALL else read_turn(words, context, number)
    except EverlongError as error:
        return f"[{error}]"
    return text.replace("; read_turn gives the rest]", f"; {READ} gives the rest]")


def answered_lookups(dialect: Dialect, body: bytes, answer: Mapping[str, Any], results: Mapping[str, str]) -> bytes:
    """The body with the model's calls and their answers behind it."""
    entries: list[dict[str, Any]] = []
    if dialect.name == "anthropic":
        entries.append({"role": "assistant", "content": answer.get("content")})
        blocks = [{"type": "tool_result", "tool_use_id": ident, "content": text} for ident, text in results.items()]
        entries.append({"role": "user", "content": blocks})
    elif dialect.name == _RESPONSES:
        entries += [item for item in _items(answer) if item.get("type") != "reasoning" or item.get("encrypted_content")]
        entries += [
            {"type": "function_call_output", "call_id": ident, "output": text} for ident, text in results.items()
        ]
    else:
        entries.append({name: value for name, value in _message(answer).items() if value is not None})
        entries += [{"role": "tool", "tool_call_id": ident, "content": text} for ident, text in results.items()]
    read = read_body(body, dialect.list_name)
    data = b",".join(map(dumped, entries))
    return spliced(body, [(read.end, read.end, b"," + data if read.entries else data)])


def without_lookups(dialect: Dialect, answer: dict[str, Any]) -> dict[str, Any]:
    """A whole answer without the calls of the tool, for a client that knows nothing of it."""
    if dialect.name == "anthropic":
        kept = [block for block in answer["content"] if block.get("name") not in NAMES]
        is_over = answer.get("stop_reason") == "tool_use" and not any(one.get("type") == "tool_use" for one in kept)
        return {**answer, "content": kept, **({"stop_reason": "end_turn"} if is_over else {})}
    if dialect.name == _RESPONSES:
        return {**answer, "output": _shown_items(_items(answer))}
    message = _message(answer)
    calls = [call for call in message["tool_calls"] if (call.get("function") or {}).get("name") not in NAMES]
    choice = {**answer["choices"][0], "message": {**message, "tool_calls": calls}}
    if not calls:
        del choice["message"]["tool_calls"]
        choice["finish_reason"] = "stop"
    return {**answer, "choices": [choice, *answer["choices"][1:]]}


def _shown_items(items: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return items without calls of the tool; reasoning that led to nothing else goes with them."""
    shown: list[dict[str, Any]] = []
    held: list[dict[str, Any]] = []
    for item in items:
        if item.get("type") == "reasoning":
            held.append(item)
        elif item.get("name") not in NAMES:
            shown += [*held, item]
            held = []
    return shown if items and items[-1].get("name") in NAMES else [*shown, *held]


def _items(answer: Mapping[str, Any]) -> list[dict[str, Any]]:
    output = answer.get("output")
    return [item for item in output if isinstance(item, dict)] if isinstance(output, list) else []


def _arguments(call: Mapping[str, Any]) -> dict[str, Any]:
    return _read(str(call.get("arguments") or "{}").encode()) or {}


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
