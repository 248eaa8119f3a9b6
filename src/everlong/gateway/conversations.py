"""Conversations in memory: found by the beginnings of their bodies, with the view in force in the bytes of their API.

The store's view consists of messages; a client's body has entries. The entries that replace the first ones are made
once, when a view comes into force; all later entries go on as the client wrote them. Cuts are made between entries: if
the view ends inside an entry, the rest of that entry is sent in the store's form.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right, insort
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from hashlib import sha256
from itertools import accumulate
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from everlong.gateway.body import Change, Draft, Read, dump_json, parse_json
from everlong.gateway.formats import PLATFORM, count_leading
from everlong.store.compaction import SeenContext, see
from everlong.store.identity import Sender
from everlong.store.tree import Branch

if TYPE_CHECKING:
    from collections.abc import Iterable
    from hashlib import _Hash as Hash

    from everlong.caching import PromptCache
    from everlong.caching.misses import CachedPrompt
    from everlong.context.policy import Habits, Waiting
    from everlong.gateway.formats import Dialect
    from everlong.model import Message
    from everlong.store import Store
    from everlong.store.views import ViewPiece

__all__ = [
    "HEAD",
    "AppliedView",
    "BodyPlace",
    "ConversationMemory",
    "Growth",
    "KnownBeginning",
    "LiveConversation",
    "LiveConversations",
    "apply_view",
    "hash_beginnings",
    "kept_lengths",
    "move_view",
    "unplaced",
    "with_view",
]

MOST_BYTES = 32_000_000
"""Approximate bytes of all conversations in memory together."""

HEAD = 256
"""Bytes at the beginning of a body by which possible conversations are found."""
_BACK = (0, 1, 2, 3, 5, 8)
"""The entries whose ends are remembered, counted from the last one."""
_EXCHANGE = 2
"""Entries of a first exchange."""
_CONVERSATION_BYTES, _ENTRY_BYTES = 4_000, 24
"""Approximate bytes that a conversation, and each of its entries, takes in memory."""
_RIVALS = 1_000
"""Places with the same beginning that are tried, the newest first."""
_ENTRY_ENDS = frozenset(b'}]"')
"""The last byte of an entry, if it is not a mere number or word."""
_AFTER_ENTRY = frozenset((b",", b"]", b" ", b"\t", b"\n", b"\r"))
_OLDER = 0.8
"""Weight of all earlier steps against the newest one."""
_SHORTEST_STEP, _LONGEST_STEP = 0.01, 60.0
"""Seconds of a step; a person who pauses does not make a conversation slow."""


@dataclass(frozen=True, slots=True)
class AppliedView:
    """A view in the bytes of an API: the entries that replace the first ones of a body after the system prompt."""

    view_id: int
    covers: int
    """Entries that are replaced, system entries counted."""
    data: bytes
    """The entries that replace them, with commas between them."""
    ends: tuple[int, ...]
    """The place in ``data`` where each of its entries ends."""
    note: str | None
    """The note that is added to the system prompt."""
    edits: dict[int, bytes] = field(default_factory=dict)
    """Later entries that are sent in another form, by their number."""


class Growth(NamedTuple):
    """The speed of a conversation: the tokens of its last steps and the seconds that they took, newer ones more."""

    tokens: float = 0.0
    seconds: float = 0.0
    steps: float = 0.0
    at: float | None = None
    """The time of its last answer, on the monotonic clock."""

    def after(self, tokens: int, now: float) -> Growth:
        """Return the growth after an answer to a prompt that is so many tokens larger than the one before."""
        if self.at is None or tokens <= 0:  # the first one, or the first under another view
            return self._replace(at=now)
        seconds = min(now - self.at, _LONGEST_STEP)
        return Growth(_OLDER * self.tokens + tokens, _OLDER * self.seconds + seconds, _OLDER * self.steps + 1, now)

    @property
    def step(self) -> int:
        """The tokens of one step."""
        return int(self.tokens / max(1.0, self.steps))

    def in_seconds(self, seconds: float) -> tuple[int, float]:
        """Return the tokens by which the conversation will grow in so many seconds, and in how many steps."""
        share = seconds / max(self.seconds, _SHORTEST_STEP)
        return int(share * self.tokens), share * self.steps


@dataclass(slots=True)
class LiveConversation:
    """One conversation: the end of each entry of its newest body, the depth in the tree there, and what is known."""

    read: Read
    """The part of the body before the list."""
    lead: int
    """Entries at the beginning that are system messages."""
    ends: array[int]
    depths: array[int]
    branch: Branch
    last: Message | None
    """The last message without its words, which the next messages follow."""
    view: AppliedView | None = None
    session: str | None = None
    session_branch: int = 0
    """The branch of the session; a place on another branch may belong to another conversation."""
    cache: PromptCache | None = None
    """The cache markers that the gateway has placed, if it places them itself."""
    reported: tuple[int, int] | None = None
    """Bytes of the last body that was sent, and the tokens that the API counted in it. They hold whatever its client
    does to markers: the next body is this one and something more."""
    fixed_bytes: int = 0
    """Bytes of a body that no compaction touches: all but the list, with the system messages at its beginning."""
    waiting: Waiting | None = None
    """The record since its last compaction; None if it never came near one."""
    waiting_under: int | None = None
    """The view under which that record was made."""
    habits: Habits | None = None
    """Its habits, if the threshold follows them."""
    ahead_at: int = 0
    """Tokens of the request after which the lossless engine last worked ahead; 0 after a compaction."""
    growth: Growth = field(default_factory=Growth)
    sent_at: float = 0.0
    """The time when its last body was sent, on the monotonic clock."""
    opened: int = 0
    """Depth at which its first request ends. Up to there, other conversations may have the same words."""
    rest: bytes = b""
    """A digest of the system prompt and tools that stood behind the list in its newest body."""
    mark: bytes = b""
    """The id by which its client finds its end."""
    hint: str | None = None
    """The name by which its client knows it."""
    sender: Sender = field(default_factory=partial(Sender, PLATFORM))
    cached: CachedPrompt | None = None
    """Its newest answered request, as it lies in the provider's cache."""

    def cut(self, count: int, branch: Branch, mark: bytes) -> LiveConversation:
        """Return the conversation up to an entry, for a request that goes on from there.

        Each request has a copy of its own, because others may go on from the same place at the same time.
        """
        view = self.view if self.view is not None and self.view.covers <= count else None
        is_whole = count == len(self.ends)
        return replace(
            self,
            ends=self.ends[:count],
            depths=self.depths[:count],
            branch=branch,
            last=self.last if is_whole else None,
            view=view,
            session=self.session if branch.id == self.session_branch else None,
            cache=self.cache if is_whole else None,
            mark=mark,
        )

    def to_store(self) -> LiveConversation:
        """Return a copy for the recorder, without what only the relay uses."""
        return replace(self, depths=self.depths[:], cache=None, cached=None, waiting=None, habits=None)

    def move_to(self, stored: LiveConversation) -> None:
        """Take over the place and the view that the recorder found."""
        self.branch, self.mark, self.depths = stored.branch, stored.mark, stored.depths
        self.session, self.session_branch = stored.session, stored.session_branch
        self.opened, self.view = stored.opened, stored.view

    def take_place(self, stored: LiveConversation) -> None:
        """Take over everything that the recorder found about a conversation that was not looked up."""
        self.move_to(stored)
        self.last, self.hint, self.sender, self.rest = stored.last, stored.hint, stored.sender, stored.rest

    @property
    def is_placed(self) -> bool:
        """True once its place in the store is known."""
        return self.branch.id != 0

    @property
    def view_id(self) -> int | None:
        """The id of the view in force; None if everything is sent as it came."""
        return None if self.view is None else self.view.view_id

    @property
    def _start(self) -> int:
        """The place in its body where the conversation begins, behind the system messages."""
        return self.ends[self.lead - 1] if self.lead else self.read.start

    def measure(self, size: int) -> None:
        """Note how many of a body's bytes no compaction touches."""
        self.fixed_bytes = size - (self.ends[-1] - self._start if self.ends else 0)

    @property
    def messages(self) -> int:
        """Number of messages, if each is an entry of its own."""
        return len(self.ends) - self.lead

    @property
    def head_bytes(self) -> int:
        """Bytes of the first exchange."""
        start = self._start
        last = min(len(self.ends), self.lead + _EXCHANGE) - 1
        return max(0, self.ends[last] - start) if last >= 0 else 0

    def goes_on_from(self, other: LiveConversation) -> None:
        """Take over what is known of the same conversation, which was read anew."""
        self.reported, self.sent_at, self.growth = other.reported, other.sent_at, other.growth
        self.waiting, self.waiting_under, self.habits = other.waiting, other.waiting_under, other.habits
        self.cached = other.cached

    @property
    def weight(self) -> int:
        """Approximate bytes that it takes in memory."""
        shown = 0 if self.view is None else len(self.view.data) + sum(map(len, self.view.edits.values()))
        return _CONVERSATION_BYTES + _ENTRY_BYTES * len(self.ends) + shown


