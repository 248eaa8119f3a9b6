"""The graph of summaries: what each one tells of, what it was made from, and the interface of whoever keeps it.

A leaf summarizes a run of messages; a summary of a higher level condenses neighbouring summaries. A range of messages
is ``(after, last]``: the id of the message before its first one, and the id of its last one. `MemoryGraph` keeps
everything in memory; the store keeps it in its database (`everlong.store.summaries`).
"""

from __future__ import annotations

import hashlib
import json
import re
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, NamedTuple, Protocol

from everlong.context.engine import MESSAGE_TAG
from everlong.model import Message, whole_text

ROOT = ""
"""The place before the first message of a conversation."""

EDITED = "@"
"""The sign before the id in the tag of a message that an earlier compaction has shortened or cleared."""
ASIDE = "+"
"""The sign behind the id in the tag of a message without identity: the id is that of the message before it."""

State = Literal["good", "degraded", "replaced", "void"]
_ID_DIGITS = 12
_PATTERN_SECONDS = 0.5


@dataclass(frozen=True, slots=True)
class NewSummary:
    """A summary that is to be added to a graph."""

    level: int
    """0 for a leaf; else one more than the highest of its children."""
    after: str
    last: str
    text: str
    tokens: int
    source_tokens: int
    """The size of what it was made from."""
    messages: int
    """The number of messages that it stands for."""
    model: str
    """The writer's name."""
    quality: float
    """The share of the names worth keeping that it kept, from 0 to 1."""
    state: State = "good"
    children: tuple[str, ...] = ()
    replaces: str | None = None
    """The degraded summary that it takes the place of."""

    @property
    def id(self) -> str:
        """The id, which follows from the range and the text."""
        return summary_id(self.after, self.last, self.text)


@dataclass(frozen=True, slots=True)
class SummaryNode:
    """A summary of a graph."""

    id: str
    made: NewSummary
    state: State
    """``good``; ``degraded`` if no model could write it; ``replaced`` by a better one; ``void`` if it is forgotten."""
    at: float
    """The time at which it was made, in seconds since 1970."""
    started: float | None = None
    """The time of its first message."""
    ended: float | None = None
    """The time of its last message."""


def summary_id(after: str, last: str, text: str) -> str:
    """Return the id of a summary."""
    said = "\0".join((after, last, text)).encode("utf-8", "surrogatepass")
    return f"s-{hashlib.blake2b(said, digest_size=16).hexdigest()[:_ID_DIGITS]}"


class FoundPassage(NamedTuple):
    """A place that a search found: a message or a summary."""

    id: str
    role: str
    """The message's role, or ``summary``."""
    at: float | None
    text: str
    """The passage that fits the query best."""
    chars: int
    """The length of the whole text."""


class SearchWish(NamedTuple):
    """A search through a graph's conversation."""

    query: str
    mode: str = "auto"
    """``auto`` for any words, ``phrase``, ``substring`` or ``regex``."""
    role: str | None = None
    tool: str | None = None
    since: float | None = None
    before: float | None = None
    page: int = 1
    limit: int = 8
    room: int = 900
    """Characters of a passage, at most."""


class TextPage(NamedTuple):
    """A page of a text, counted from 1."""

    text: str
    page: int
    pages: int
    chars: int


class SummaryGraph(Protocol):
    """A graph of summaries, and the messages under it."""

    def place(self, messages: Sequence[Message], after: str) -> list[str]:
        """Return the ids of messages that follow the message ``after``; the graph can give them back from now on."""
        ...

    def before(self, message: str) -> str:
        """Return the id of the message before a message; `ROOT` for the first one."""
        ...

    def get(self, ident: str) -> SummaryNode | None:
        """Return a summary; None if there is none of that id, or it is void."""
        ...

    def newest(self, idents: Sequence[str]) -> list[SummaryNode | None]:
        """Return summaries, each in the form that has replaced it since; None for one that is not there."""
        ...

    def find(self, after: str, last: str, children: Sequence[str] = ()) -> SummaryNode | None:
        """Return the summary of a range that was made from these children, as long as nothing has replaced it."""
        ...

    def add(self, made: NewSummary) -> SummaryNode:
        """Add a summary; adding it again changes nothing.

        The second one to replace a degraded summary gets what the first one wrote.
        """
        ...

    def degraded(self, most: int) -> list[SummaryNode]:
        """Return summaries to be made again, the lowest levels first."""
        ...

    def context(self) -> list[Message] | None:
        """Return the conversation as it is sent now, with ids; None if the graph does not know it."""
        ...

    def following(self, after: str, most: int) -> list[tuple[str, Message]]:
        """Return up to so many messages of the conversation after a message, each with its id."""
        ...

    def messages(self, after: str, last: str) -> list[tuple[str, Message]]:
        """Return the messages of a range, each with its id; one without identity has that of the message before."""
        ...

    def message_ids(self, after: str, last: str, start: int, count: int) -> list[str]:
        """Return some of the ids of a range, from the message with that number on, counted from 0.

        A range that ends before it begins has none.
        """
        ...

    def read(self, message: str, page: int, chars: int) -> TextPage | None:
        """Return a page of a message's words, counted from 1; None if there is no such message."""
        ...

    def search(self, wish: SearchWish) -> tuple[list[FoundPassage], bool]:
        """Return a page of places, best first, and whether there are more."""
        ...

    def count(self) -> dict[str, int]:
        """Return the number of summaries by state."""
        ...


