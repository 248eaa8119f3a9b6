"""The context as the model gets it now: tools, system prompt, memory, head, summary and tail, with their sizes."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from sqlalchemy import select

from everlong.config import compression_values
from everlong.context.literals import is_summary
from everlong.context.policy import compute_budgets
from everlong.memory.notes import NOTES_HEADING
from everlong.model import (
    REASONING_FIELDS,
    Message,
    ToolCall,
    calls_of,
    find_groups,
    has_reasoning,
    text_of,
    without_thinking,
)
from everlong.providers.catalogue import Catalogue
from everlong.store.compaction import view_for
from everlong.store.schema import branch, compaction, view
from everlong.store.turns import page_of_turns, size_along
from everlong.store.views import items_of, system_of
from everlong.tokens import MessageCounter, counter_for

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from everlong.config import Settings
    from everlong.store import Conversation, Store
    from everlong.store.shown_path import ShownPath, ShownRun

__all__ = ["path_of", "read_now", "share_tokens"]

PartKind = Literal["tools", "system", "memory", "kept", "summary", "told", "edited", "tail"]

_LONGEST = 40_000
"""Characters of a part's words that are shown."""


class PartText(NamedTuple):
    """Some words of a part, under a name."""

    name: str
    text: str
    tokens: int


class ContextPart(NamedTuple):
    """One part of the context, in the order in which it is sent."""

    kind: PartKind
    tokens: int
    messages: int
    first_turn: int | None
    last_turn: int | None
    texts: tuple[PartText, ...]
    """The words; none for messages, which the transcript shows."""
    sent: Sequence[Message] = ()
    """The messages as they are sent; of a long stretch, the newest."""


@dataclass(frozen=True, slots=True)
class NowPage:
    """The context of a conversation."""

    parts: tuple[ContextPart, ...]
    tokens: int
    """The sum over the parts, estimated."""
    reported: int | None
    """The prompt tokens of the newest answered request, as the provider counted them."""
    window: int | None
    threshold: int | None
    model: str
    is_compacted: bool
    shares: Shares


def window_of(store: Store, settings: Settings, found: Conversation) -> tuple[int | None, int | None]:
    """Return the window of a conversation's model and the threshold at which it is compacted; None if unknown.

    A compaction says for which window it was made: a provider may have refused more than the catalogue promises.
    """
    used = select(view.c.profile).where(view.c.id == compaction.c.view_id, compaction.c.session.in_(found.parts[-50:]))
    with store.database.read() as connection:
        profile = connection.execute(used.order_by(compaction.c.id.desc()).limit(1)).scalar() or ""
    catalogue = Catalogue(settings.models, settings.providers)
    window = int(profile) if profile.isdecimal() else catalogue.window(found.model or "")
    if not window:
        return None, None
    return window, compute_budgets(compression_values(settings.compression), window).threshold_tokens


def read_now(store: Store, settings: Settings, ident: str) -> NowPage:
    """Return the context of a conversation as its next request would send it."""
    found = store.conversations.get(ident)
    path = store.conversations.path(ident)
    model = found.model or ""
    window, threshold = window_of(store, settings, found)
    parts: list[ContextPart] = []
    is_compacted = False
    counter = MessageCounter(counter_for(model.rpartition(":")[2]))
    if path.runs:
        with store.database.read() as connection:
            parts, is_compacted = _parts(store, connection, path, path.runs[-1], counter)
    newest = page_of_turns(store, path, found.parts[-3:], limit=20)
    reported = next((one.prompt for one in newest if one.prompt), None)
    total = sum(part.tokens for part in parts)
    return NowPage(tuple(parts), total, reported, window, threshold, model, is_compacted, _shares(parts, counter))