class BodyPlace(NamedTuple):
    """A known beginning of a body: the conversation, the number of its last entry, and the node there.

    The branch is only what was known then: the store looks it up again when it stores something after the node.
    """

    conversation: LiveConversation
    number: int
    branch: Branch
    mark: bytes
    """The id by which the client finds the node."""


Hashed: TypeAlias = "tuple[int, Hash]"
"""A length, and the hash of that many bytes."""


class KnownBeginning(NamedTuple):
    """A known beginning of a body, and the hash of all bytes up to there."""

    place: BodyPlace
    hasher: Hash


def hash_beginnings(body: bytes, lengths: Iterable[int], hasher: Hash | None = None, done: int = 0) -> Iterator[Hashed]:
    """Hash the beginnings of a body that have certain lengths, shortest first; yields the same hasher each time.

    A hasher that has hashed ``done`` bytes already goes on from there.
    """
    hasher, whole = hasher or sha256(), memoryview(body)
    for length in lengths:
        if length >= done:
            hasher.update(whole[done:length])
            done = length
            yield length, hasher


def kept_lengths(conversation: LiveConversation, places: dict[int, BodyPlace]) -> dict[int, int]:
    """Return the lengths of a body's beginnings that are remembered, each with the number of its last entry."""
    count = len(conversation.ends)
    numbers = sorted(count - back for back in _BACK if count - back in places)
    return {conversation.ends[number - 1]: number for number in numbers if conversation.ends[number - 1] >= HEAD}