def tag_of(message: Message) -> str | None:
    """Return the id that a host has tagged a message with; None for a literal of a view.

    A message without identity has that of the message before it, and an edited one that of the original.
    """
    tag = message.get(MESSAGE_TAG)
    if not isinstance(tag, str):
        return None
    place, _, ident = tag.rpartition(EDITED)
    if not place and tag.startswith(("view", "system")):
        return None
    ident = ident.partition(ASIDE)[0]
    return ROOT if ident == "start" else ident


def is_aside(message: Message) -> bool:
    """Return whether a message has no identity of its own, as a reminder has none."""
    return ASIDE in str(message.get(MESSAGE_TAG))


def is_edited(message: Message) -> bool:
    """Return whether a message stands here in other words than it was said in, as a cleared result does."""
    return EDITED in str(message.get(MESSAGE_TAG))


def _said(message: Message) -> Message:
    """Return a message without the keys that a host keeps for itself."""
    return {key: value for key, value in message.items() if not key.startswith("_")}


def _chained(message: Message, after: str) -> str:
    """Return the id of a message that follows another one."""
    said = json.dumps(message, sort_keys=True, default=str, ensure_ascii=False).encode("utf-8", "surrogatepass")
    return hashlib.blake2b(said, digest_size=16, key=after.encode()[:64]).hexdigest()