def _parts(
    store: Store, connection: Connection, path: ShownPath, run: ShownRun, counter: MessageCounter
) -> tuple[list[ContextPart], bool]:
    row = connection.execute(
        select(branch.c.view_id, branch.c.preamble).where(branch.c.id == run.branch, branch.c.tenant == store.tenant)
    ).one()
    shown = view_for(connection, row.view_id, run.high)
    wanted = [] if row.preamble is None else [bytes(row.preamble)]
    preamble: dict[str, Any] = next(iter(store.reader.values(connection, wanted).values()), {})
    tools = preamble.get("tools") or []
    system = system_of(connection, store.reader, run.branch, shown).messages()
    parts = [*_tool_part(tools, counter), *_system_parts(system, counter)]
    cover = 0
    if shown is not None:
        cover = shown.cover_depth
        parts += _view_parts(store, connection, path, run, shown.id, counter)
    size = size_along(store, connection, run.path, cover, run.high, counter)
    if size.messages:
        turns = path.turns_within(connection, run.branch, cover, run.high)
        parts.append(ContextPart("tail", size.tokens, size.messages, *turns, (), size.newest))
    return parts, shown is not None


def _tool_part(tools: Sequence[Any], counter: MessageCounter) -> Iterator[ContextPart]:
    texts = []
    for tool in tools:
        schema = json.dumps(tool, ensure_ascii=False, indent=1, default=str)
        texts.append(PartText(_tool_name(tool), schema[:_LONGEST], counter.count_text(json.dumps(tool, default=str))))
    if texts:
        yield ContextPart("tools", counter.count_tools(tools), 0, None, None, tuple(texts))


def _tool_name(tool: Any) -> str:
    about = tool.get("function", tool) if isinstance(tool, dict) else {}
    return str(about.get("name") or tool.get("type") or "?") if isinstance(about, dict) else "?"


def _system_parts(system: Sequence[Message], counter: MessageCounter) -> Iterator[ContextPart]:
    """Yield the system prompt, and apart from it the notes of memory that our own agent puts at its end."""
    texts = [text for message in system if (text := text_of(message)).strip()]
    if not texts:
        return
    prompt, heading, notes = "\n\n".join(texts).partition(NOTES_HEADING)
    noted = counter.count_text(heading + notes) if heading else 0
    yield _text_part("system", prompt, max(0, sum(counter.counts(system)) - noted))
    if heading:
        yield _text_part("memory", heading + notes, noted)


def _text_part(kind: PartKind, text: str, tokens: int) -> ContextPart:
    return ContextPart(kind, tokens, 1, None, None, (PartText("", text.strip()[:_LONGEST], tokens),))


def _view_parts(
    store: Store, connection: Connection, path: ShownPath, run: ShownRun, view_id: int, counter: MessageCounter
) -> list[ContextPart]:
    """Return the parts that the view in force makes of what it covers; neighbours of one kind are one part."""
    parts: list[ContextPart] = []
    for item in items_of(connection, store.reader, view_id):
        turns = path.turns_within(connection, run.branch, item.from_depth, item.to_depth)
        if item.kind == "keep":
            size = size_along(store, connection, run.path, item.from_depth, item.to_depth, counter)
            made = ContextPart("kept", size.tokens, size.messages, *turns, (), size.newest)
        elif item.message is None:
            continue
        else:
            is_edit = item.kind == "edit" or item.message.get("role") == "tool"  # such as a result that was missing
            kind: PartKind = "edited" if is_edit else "summary" if is_summary(item.message) else "told"
            tokens, text = counter.count(item.message), text_of(item.message)[:_LONGEST]
            words = () if kind == "edited" else (PartText("", text, tokens),)
            made = ContextPart(kind, tokens, 1, *turns, words, [item.message])
        parts = _joined(parts, made)
    return parts


def _joined(parts: list[ContextPart], made: ContextPart) -> list[ContextPart]:
    """Return the parts with one more, joined with the last where both are messages in their places."""
    last = parts[-1] if parts else None
    if last is None or {last.kind, made.kind} - {"kept", "edited"}:
        return [*parts, made]
    kind: PartKind = last.kind if last.kind == made.kind else "kept"
    tokens, messages, sent = last.tokens + made.tokens, last.messages + made.messages, [*last.sent, *made.sent]
    turns = last.first_turn or made.first_turn, made.last_turn or last.last_turn
    return [*parts[:-1], ContextPart(kind, tokens, messages, *turns, (), sent)]


