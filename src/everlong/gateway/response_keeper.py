"""What the gateway does with the store for the Responses API: a request follows the reply that it names.

The reply is read from the store, so nobody has to keep it in memory. Runs in worker threads and blocks.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from everlong.errors import StoreUnavailable
from everlong.gateway.dialects import OPENAI
from everlong.gateway.items import Asked
from everlong.gateway.keeper import Keeper
from everlong.store.tree import Branch

if TYPE_CHECKING:
    from everlong.gateway.spool import Spooled
    from everlong.model import Message
    from everlong.store import Store
    from everlong.store.turns import Turn

__all__ = ["RESPONSES_API", "ResponseKeeper"]

RESPONSES_API = "responses"
"""What the journal calls this API."""


class ResponseKeeper(Keeper):
    """Keeps the conversations of one tenant that come in by the Responses API."""

    def __init__(self, store: Store) -> None:
        super().__init__(store, OPENAI)

    def asked(
        self, said: Asked, hint: str | None, awaited: Mapping[str, float] | None = None, before: float | None = None
    ) -> Branch:
        """Store what a request says where it belongs.

        Args:
            said: the request.
            hint: the client's name for the conversation.
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
                return self._after(found, [reply, *said.messages])
        return self.store.record([*said.system, *said.messages], tools=said.tools, ext_id=hint)

    def _after(self, turn: Turn, messages: list[Message]) -> Branch:
        return self.store.append(Branch(turn.branch, turn.node, turn.depth), messages)

    def replayed(self, entry: Spooled) -> None:
        """Store what had to wait for the database, unless it is there."""
        known = (self.store.turns.named(name) for name in entry.names)
        if not any(turn is not None and turn.began == entry.began for turn in known):
            super().replayed(entry)

    def _place_of(self, entry: Spooled) -> Branch:
        if entry.body is not None:
            return self.asked(Asked.read(entry.body), entry.hint, before=entry.began)
        if entry.at is None:
            return super()._place_of(entry)
        return Branch(entry.at[0], bytes.fromhex(entry.at[1]), entry.at[2])  # there is a turn already, which was begun
