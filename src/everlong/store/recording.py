"""The recording of lists: hash a list, find what is known, write the rest, and retry if another process was quicker.

The tree's own rules are in `everlong.store.tree`; this module drives them for whole lists and for what is appended.
"""

from __future__ import annotations

import hashlib
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple

from sqlalchemy import Connection, select

from everlong.model import HashChain, Message, Node, Trace, leading_system_count
from everlong.store.cleared_results import carry, view_to_carry
from everlong.store.content import blob, encoded
from everlong.store.database import TryAgain
from everlong.store.recognition import Recognizer
from everlong.store.schema import branch
from everlong.store.tree import BATCH, Aside, Branch, Match, NewMessage, RecordRequest, find_deepest

if TYPE_CHECKING:
    from everlong.store.core import StoreCore

MOST_BLOCKS = 100_000
"""The most blocks whose ids are kept, of all lists together: about 15 MB."""

LEAST = 32
"""The fewest messages of a list that is kept: shorter ones are hashed as quickly as they are looked up."""

_MESSAGES_AT_ONCE = 128
"""Messages that are turned into bytes together; more would not stay in the processor's cache."""


Times = Sequence[float] | None
Tokens = Sequence[int | None] | None


class Recording:
    """The recording of lists into one store."""

    def __init__(self, core: StoreCore, recognizer: Recognizer) -> None:
        self._core = core
        self._recognizer = recognizer
        self._database = core.database
        self.checkpoints = Checkpoints(core.chain)

    def whole(
        self,
        given: list[Message],
        tools: Sequence[dict[str, Any]] | None,
        times: Times,
        tokens: Tokens,
        ext_id: str | None,
        known: Trace | None = None,
        conversation: str = "",
    ) -> Branch:
        """Record a conversation from its first message on, with the system messages that it is sent with."""
        core = self._core
        lead = leading_system_count(given)
        said = given[lead:]
        preamble = None
        if lead or tools:
            sent = {"system": [core.cleaned(one) for one in given[:lead]], "tools": list(tools) if tools else None}
            preamble = blob(core.tenant, encoded(sent))
        if known is not None and len(known.ends) != len(said):  # of another list
            known = None
        if known is None and not self._database.in_batch:  # what is imported in a batch does not come again soon
            known = self.checkpoints.traced(said, core.cleaned)
        root = core.chain.root(conversation)
        if conversation and known is not None:
            known = Trace(core.chain.rechain(said, known, root.id), known.blocks, known.ends)
        request = RecordRequest(
            core.chain,
            root,
            said,
            times[lead:] if times else [time.time()] * len(said),
            tokens[lead:] if tokens else [None] * len(said),
            preamble=preamble,
            ext_id=ext_id,
            clean=core.cleaned,
            known=known,
            root=root.id if conversation else None,
        )
        return self._record(request) if conversation else self._record_recognised(request)

    def after(self, to: Branch, said: list[Message], times: Times, tokens: Tokens) -> Branch:
        """Record messages that follow a place."""
        request = RecordRequest(
            self._core.chain,
            to.node,
            said,
            times or [time.time()] * len(said),
            tokens or [None] * len(said),
            to.id,
            clean=self._core.cleaned,
        )
        return self._record(request)

    def _record_recognised(self, request: RecordRequest) -> Branch:
        """Record a list that is known by its words, also where its conversation has a root of its own."""
        recognizer, own = self._recognizer, request.trace.ids
        with self._database.read() as connection:
            candidates = recognizer.find(connection, request)
            at_root = next((one for one in candidates if one.id == own[one.blocks - 1]), None)
            found = at_root or max(candidates, key=lambda one: one.branch, default=None)
            is_new = found is None or found.blocks < len(own)
            is_changed = is_new and recognizer.may_find_more(connection, request, found)
        if is_changed:
            more = self._database.write(lambda connection: recognizer.find_more(connection, request, found))
            if more is not None:
                return self._record(request.rebased(more.blocks, more.match))
        if found is None or at_root is not None:
            return self._record(request)
        return self._record(request.rebased(found.blocks, found.match))

    def _record(self, request: RecordRequest) -> Branch:
        if request.start_branch is not None and request.base is None and request.trace.ids:
            # What follows the end of a branch is new as a rule; what is known already shows when it is written.
            try:
                return self._write(request, Match(request.start_branch, request.start.id, request.start.depth))
            except TryAgain:
                pass
        with self._database.read() as connection:
            match = find_deepest(connection, self._database, request)
            if match.branch is not None and _is_known(connection, request, match):
                return Branch(match.branch, match.id, match.depth)

        def write(attempt: int) -> Branch:
            nonlocal match
            if attempt:
                with self._database.read() as connection:
                    match = find_deepest(connection, self._database, request)
            return self._write(request, match)

        return self._database.retry(write)

    def _write(self, request: RecordRequest, match: Match, at_once: int | None = BATCH) -> Branch:
        now = time.time()
        waiting = request.additions(match.depth)
        while True:
            batch = list(islice(waiting, at_once))
            try:
                done = self._database.write(partial(self._write_batch, request, match, batch, now))
            except _MustWriteAll:
                return self._write(request, match, None)
            if at_once is None or len(batch) < at_once:
                return done
            match = Match(done.id, done.head, done.depth)

    def _write_batch(
        self,
        request: RecordRequest,
        match: Match,
        batch: list[tuple[NewMessage, list[Aside]]],
        now: float,
        connection: Connection,
    ) -> Branch:
        done = self._core.recorder.add(request, match, batch, now, connection)
        if done.id != match.branch and (carried := view_to_carry(self._core, connection, request, match)):
            if done.depth < carried.saw_depth:
                raise _MustWriteAll
            carry(self._core, connection, carried, done)
        return done