# -- tokens by tool and by file ----------------------------------------------------------------------------------------


_MOST = 15
_PATHS = ("path", "file_path", "filePath", "filename", "file", "filepath", "target_file", "notebook_path")


class TokenShare(NamedTuple):
    """The tokens of the calls that have something in common, and of their results."""

    name: str
    calls: int
    call_tokens: int
    result_tokens: int

    @property
    def tokens(self) -> int:
        """All tokens."""
        return self.call_tokens + self.result_tokens


class Shares(NamedTuple):
    """The tokens of the messages that are sent: by speaker, by tool and by file."""

    voices: Sequence[TokenShare]
    tools: Sequence[TokenShare]
    files: Sequence[TokenShare]
    tokens: int
    is_cut: bool


def share_tokens(
    messages: Sequence[Message], counts: Sequence[int], counter: MessageCounter, name_of: Callable[[ToolCall], str]
) -> list[TokenShare]:
    """Return what calls and their results take up by the name of each call, largest first; calls without one do not."""
    calls: Counter[str] = Counter()
    asked: Counter[str] = Counter()
    given: Counter[str] = Counter()
    for group in find_groups(messages).groups:
        names = {call.id: name_of(call) for call in calls_of(messages[group.start])}
        for call in calls_of(messages[group.start]):
            calls[names[call.id]] += 1
            asked[names[call.id]] += counter.count_text(call.arguments)
        for answer in group.answers:
            given[names.get(answer.call_id, "?")] += counts[answer.at]
    found = [TokenShare(name, calls[name], asked[name], given[name]) for name in calls if name]
    return sorted(found, key=lambda one: -one.tokens)


def path_of(call: ToolCall) -> str:
    """Return the file that a call names; empty if it names none."""
    try:
        told = json.loads(call.arguments)
    except ValueError:
        return ""
    values = [told.get(name) for name in _PATHS] if isinstance(told, dict) else []
    return next((value for value in values if isinstance(value, str)), "")


def _shares(parts: Sequence[ContextPart], counter: MessageCounter) -> Shares:
    """Return what speakers, tools and files take up of the messages that are sent."""
    messages = [message for part in parts for message in part.sent]
    counts = counter.counts(messages)
    tools = share_tokens(messages, counts, counter, lambda call: call.name)
    files = share_tokens(messages, counts, counter, path_of)
    is_cut = any(part.messages > len(part.sent) > 0 for part in parts)
    return Shares(_share_voices(messages, counts, counter), tools[:_MOST], files[:_MOST], sum(counts), is_cut)


def _share_voices(messages: Sequence[Message], counts: Sequence[int], counter: MessageCounter) -> list[TokenShare]:
    """Return what people, the model and its tools said, largest first; calls belong to the tools."""
    said: Counter[str] = Counter()
    times: Counter[str] = Counter()
    for message, tokens in zip(messages, counts, strict=True):
        called = sum(counter.count_text(call.arguments) for call in calls_of(message))
        thought = tokens - counter.count(_unthought(message)) if has_reasoning(message) else 0
        role = str(message.get("role"))
        voice = "summary" if is_summary(message) else role if role in {"user", "assistant", "tool"} else "system"
        for name, part in ((voice, tokens - called - thought), ("tool", called), ("thinking", thought)):
            said[name] += max(0, part)
            times[name] += part > 0
    return [TokenShare(name, times[name], 0, tokens) for name, tokens in said.most_common() if tokens]


def _unthought(message: Message) -> Message:
    bare = without_thinking(message, entirely=True)
    return {name: bare[name] for name in bare if name not in REASONING_FIELDS}
