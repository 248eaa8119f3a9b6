"""What the gateway does with the store for the Responses API: a request follows the reply that it names.

The reply is read from the store, so nobody has to keep it in memory. Runs in worker threads and blocks.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from everlong.errors import NotStored, StoreUnavailable
from everlong.gateway.clients import folder_in, looks_aside
from everlong.gateway.dialects import OPENAI
from everlong.gateway.items import Asked as Said
from everlong.gateway.keeper import Keeper
from everlong.model import Node, text_of
from everlong.store.content import blob, encoded
from everlong.store.past_turns import storable
from everlong.store.stateless import Asked, Placed, Sender
from everlong.store.tree import Branch

if TYPE_CHECKING:
    from everlong.gateway.spool import Spooled
    from everlong.model import Message
    from everlong.store import Store

__all__ = ["RESPONSES_API", "ResponseKeeper"]

RESPONSES_API = "responses"
"""What the journal calls this API."""


class ResponseKeeper(Keeper):
    """Keeps the conversations of one tenant that come in by the Responses API."""

    def __init__(self, store: Store) -> None:
        super().__init__(store, OPENAI)

    def asked(
        self, said: Said, sender: Sender, awaited: Mapping[str, float] | None = None, before: float | None = None
    ) -> Placed:
        """Store what a request says where it belongs.

        Args:
            said: the request.
            sender: who sends it.
            awaited: when the turns were begun whose replies had these names last, where somebody remembers it.
                `StoreUnavailable` says that one that the request follows is not in the database yet.
            before: of turns in a conversation that the upstream keeps, it can only follow those begun earlier.
        """
        for name in said.follows:
            found = self.store.turns.named(name, before=before if name == said.conversation else None)
            if awaited and name in awaited and (found is None or found.began < awaited[name]):
                raise StoreUnavailable(f"the reply {name!r} that a request follows is not in the database yet")
            reply = None if found is None else self.store.turns.reply(found.id)
            if found is not None and reply is not None:
                at = Branch(found.branch, found.node, found.depth)
                with suppress(NotStored):
                    return self._placed(said, sender, [reply, *said.messages], at)
        return self._placed(said, sender, list(said.messages))

    def count_new(self, said: Said) -> int:
        """Count the blocks of a request that are not stored yet, or are repeated after a reply that it follows."""
        store = self.store
        trace = store.chain.trace(map(store.cleaned, said.messages), None)
        return len(trace.ids) if said.follows else store.stateless.count_unknown(trace)

    def _placed(self, said: Said, sender: Sender, messages: list[Message], at: Branch | None = None) -> Placed:
        store = self.store
        mark = b"" if at is None else store.stateless.mark_of(at)
        trace = store.chain.trace(map(store.cleaned, messages), None if at is None else Node(mark, at.depth))
        preamble = None
        if said.system or said.tools:
            told = {"system": list(map(store.cleaned, said.system)), "tools": said.tools or None}
            preamble = blob(store.tenant, encoded(told))
        system = "\n".join(map(text_of, said.system))
        about = replace(
            sender,
            model=storable(said.model) or None,
            folder=folder_in(system, messages),
            is_aside=looks_aside(has_tools=bool(said.tools), max_tokens=0, system_text=system, messages=messages),
        )
        return store.stateless.place(Asked(messages, trace, about, preamble, at, mark))

    def replayed(self, entry: Spooled) -> None:
        """Store what had to wait for the database, unless it is there."""
        known = (self.store.turns.named(name) for name in entry.names)
        if not any(turn is not None and turn.began == entry.began for turn in known):
            super().replayed(entry)

    def _place_of(self, entry: Spooled) -> tuple[Branch, str]:
        if entry.body is not None:
            placed = self.asked(Said.read(entry.body), entry.sent_by, before=entry.began)
            return placed.at, placed.session
        if entry.at is None:
            return super()._place_of(entry)
        at = Branch(entry.at[0], bytes.fromhex(entry.at[1]), entry.at[2])  # there is a turn already, which was begun
        return at, ""
