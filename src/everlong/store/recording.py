"""The recording of lists: hash a list, find what is known, write the rest, and retry if another process was quicker.

The tree's own rules are in `everlong.store.tree`; this module drives them for whole lists and for what is appended.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any

from sqlalchemy import Connection, select

from everlong.model import Message, Trace, check_messages, is_system, list_messages
from everlong.store.content import blob, encoded
from everlong.store.database import TryAgain
from everlong.store.identity.cleared_results import carry, view_to_carry
from everlong.store.schema import branch
from everlong.store.tree import BATCH, Aside, Branch, Match, NewMessage, RecordRequest, find_deepest

if TYPE_CHECKING:
    from everlong.store.core import StoreCore
    from everlong.store.identity import Identity

Times = Sequence[float] | None
Tokens = Sequence[int | None] | None


class Recording:
    """The recording of lists into one store."""

    def __init__(self, core: StoreCore, identity: Identity) -> None:
        self._core = core
        self._identity = identity
        self._database = core.database

    def whole(
        self,
        messages: Iterable[Message],
        tools: Sequence[dict[str, Any]] | None,
        times: Times,
        tokens: Tokens,
        ext_id: str | None,
        known: Trace | None = None,
        conversation: str = "",
    ) -> Branch:
        """Record a conversation from its first message on, with the system messages that it is sent with."""
        core = self._core
        given: list[Any] = list_messages(messages)
        lead = next((at for at, one in enumerate(given) if not isinstance(one, dict) or not is_system(one)), len(given))
        check_messages(given[:lead])
        said: list[Message] = given[lead:]
        root = core.chain.root(conversation)
        if known is not None and len(known.ends) != len(said):  # of another list
            known = None
        if known is None and not self._database.in_batch:  # what is imported in a batch does not come again soon
            known = core.checkpoints.traced(said, core.cleaned, root, skip=lead)
        else:
            check_messages(said, lead)
            if conversation and known is not None:
                known = Trace(core.chain.rechain(said, known, root.id), known.blocks, known.ends)
        preamble = None
        if lead or tools:
            sent = {"system": [core.cleaned(one) for one in given[:lead]], "tools": core.cleaned_tools(tools)}
            preamble = blob(core.tenant, encoded(sent))
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
        return self._record(request) if conversation else self._record(*self._identity.resolve(request))

    def after(self, to: Branch, said: list[Message], times: Times) -> Branch:
        """Record messages that follow a place."""
        request = RecordRequest(
            self._core.chain,
            to.node,
            said,
            times or [time.time()] * len(said),
            [None] * len(said),
            to.id,
            clean=self._core.cleaned,
        )
        return self._record(request)

    def _record(self, request: RecordRequest, match: Match | None = None) -> Branch:
        """Record a list after the deepest known node, which is looked for if it is not given."""
        if request.start_branch is not None and request.base is None and request.trace.ids:
            # What follows the end of a branch is new as a rule; what is known already shows when it is written.
            try:
                return self._write(request, Match(request.start_branch, request.start.id, request.start.depth))
            except TryAgain:
                pass
        if match is None:
            with self._database.read() as connection:
                match = find_deepest(connection, self._database, request)
                if match.branch is not None and _is_known(connection, request, match):
                    return Branch(match.branch, match.id, match.depth)

        def write(attempt: int) -> Branch:
            nonlocal match
            if attempt or match is None:
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
        is_fork = match.branch is not None and done.id != match.branch
        if is_fork and (carried := view_to_carry(self._core, connection, request, match)):
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
