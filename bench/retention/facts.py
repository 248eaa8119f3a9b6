"""The facts that the rest of a conversation needs: the assistant goes on to use them, and only its past states them.

A fact is needed at a cut if a later turn of the assistant is the first message after the cut to say it, if it was said
before the cut outside the system prompt, and if it is this conversation's own. Where one such fact is part of another
that the same turn uses (a file's name in its path), only the longer one counts. Knows nothing of compaction.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence, Set
from dataclasses import dataclass

from bench.retention.entities import entities, sightings, stands
from bench.retention.texts import Text, around, emitted
from bench.retention.words import plain_words
from everlong.model import Message, is_system, text_of

WINDOW = 160
"""Characters on either side of a fact that are its company: about 25 words."""
FAR = 0.8
"""A fact is far if it was last said before this share of the text before the cut."""
COMMON = 3
"""A fact that stands in so many other conversations belongs to none of them."""
_SIGHTINGS = 60
"""The number of the newest sightings of a fact before the cut that count for its company."""


@dataclass(frozen=True, slots=True)
class Fact:
    """Something that a later turn needs."""

    text: str
    kind: str
    used_at: int
    """The index of the message that is the first to use it after the cut."""
    last_seen: int
    """Its last place before the cut, in the conversation's text."""
    far: bool
    company: frozenset[str]
    """The plain words that stand near it both before the cut and where it is used."""

    @property
    def can_be_bound(self) -> bool:
        """True if it has enough company to tell what it was about."""
        return len(self.company) >= 2


class Transcript:
    """A conversation with its text, and where each thing that its assistant says stands in it."""

    def __init__(self, messages: Sequence[Message]) -> None:
        self.messages = messages
        self.text = Text(messages)
        self.prompt = "\n".join(text_of(message) for message in messages if is_system(message))
        self._places: dict[str, list[int]] = {}

    def places(self, fact: str) -> list[int]:
        """Return where a fact stands in the whole text, in order."""
        if fact not in self._places:
            self._places[fact] = list(sightings(self.text.whole, fact))
        return self._places[fact]

    def facts_after(self, cut: int, common: Set[str] = frozenset()) -> list[Fact]:
        """Return the facts that the turns from ``cut`` on need."""
        border = self.text.start_of(cut)
        needed: list[Fact] = []
        seen: set[str] = set()
        for index in range(cut, len(self.messages)):
            if self.messages[index].get("role") != "assistant":
                continue
            said = emitted(self.messages[index])
            found = {e.text: e.kind for e in entities(said) if e.text not in seen and e.text not in common}
            seen.update(found)
            used = {fact: kind for fact, kind in found.items() if self._is_needed(fact, border, index)}
            longest = [fact for fact in used if not any(f != fact and fact in f and stands(f, fact) for f in used)]
            needed += [self._fact(fact, used[fact], border, index, said) for fact in longest]
        return needed

    def _is_needed(self, fact: str, border: int, index: int) -> bool:
        places = self.places(fact)
        after = bisect_left(places, border)
        if after == 0 or after == len(places) or self.text.message_at(places[after]) != index:
            return False
        return not stands(self.prompt, fact)

    def _fact(self, fact: str, kind: str, border: int, index: int, said: str) -> Fact:
        before = self.places(fact)[: bisect_left(self.places(fact), border)]
        earlier = plain_words(" ".join(self.text.around(at, len(fact), WINDOW) for at in before[-_SIGHTINGS:]))
        later = plain_words(" ".join(around(said, at, len(fact), WINDOW) for at in sightings(said, fact)))
        return Fact(
            text=fact,
            kind=kind,
            used_at=index,
            last_seen=before[-1],
            far=before[-1] < FAR * border,
            company=frozenset((earlier & later) - plain_words(fact)),
        )


def own_entities(messages: Sequence[Message]) -> set[str]:
    """Return every entity that a conversation states outside its system prompt."""
    return {entity.text for part in Text(messages).parts for entity in entities(part)}


def common_entities(conversations: Sequence[Set[str]]) -> dict[str, int]:
    """Return the number of conversations with each entity."""
    counted: dict[str, int] = {}
    for stated in conversations:
        for entity in stated:
            counted[entity] = counted.get(entity, 0) + 1
    return counted