class _BeginningKey(NamedTuple):
    length: int
    digest: bytes


class _KeptBody(NamedTuple):
    live: LiveConversations
    """The conversations among which it is found."""
    conversation: LiveConversation
    head: bytes
    keys: list[_BeginningKey]
    weight: int
    """Approximate bytes that the conversation takes."""


class ConversationMemory:
    """The memory of all tenants' conversations together: the least recently used one is dropped first."""

    def __init__(self, most_bytes: int = MOST_BYTES) -> None:
        self.most = most_bytes
        self.size = 0
        """Approximate bytes of all."""
        self.kept: OrderedDict[int, _KeptBody] = OrderedDict()
        """By the ids of their objects, the least recently used one first."""


class LiveConversations:
    """The conversations of one tenant and one API that are in memory."""

    def __init__(self, memory: ConversationMemory | None = None) -> None:
        self._memory = memory or ConversationMemory()
        self._places: dict[tuple[bytes, _BeginningKey], BodyPlace] = {}
        self._heads: dict[bytes, list[int]] = {}
        """The lengths of known bodies by their beginning, sorted; forks often share one."""
        self._nodes: dict[bytes, BodyPlace] = {}

    def lengths(self, body: bytes) -> list[int]:
        """Return the lengths of known beginnings that a body may have."""
        known = self._heads.get(body[:HEAD], [])
        end = bisect_right(known, len(body))
        lengths = dict.fromkeys(known[max(0, end - _RIVALS) : end])
        return [one for one in lengths if body[one - 1] in _ENTRY_ENDS and body[one : one + 1] in _AFTER_ENTRY]

    def find(self, body: bytes, hashes: Iterable[Hashed]) -> KnownBeginning | None:
        """Return the longest known beginning of a body, of which the beginnings of known lengths are hashed."""
        head, found = body[:HEAD], None
        for length, hasher in hashes:
            place = self._places.get((head, _BeginningKey(length, hasher.digest())))
            if place is not None:
                found = KnownBeginning(place, hasher.copy())
        if found is not None and id(found.place.conversation) in self._memory.kept:
            self._memory.kept.move_to_end(id(found.place.conversation))
        return found

    @property
    def has_view(self) -> bool:
        """True if any of these conversations was compacted."""
        return any(kept.live is self and kept.conversation.view is not None for kept in self._memory.kept.values())

    def at(self, mark: bytes) -> BodyPlace | None:
        """Return the conversation that was at a place lately, by the id that its client finds it by."""
        return self._nodes.get(mark)

    def keep(
        self,
        body: bytes,
        conversation: LiveConversation,
        places: dict[int, BodyPlace],
        found: KnownBeginning | None = None,
        hashes: Iterable[Hashed] | None = None,
    ) -> None:
        """Remember a body, with the places at the ends of some entries by their number.

        If a beginning was found, all these entries come after it. For a large body, the hashes of the remembered
        lengths are given.
        """
        self.forget(conversation)
        head, numbers = body[:HEAD], kept_lengths(conversation, places)
        keys: list[_BeginningKey] = []
        known = (sha256(), 0) if found is None else (found.hasher, conversation.ends[found.place.number - 1])
        for length, hasher in hash_beginnings(body, numbers, *known) if hashes is None else hashes:
            number = numbers[length]
            key = _BeginningKey(length, hasher.digest())
            keys.append(key)
            self._places[head, key] = places[number]
            self._nodes[places[number].mark] = places[number]
            insort(self._heads.setdefault(head, []), length)
        if not keys:
            return
        memory, weight = self._memory, conversation.weight
        memory.kept[id(conversation)] = _KeptBody(self, conversation, head, keys, weight)
        memory.size += weight
        while memory.size > memory.most and len(memory.kept) > 1:
            oldest = next(iter(memory.kept.values()))
            oldest.live.forget(oldest.conversation)

    def forget(self, conversation: LiveConversation) -> None:
        """Drop a conversation."""
        gone = self._memory.kept.pop(id(conversation), None)
        if gone is None:
            return
        self._memory.size -= gone.weight
        lengths = self._heads[gone.head]
        for key in gone.keys:
            del lengths[bisect_left(lengths, key.length)]
            place = self._places.get((gone.head, key))
            if place is not None and place.conversation is conversation:
                del self._places[gone.head, key]
                if (
                    known_there := self._nodes.get(place.mark)
                ) is not None and known_there.conversation is conversation:
                    del self._nodes[place.mark]
        if not lengths:
            del self._heads[gone.head]


