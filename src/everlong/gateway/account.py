"""The account of one request: who sent it, what it asked for, how it ended.

The handlers fill it in; metrics, logs and traces read it when the request is over. It holds no content.
"""

from __future__ import annotations

import re
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from aiohttp import web

from everlong.gateway.bounds import HeldMemory

if TYPE_CHECKING:
    from everlong.caching.misses import Miss
    from everlong.gateway.auth import Caller
    from everlong.gateway.budget import Charge
    from everlong.providers.base import Usage

__all__ = ["ACCOUNT", "REQUEST_ID", "RequestAccount", "account_of", "request_id"]

REQUEST_ID = "x-everlong-request-id"
"""The header of an answer that names its request."""
_GIVEN = re.compile(r"[A-Za-z0-9._:-]{1,128}")


@dataclass(slots=True)
class RequestAccount:
    """The account of one request."""

    id: str
    method: str = ""
    path: str = ""
    route: str = "other"
    """The endpoint, by the gateway's own name for it."""
    caller: Caller | None = None
    folder: str | None = None
    """The folder that its client works in, where the path names it."""
    program: str | None = None
    """The client's own name, where the path has it; its headers may only name the SDK."""
    started: float = field(default_factory=time.time)
    """Seconds since 1970."""
    begun: float = field(default_factory=time.perf_counter)
    status: int = 0
    received: int = 0
    """Bytes of the request's body."""
    sent: int = 0
    """Bytes of the answer's body."""
    api: str = ""
    provider: str = ""
    model: str = ""
    session: str | None = None
    branch: int | None = None
    compactions: list[str] = field(default_factory=list)
    """Reasons of the compactions that were made for it."""
    opted_out: bool = False
    """True if its client wants nothing changed or stored."""
    usage: Usage | None = None
    miss: Miss | None = None
    """The part of the prompt that was not read from the provider's cache, and the reason."""
    held: HeldMemory = field(default_factory=HeldMemory)
    """The memory that its body and its answer take."""
    charge: Charge | None = None
    """The charge for a key that may spend only so much."""
    cost: float = 0.0
    """US dollars."""
    problem: str = ""
    """The class of an error in the gateway."""

    def note_usage(self, cost: Callable[[str, Usage], float], *used: Usage) -> None:
        """Note the usage of its answers, of which all but the last only looked something up, and what they cost."""
        self.usage = sum(used[1:], used[0])
        dollars = [cost(self.model, one) for one in used]
        self.cost = sum(dollars)
        if self.charge is not None:
            self.charge.told(*dollars)

    @property
    def tenant(self) -> str:
        """The tenant whose conversations it reaches; empty if it was not let in."""
        return self.caller.tenant if self.caller is not None else ""

    @property
    def spoken(self) -> frozenset[str]:
        """The headers that held a key of the gateway."""
        return self.caller.spoken if self.caller is not None else frozenset()

    @property
    def seconds(self) -> float:
        """Seconds since it began."""
        return time.perf_counter() - self.begun


ACCOUNT = web.RequestKey("account", RequestAccount)
"""The key under which a request has its account."""


def account_of(request: web.Request) -> RequestAccount:
    """Return the account of a request; a new one if the request has none."""
    found = request.get(ACCOUNT)
    return found if found is not None else RequestAccount(request_id(None))


def request_id(given: str | None) -> str:
    """Return the id that a client gave if it is printable; otherwise a new one."""
    if given and _GIVEN.fullmatch(given):
        return given
    return f"req_{secrets.token_hex(12)}"
