"""Recall: the tools by which a model reads back what a compaction has moved out of its window.

The client never sees them: the gateway offers them, answers their calls from the store, and removes both from the
client's answer (`everlong.agent.tools.hidden_tools`). Here are the bytes of its requests.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from typing import TYPE_CHECKING, Any

from everlong.agent.tools.hidden_tools import READ, RESPONSES, TOOLS, HiddenTool, lookup_entries, tool_schema
from everlong.gateway.body import dump_json, parse_json, read_body, splice
from everlong.lossless.tools import EXPAND, SCHEMAS

if TYPE_CHECKING:
    from everlong.gateway.body import Draft
    from everlong.gateway.formats import Dialect

__all__ = [
    "LOSSLESS_TOOLS",
    "answer_lookups",
    "can_hide",
    "can_offer",
    "choose_tools",
    "has_tools",
    "offer_tools",
    "reader_of",
    "take_tools_away",
]

LOSSLESS_TOOLS = tuple(HiddenTool(one["name"], one["description"], one["parameters"]) for one in SCHEMAS)
"""The tools of the lossless engine, which take the place of the other two."""


def reader_of(tools: Sequence[HiddenTool]) -> str:
    """Return the name of the tool that reads a whole message; empty if there is none."""
    return EXPAND if tools is LOSSLESS_TOOLS else READ if tools else ""


def can_offer(dialect: Dialect, draft: Draft, *, is_compacted: bool = False) -> bool:
    """Return whether a request may get the tools to look things up: it has tools or was compacted."""
    return (is_compacted or has_tools(draft)) and can_hide(dialect, draft)


def can_hide(dialect: Dialect, draft: Draft) -> bool:
    """Return whether a request may get hidden tools: no later request names its answer.

    Later requests may name an answer of the Responses API that the upstream stores; it would hold calls that their
    client never saw.
    """
    if "functions" in draft.fields:  # what tools were called before, which cannot be had beside them
        return False
    return dialect.name != RESPONSES or draft.body[slice(*draft.fields.get("store", (0, 0)))] == b"false"


def has_tools(draft: Draft) -> bool:
    """Return whether a request has tools of its own; requests for titles and the like have none."""
    start, end = draft.fields.get("tools", (0, 0))
    return draft.body[start : start + 1] == b"[" and bool(draft.body[start + 1 : end - 1].strip())


def choose_tools(
    dialect: Dialect, draft: Draft, recalling: Sequence[HiddenTool], *, is_compacted: bool
) -> list[HiddenTool]:
    """Return the tools for look-ups that a request gets; if a client has one of the same name, it keeps its own."""
    tools = list(recalling) if recalling and can_offer(dialect, draft, is_compacted=is_compacted) else []
    if tools and has_tools(draft):
        own = _tool_names(parse_json(draft.body[slice(*draft.fields["tools"])]))
        tools = [tool for tool in tools if tool.name not in own]
    return tools


def _tool_names(tools: Any) -> set[str]:
    """Return the names of a client's tools."""
    entries = [one for one in tools if isinstance(one, dict)] if isinstance(tools, list) else []
    functions = [one["function"] if isinstance(one.get("function"), dict) else one for one in entries]
    return {str(one.get("name")) for one in functions}


def offer_tools(dialect: Dialect, draft: Draft, tools: Sequence[HiddenTool] = TOOLS) -> Draft:
    """Return a body with hidden tools behind those that it offers."""
    own = b",".join(dump_json(tool_schema(dialect.name, tool)) for tool in tools)
    if "tools" not in draft.fields:
        return draft.with_field("tools", b"[" + own + b"]")
    start, end = draft.fields["tools"]
    if draft.body[start : start + 1] != b"[":
        return draft.changed([(start, end, b"[" + own + b"]")])
    return draft.changed([(end - 1, end - 1, b"," + own if has_tools(draft) else own)])


def answer_lookups(dialect: Dialect, body: bytes, answer: Mapping[str, Any], results: Mapping[str, str]) -> bytes:
    """Return the body with the model's calls and their answers behind it."""
    read = read_body(body, dialect.list_name)
    data = b",".join(map(dump_json, lookup_entries(dialect.name, answer, results)))
    return splice(body, [(read.end, read.end, b"," + data if read.entries else data)])


def take_tools_away(body: bytes, hidden: Set[str]) -> bytes:
    """Return a body without the hidden tools, so that the model goes on with what it has looked up."""
    asked = parse_json(body)
    left = [tool for tool in asked["tools"] if not _tool_names([tool]) & hidden]
    # Where no tool is left, the calls so far still need their definitions.
    none = {"type": "none"} if any("input_schema" in tool for tool in asked["tools"]) else "none"
    return dump_json({**asked, "tools": left} if left else {**asked, "tool_choice": none})