def unplaced(read: Read, sender: Sender) -> LiveConversation:
    """Return the conversation of a whole body whose place in the store is not known yet."""
    lead = count_leading(read.entries)
    ends = array("Q", [entry.end for entry in read.entries])
    found = LiveConversation(read.beginning(), lead, ends, array("Q", bytes(8 * len(ends))), Branch(0, b"", 0), None)
    found.sender = sender
    return found


def apply_view(store: Store, dialect: Dialect, conversation: LiveConversation) -> AppliedView | None:
    """Return the view in force for a conversation in the bytes of an API; None if everything is sent as it came."""
    seen = see(store, conversation.branch)
    if seen.view_id is None:
        return None
    _, cover = store.view_items(conversation.branch)
    tail = [piece for piece in seen.sent if piece.message is not None and piece.from_depth >= cover]
    own = seen.messages[len(seen.system.messages()) : len(seen.messages) - len(tail)]
    covers = max(conversation.lead, bisect_left(conversation.depths, cover) + 1)
    reached = conversation.depths[covers - 1] if covers <= len(conversation.depths) else conversation.branch.depth
    inside = [piece.message for piece in tail if piece.to_depth <= reached and piece.message is not None]
    entries = dialect.entries_of([*own, *inside])
    if not entries:
        return None
    data, ends = _list_entries(entries)
    edits = _edits(seen, dialect, conversation, reached)
    return AppliedView(seen.view_id, covers, data, ends, seen.system.suffix, edits)