@dataclass
class MemoryGraph:
    """A graph that keeps summaries and messages in memory, for hosts without a store."""

    _nodes: dict[str, SummaryNode] = field(default_factory=dict)
    _by_range: dict[tuple[str, str, tuple[str, ...]], str] = field(default_factory=dict)
    _replaced: dict[str, str] = field(default_factory=dict)
    _messages: dict[str, Message] = field(default_factory=dict)
    _before: dict[str, str] = field(default_factory=dict)
    _edited: dict[str, str] = field(default_factory=dict)

    def place(self, messages: Sequence[Message], after: str) -> list[str]:
        """Return the ids of messages that follow the message ``after``, and keep the messages."""
        ids: list[str] = []
        for message in messages:
            own = _said(message)
            ident = _chained(own, after)
            ident = self._edited.get(ident, ident)
            self._messages.setdefault(ident, own)
            self._before.setdefault(ident, after)
            ids.append(ident)
            after = ident
        return ids

    def note_edit(self, ident: str, message: Message) -> None:
        """Remember the words in which a message stands from now on, so that it is known by them too."""
        if ident in self._messages and not self.is_message(ident, message):
            self._edited[_chained(_said(message), self._before[ident])] = ident

    def is_message(self, ident: str, message: Message) -> bool:
        """Return whether a message is the one of that id."""
        return self._messages.get(ident) == _said(message)

    def before(self, message: str) -> str:
        """Return the id of the message before a message; `ROOT` for the first one."""
        return self._before.get(message, ROOT)

    def get(self, ident: str) -> SummaryNode | None:
        """Return a summary; None if there is none of that id."""
        return self._nodes.get(ident)

    def newest(self, idents: Sequence[str]) -> list[SummaryNode | None]:
        """Return summaries, each in the form that has replaced it since; None for one that is not there."""
        found: list[SummaryNode | None] = []
        for ident in idents:
            while ident in self._replaced:
                ident = self._replaced[ident]  # noqa: PLW2901 - followed to its end
            found.append(self._nodes.get(ident))
        return found

    def find(self, after: str, last: str, children: Sequence[str] = ()) -> SummaryNode | None:
        """Return the summary of a range that was made from these children, as long as nothing has replaced it."""
        ident = self._by_range.get((after, last, tuple(children)))
        return None if ident is None else self._nodes[ident]

    def add(self, made: NewSummary) -> SummaryNode:
        """Add a summary; adding it again changes nothing."""
        node = SummaryNode(made.id, made, made.state, time.time())
        if made.replaces is not None and made.replaces in self._replaced:  # another thread has just done it
            return self._nodes[self._replaced[made.replaces]]
        if made.replaces == node.id:  # the same words, and a better writer
            self._nodes[node.id] = node
        self._nodes.setdefault(node.id, node)
        self._by_range[made.after, made.last, made.children] = node.id
        if made.replaces is not None and made.replaces != node.id:
            self._replaced[made.replaces] = node.id
            self._nodes[made.replaces] = replace(self._nodes[made.replaces], state="replaced")
        return self._nodes[node.id]

    def degraded(self, most: int) -> list[SummaryNode]:
        """Return summaries to be made again, the lowest levels first."""
        found = [node for node in self._nodes.values() if node.state == "degraded"]
        return sorted(found, key=lambda node: (node.made.level, node.at))[:most]

    def context(self) -> list[Message] | None:
        """Return None: only the host has the conversation."""

    def following(self, after: str, most: int) -> list[tuple[str, Message]]:
        """Return nothing: only the host has the conversation."""
        del after, most
        return []

    def messages(self, after: str, last: str) -> list[tuple[str, Message]]:
        """Return the messages of a range, each with its id."""
        return [(ident, self._messages[ident]) for ident in self._range(after, last)]

    def message_ids(self, after: str, last: str, start: int, count: int) -> list[str]:
        """Return some of the ids of a range."""
        return self._range(after, last)[start : start + count]

    def _range(self, after: str, last: str) -> list[str]:
        found: list[str] = []
        while last != after and last in self._messages:
            found.append(last)
            last = self._before[last]
        return found[::-1] if last == after else []

    def read(self, message: str, page: int, chars: int) -> TextPage | None:
        """Return a page of a message's words, counted from 1; None if there is no such message."""
        ident = next((one for one in self._messages if one.startswith(message)), None)
        if ident is None:
            return None
        text = whole_text(self._messages[ident])
        pages = max(1, -(-len(text) // chars))
        return TextPage(text[(page - 1) * chars : page * chars], page, pages, len(text))

    def search(self, wish: SearchWish) -> tuple[list[FoundPassage], bool]:
        """Return a page of places that hold most of the words, newest first among equals."""
        said = [(ident, str(one.get("role")), None, whole_text(one)) for ident, one in self._messages.items()]
        told = [(node.id, "summary", None, node.made.text) for node in self._nodes.values()]
        return search_texts(wish, [*said, *told])

    def count(self) -> dict[str, int]:
        """Return the number of summaries by state."""
        found: dict[str, int] = {}
        for node in self._nodes.values():
            found[node.state] = found.get(node.state, 0) + 1
        return found


def search_texts(
    wish: SearchWish, texts: Iterable[tuple[str, str, float | None, str]]
) -> tuple[list[FoundPassage], bool]:
    """Return a page of texts, those with most of the words first, and whether there are more.

    Args:
        wish: what to look for.
        texts: id, role, time and words of each, oldest first.
    """
    words = [wish.query] if wish.mode in {"phrase", "substring"} else re.findall(r"\w+", wish.query)
    count = _pattern_counter(wish.query) if wish.mode == "regex" else None
    scored: list[tuple[int, int, FoundPassage]] = []
    for place, (ident, role, at, text) in enumerate(texts):
        if wish.role is not None and role != wish.role:
            continue
        low = text.casefold()
        score = count(text) if count is not None else sum(word.casefold() in low for word in words)
        if score:
            shown = _passage_around(text, wish.query, wish.room)
            scored.append((score, place, FoundPassage(ident, role, at, shown, len(text))))
    scored.sort(key=lambda one: (-one[0], -one[1]))
    start = (wish.page - 1) * wish.limit
    return [one for _, _, one in scored[start : start + wish.limit]], len(scored) > start + wish.limit


def _pattern_counter(query: str) -> Callable[[str], int]:
    """Return a function that counts the matches of a regular expression; both raise `ValueError` if it is no good."""
    import regex  # noqa: PLC0415 - only where it is used

    try:
        pattern = regex.compile(query, regex.IGNORECASE)
    except (regex.error, OverflowError, RecursionError) as error:
        raise ValueError(f"{query[:40]!r} is no regular expression: {error}") from None

    def count(text: str) -> int:
        try:
            return len(pattern.findall(text, timeout=_PATTERN_SECONDS))
        except TimeoutError:
            raise ValueError(f"the regular expression {query[:40]!r} takes too long; write a simpler one") from None

    return count


def _passage_around(text: str, query: str, room: int) -> str:
    """Return the part of a text around the first of a query's words."""
    if len(text) <= room:
        return text
    low = text.casefold()
    places = [place for word in (query, *query.split()) if (place := low.find(word.casefold())) >= 0]
    start = max(0, min((places[0] if places else 0) - room // 3, len(text) - room))
    return f"{'…' if start else ''}{text[start : start + room]}{'…' if start + room < len(text) else ''}"


def describe(node: SummaryNode) -> dict[str, Any]:
    """Return the facts about a summary as plain values."""
    made = node.made
    return {
        "id": node.id,
        "level": made.level,
        "messages": made.messages,
        "tokens": made.tokens,
        "source_tokens": made.source_tokens,
        "from": node.started,
        "to": node.ended,
        "first_message_after": made.after or None,
        "last_message": made.last,
        "children": list(made.children),
        "model": made.model,
        "quality": round(made.quality, 3),
        "state": node.state,
    }
