"""Measures of a compacted context: what it still holds for the rest of the conversation.

Every measure is a pair of counts, so that conversations can be averaged later. System prompts are left out everywhere.
Knows nothing of how the context was made, except by which words a summary is recognised.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from bench.retention.entities import entities, sightings, stands
from bench.retention.facts import WINDOW, Fact
from bench.retention.texts import Text, arguments_of, said
from bench.retention.words import placed_words, plain_words
from everlong.context.literals import is_summary, summary_body
from everlong.model import Message, calls_of, typed_words

BOUND_BY = 2
"""The number of words of a fact's company that must stand near it."""
TELLING_WORDS = 3
"""A user turn with fewer content words says nothing that could be looked for."""
LEAST_SPAN = 400
"""A turn's words must stand together within twice its length, or within so many characters."""


class Share(NamedTuple):
    """A number out of a total."""

    kept: int = 0
    of: int = 0

    def plus(self, other: Share) -> Share:
        """Return the sum of both."""
        return Share(self.kept + other.kept, self.of + other.of)


NOTHING = Share()


@dataclass(slots=True)
class Held:
    """The contents of one context, as measured."""

    recall: Share = NOTHING
    far: Share = NOTHING
    bound: Share = NOTHING
    by_kind: dict[str, Share] = field(default_factory=dict)
    lost: list[Fact] = field(default_factory=list)
    unbound: list[Fact] = field(default_factory=list)


def held_facts(facts: Sequence[Fact], context: Text) -> Held:
    """Return the facts that stand in a context as whole tokens, and those of them in their company."""
    held = Held()
    for fact in facts:
        places = sightings(context.whole, fact.text)
        first = next(places, None)
        stood = first is not None
        held.recall = held.recall.plus(Share(stood, 1))
        held.by_kind[fact.kind] = held.by_kind.get(fact.kind, NOTHING).plus(Share(stood, 1))
        if fact.far:
            held.far = held.far.plus(Share(stood, 1))
        if not stood:
            held.lost.append(fact)
        if fact.can_be_bound:
            bound = first is not None and (
                _is_bound(fact, context, first) or any(_is_bound(fact, context, place) for place in places)
            )
            held.bound = held.bound.plus(Share(bound, 1))
            if stood and not bound:
                held.unbound.append(fact)
    return held


def _is_bound(fact: Fact, context: Text, place: int) -> bool:
    near = plain_words(context.around(place, len(fact.text), WINDOW))
    return len(near & fact.company) >= BOUND_BY


# -- user turns --------------------------------------------------------------------------------------------------------


def held_turns(prefix: Sequence[Message], context: Text) -> Share:
    """Return the turns in which a person typed something, with half of its words together in one message."""
    placed = [placed_words(part) for part in context.parts]
    held = NOTHING
    for message in prefix:
        text = typed_words(message) if message.get("role") == "user" and not is_summary(message) else ""
        words = plain_words(text)
        if len(words) < TELLING_WORDS:
            continue
        span, needed = max(LEAST_SPAN, 2 * len(text)), (len(words) + 1) // 2
        held = held.plus(Share(any(_stand_together(words, needed, span, part) for part in placed), 1))
    return held


def _stand_together(words: set[str], needed: int, span: int, placed: Sequence[tuple[int, str]]) -> bool:
    found = [(place, word) for place, word in placed if word in words]
    inside: dict[str, int] = {}
    start = 0
    for place, word in found:
        inside[word] = inside.get(word, 0) + 1
        while found[start][0] < place - span:
            gone = found[start][1]
            inside[gone] -= 1
            if not inside[gone]:
                del inside[gone]
            start += 1
        if len(inside) >= needed:
            return True
    return False


# -- files written -----------------------------------------------------------------------------------------------------

_WRITERS = re.compile(r"write|edit|create|replace|patch|insert", re.IGNORECASE)
_NO_WRITERS = re.compile(r"todo|memory", re.IGNORECASE)
_PATH_KEYS = ("path", "file_path", "filename", "file", "notebook_path", "target_file")
_SHELL_KEYS = ("command", "cmd", "script")
_HEREDOC = re.compile(r"<<-?\s*(['\"]?)(\w+)\1([^\n]*)\n.*?\n\s*\2(?=\s|$)", re.DOTALL)
_REDIRECTED = re.compile(
    r"(?<![-=<>&\d])(?:1)?>{1,2}\s*(['\"]?)([\w./~+@-]+)\1|\btee\s+(?:-a\s+)?(['\"]?)([\w./~+@-]+)\3"
)
_SED_IN_PLACE = re.compile(r"\bsed\s+-i\b[^\n;&|]*?\s([\w./~+-]+\.\w+|[\w.~+-]*/[\w./~+-]+)\s*(?=$|[\n;&|])")


def files_written(prefix: Sequence[Message]) -> list[str]:
    """Return the files that calls of the assistant wrote: by a tool for it, by a redirection, or by ``sed -i``."""
    found: dict[str, None] = {}
    for message in prefix:
        for call in calls_of(message):
            arguments = arguments_of(call.arguments)
            if _WRITERS.search(call.name) and not _NO_WRITERS.search(call.name):
                found.update({str(arguments[key]): None for key in _PATH_KEYS if arguments.get(key)})
            for key in _SHELL_KEYS:
                found.update(dict.fromkeys(_written_by_shell(str(arguments.get(key) or ""))))
    return list(found)


def _written_by_shell(command: str) -> Iterator[str]:
    command = _HEREDOC.sub(r"<<\2\3", command)
    for redirection in _REDIRECTED.finditer(command):
        yield from _as_file(redirection.group(2) or redirection.group(4))
    for edited in _SED_IN_PLACE.finditer(command):
        yield from _as_file(edited.group(1))


def _as_file(name: str) -> Iterator[str]:
    name = name.removeprefix("./")
    if not name.startswith("/dev/") and ("." in name.strip(".") or "/" in name):
        yield name


def held_files(prefix: Sequence[Message], context: Text) -> Share:
    """Return the written files that the context still names, each by an unambiguous part of its path."""
    files = files_written(prefix)
    return Share(sum(stands(context.whole, _telling_end(name, files)) for name in files), len(files))


def _telling_end(name: str, files: Sequence[str]) -> str:
    pieces = name.strip("/").split("/")
    for size in range(1, len(pieces)):
        end = "/".join(pieces[-size:])
        if sum(other == end or other.endswith("/" + end) for other in files) == 1:
            return end
    return name


# -- inventions --------------------------------------------------------------------------------------------------------


def invented(context: Sequence[Message], source: Sequence[Message]) -> list[str]:
    """Return the entities of the generated text that stand nowhere in the source, not even inside a word."""
    written = "\n".join(summary_body(message) for message in context if is_summary(message))
    if not written:
        return []
    known = "\n".join(
        [f"{message.get('tool_call_id', '')} {message.get('name', '')} {said(message)}" for message in source]
        + [call.arguments for message in source for call in calls_of(message)]
        + [call.id for message in source for call in calls_of(message)]
    )
    return sorted({entity.text for entity in entities(written) if entity.text not in known})