class _MustWriteAll(Exception):  # noqa: N818 - a signal inside this module
    """A sign that all messages must be written at once: a fork and its carried view come together or not at all."""


def _is_known(connection: Connection, request: RecordRequest, match: Match) -> bool:
    if match.depth < request.start.depth + len(request.trace.ids):
        return False
    if request.preamble is None and not request.asides_at(match.depth):
        return True
    row = connection.execute(select(branch.c.head, branch.c.preamble).where(branch.c.id == match.branch)).first()
    if row is None or bytes(row.head) != match.id:
        return True
    return not request.asides_at(match.depth) and (request.preamble is None or row.preamble == request.preamble.digest)


class _CheckpointKey(NamedTuple):
    first: bytes
    length: int
    digest: bytes


class _Checkpoint(NamedTuple):
    trace: Trace
    base: _CheckpointKey | None
    """The checkpoint from which this one grew."""


class Checkpoints:
    """The last lists that were hashed; ``most_blocks`` of 0 keeps none, ``least`` is the shortest that is kept."""

    def __init__(self, chain: HashChain, most_blocks: int = MOST_BLOCKS, least: int = LEAST) -> None:
        self._chain = chain
        self._most = most_blocks
        self._least = least
        self._kept: OrderedDict[_CheckpointKey, _Checkpoint] = OrderedDict()
        self._blocks = 0
        self._lock = threading.Lock()

    @property
    def blocks(self) -> int:
        """The number of blocks whose ids are kept."""
        return self._blocks

    def traced(self, messages: Sequence[Message], clean: Callable[[Message], Message]) -> Trace:
        """Return the hash chain over a whole conversation, each message cleaned before it is hashed."""
        if not self._least <= len(messages) <= self._most // 2:
            return self._chain.trace(map(clean, messages))
        first = hashlib.blake2b(encoded(messages[0]), digest_size=16).digest()
        known, key = self._find_longest(first, messages)
        base = self._use(known)
        if base is not None and known is not None and known.length == len(messages):
            return base.trace
        trace = self._extend(base, messages[known.length if base is not None and known is not None else 0 :], clean)
        self._keep(key, _Checkpoint(trace, known if base is not None else None))
        return trace

    def _find_longest(self, first: bytes, messages: Sequence[Message]) -> tuple[_CheckpointKey | None, _CheckpointKey]:
        """Return the key of the longest kept list with which this one begins, and the key of this one."""
        with self._lock:
            kept = {key for key in self._kept if key.first == first and key.length <= len(messages)}
        hasher = hashlib.sha256()  # quicker than others on most machines, and no two lists share one
        place, found = 0, None
        for length in sorted({key.length for key in kept} | {len(messages)}):
            while place < length:
                end = min(length, place + _MESSAGES_AT_ONCE)
                part = memoryview(encoded(messages[place:end]).lstrip())
                hasher.update(part[1:-1])  # the same bytes, wherever a list is cut
                hasher.update(b",")
                place = end
            key = _CheckpointKey(first, length, hasher.copy().digest())
            if key in kept:
                found = key
        return found, key

    def _use(self, key: _CheckpointKey | None) -> _Checkpoint | None:
        with self._lock:
            if key is None or key not in self._kept:  # another thread may have let it go meanwhile
                return None
            self._kept.move_to_end(key)
            return self._kept[key]

    def _extend(self, base: _Checkpoint | None, rest: Sequence[Message], clean: Callable[[Message], Message]) -> Trace:
        if base is None:
            return self._chain.trace(map(clean, rest))
        before = base.trace
        count = len(before.ids)
        start = Node(before.ids[-1], count) if count else self._chain.root()
        more = self._chain.trace(map(clean, rest), start)
        ends = [*before.ends, *(count + end for end in more.ends)]
        return Trace([*before.ids, *more.ids], [*before.blocks, *more.blocks], ends)

    def _keep(self, key: _CheckpointKey, made: _Checkpoint) -> None:
        if len(made.trace.ids) > self._most // 2:
            return
        with self._lock:
            self._drop(key)
            base = self._kept.get(made.base) if made.base is not None else None
            if base is not None and base.base is not None:  # of one conversation the last two lengths are enough
                self._drop(base.base)
            self._kept[key] = made
            self._blocks += _size(made)
            while self._blocks > self._most:
                self._drop(next(iter(self._kept)))

    def _drop(self, key: _CheckpointKey) -> None:
        gone = self._kept.pop(key, None)
        if gone is not None:
            self._blocks -= _size(gone)


def _size(kept: _Checkpoint) -> int:
    return max(len(kept.trace.ids), len(kept.trace.ends))
