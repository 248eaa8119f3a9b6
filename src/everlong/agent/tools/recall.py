"""Recall for hosts whose agent is another program's: the tools, and the answers to their calls.

The gateway offers them to the models of its clients, the adapters to those of other frameworks. A conversation is known
by its place in the store, because such hosts have no session of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from everlong.agent.tools.context import ToolContext
from everlong.agent.tools.history import read_turn, recall
from everlong.agent.tools.tool import Tool
from everlong.agent.tools.workspace import Workspace
from everlong.errors import ConfigError, EverlongError

if TYPE_CHECKING:
    from everlong.context import ContextEngine
    from everlong.store import Branch, Store
    from everlong.tokens import TokenCounter

__all__ = [
    "NAMES",
    "NO_ROOM",
    "READ",
    "RECALL",
    "ROUNDS",
    "TOOLS",
    "HiddenTool",
    "RecallLookup",
    "engine_tools",
    "look_up_all",
]

RECALL, READ = "everlong_recall", "everlong_read_turn"
NAMES = frozenset({RECALL, READ})
NO_ROOM = "[there is no room to look something up now; go on with what you have]"
_LEAST = 30
"""Tokens that are reserved for saying that something was cut."""
ROUNDS = 8
"""Times that a model may look something up in one turn."""


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


def engine_tools(engine: ContextEngine, warn: Callable[[str], None]) -> tuple[HiddenTool, ...]:
    """Return the tools that an engine offers; one that cannot be offered is left out, with a warning."""
    found: dict[str, HiddenTool] = {}
    for schema in engine.get_tool_schemas():
        try:
            tool = Tool.from_schema(schema, engine.handle_tool_call)
        except ConfigError as error:
            warn(f"a tool of the engine {engine.name!r} is left out: {error}")
            continue
        found.setdefault(tool.name, HiddenTool(tool.name, tool.description, tool.parameters))
    return tuple(found.values())


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

    The best results come first, so the end is cut off if there is no room. ``call`` answers for tools that are not the
    host's own; without a store it answers all of them. Pages of a message are smaller in a small ``window``, so that
    they are not cut.
    """
    found: dict[str, str] = {}
    for number, lookup in enumerate(lookups):
        share = room // (len(lookups) - number)
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
    return f"{cut.rstrip()}\n[cut: there is no room for the rest]" if cut else NO_ROOM


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
