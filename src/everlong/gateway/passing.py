"""One request on its way through the gateway, and what is known of it."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from everlong.gateway.account import REQUEST_ID, Account, account_of
from everlong.gateway.encodings import is_compressed
from everlong.gateway.spool import AWAY
from everlong.gateway.structure import encoding_of

if TYPE_CHECKING:
    from aiohttp import web

    from everlong.gateway.answering import Answering
    from everlong.gateway.budget import Charge
    from everlong.gateway.cache_watch import Sent
    from everlong.gateway.dialects import Dialect
    from everlong.gateway.engines import HostedEngine
    from everlong.gateway.routing import Route
    from everlong.gateway.visits import Visit, Visits

__all__ = ["AGAIN_SECONDS", "AWAY_SECONDS", "WARNING", "Passing", "header_text"]

AWAY_SECONDS = 20.0
"""So long a request that the upstream finds too long waits for a database that is away."""
AGAIN_SECONDS = 0.2
WARNING = "x-everlong-warning"
"""The header that says what of ours went wrong."""


@dataclass(slots=True)
class Passing:
    """A request on its way through."""

    request: web.Request
    dialect: Dialect
    route: Route
    body: bytes
    visits: Visits
    visit: Visit | None = None
    answering: Answering | None = None
    """The way back of the newest attempt."""
    sent_body: bytes | None = None
    """The body that went upstream last."""
    warning: str = ""
    sent: Sent | None = None
    """What of its conversation went upstream last."""
    hidden: frozenset[str] = frozenset()
    """The names of the tools that the gateway offers with it and answers itself."""
    engine: HostedEngine | None = None
    """The context engine of its conversation, where the user chose one that is not built in."""
    is_over: bool = False
    """Whether it is known what came of it."""
    is_rewritten: bool = False
    """Whether the body is another one than came, which is in no encoding."""
    is_unstored: bool = False
    """Whether the database was away when it came."""
    noted: int | None = None
    """The number of its entry in the journal, where the database was away."""
    is_unread: bool = False
    """Whether it cannot be read here."""
    aside: Charge | None = None
    """What a summary on its behalf costs a key that may spend only so much."""
    account: Account = field(init=False)

    def __post_init__(self) -> None:
        self.account = account_of(self.request)

    @property
    def encoding(self) -> str:
        """The encoding that the body is in, if it still is."""
        encoding = encoding_of(self.request.headers)
        return encoding if is_compressed(self.body, encoding) else ""

    @property
    def extra(self) -> dict[str, str]:
        """Headers of our own on the answer."""
        own = {REQUEST_ID: self.account.id}
        return own | {WARNING: self.warning} if self.warning else own

    async def stored(self, visit: Visit, seconds: float = 0.0) -> None:
        """Wait until the request is stored, or cannot be; for a database that is away, at most so many seconds."""
        clock = asyncio.get_running_loop().time
        until = clock() + seconds
        while True:
            begun = self.visits.begin(visit)
            await asyncio.wait([begun])
            is_away = not begun.cancelled() and isinstance(begun.exception(), AWAY)
            if not is_away or clock() >= until:
                return
            await asyncio.sleep(AGAIN_SECONDS)


def header_text(text: str) -> str:
    """A text as it may stand in a header."""
    return text.encode("ascii", "replace").decode().replace("\n", " ").replace("\r", " ")[:300]