def _list_entries(entries: Sequence[Any]) -> tuple[bytes, tuple[int, ...]]:
    """Return entries as they stand in a list, and where each of them ends."""
    written = [dump_json(entry) for entry in entries]
    return b",".join(written), tuple(at + number for number, at in enumerate(accumulate(map(len, written))))


def _edits(seen: SeenContext, dialect: Dialect, conversation: LiveConversation, reached: int) -> dict[int, bytes]:
    """Return the entries after the view whose thinking belongs to another view and is taken out."""
    if not dialect.binds_thinking:
        return {}
    changed: dict[int, list[ViewPiece]] = {}
    for given, sent in zip(seen.pieces, seen.sent, strict=True):
        if given.message is not sent.message and sent.to_depth > reached:
            changed.setdefault(bisect_left(conversation.depths, sent.to_depth), []).append(sent)
    found: dict[int, bytes] = {}
    for number in changed:
        low, high = (conversation.depths[number - 1] if number else 0), conversation.depths[number]
        said = [one.message for one in seen.sent if low < one.to_depth <= high and one.message is not None]
        entries = dialect.entries_of(said)
        if len(entries) == 1:
            found[number] = dump_json(entries[0])
    return found


def with_view(body: bytes, read: Read, dialect: Dialect, conversation: LiveConversation, view: AppliedView) -> Draft:
    """Return a body with a view in the place of the entries that it covers."""
    changes: list[Change] = []
    begin, after = (
        conversation.ends[conversation.lead - 1] if conversation.lead else read.start,
        conversation.ends[view.covers - 1],
    )
    ends = list(conversation.ends[: conversation.lead])
    data, places = view.data, view.ends
    if view.note is not None:
        leading, change = dialect.add_note(body, read, _leading(body, read, conversation), view.note)
        if leading is not None:
            noted, noted_ends = _list_entries(leading)
            changes.append((read.start, begin, noted))
            ends = [read.start + place for place in noted_ends]
        if change is not None:
            changes.append(change)
    if conversation.lead:
        data, places = b"," + data, tuple(place + 1 for place in places)
    last = ends[-1] if ends else read.start
    ends += [last + place for place in places]
    changes.append((begin, after, data))
    # Between two entries stands a comma and maybe space; all of it is written anew.
    cuts = ((conversation.ends[number - 1], conversation.ends[number]) for number in view.edits)
    changes += ((*cut, b"," + data) for cut, data in zip(cuts, view.edits.values(), strict=True))
    ends += _moved_ends(conversation, view, ends[-1] - after)
    return Draft(body, read.fields, read.start, conversation.ends).changed(changes, ends)


def _leading(body: bytes, read: Read, conversation: LiveConversation) -> list[Any]:
    """Return the system messages at the beginning of a body."""
    draft = Draft(body, read.fields, read.start, conversation.ends)
    return [parse_json(body[slice(*draft.entry(number))]) for number in range(conversation.lead)]


def move_view(conversation: LiveConversation, to: LiveConversation) -> AppliedView | None:
    """Return the view of a conversation for another body with the same messages; None if it cannot be cut there."""
    if conversation.view is None:
        return None
    numbers = {
        number: _number_at(to, conversation.depths[number])
        for number in (conversation.view.covers - 1, *conversation.view.edits)
    }
    covers = numbers[conversation.view.covers - 1]
    if covers is None:
        return None
    edits = {at: data for number, data in conversation.view.edits.items() if (at := numbers[number]) is not None}
    return replace(conversation.view, covers=covers + 1, edits=edits)


def _number_at(conversation: LiveConversation, depth: int) -> int | None:
    number = bisect_left(conversation.depths, depth)
    return number if number < len(conversation.depths) and conversation.depths[number] == depth else None


def _moved_ends(conversation: LiveConversation, view: AppliedView, shift: int) -> Iterator[int]:
    """Yield the ends of the entries after a view, also of those that are sent in another form."""
    for number in range(view.covers, len(conversation.ends)):
        if number in view.edits:
            shift += 1 + len(view.edits[number]) - (conversation.ends[number] - conversation.ends[number - 1])
        yield conversation.ends[number] + shift
