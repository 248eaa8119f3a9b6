"""What a wrapped program did at the gateway, told in one line when it ends."""

from __future__ import annotations

import http.client
import re
from collections import Counter
from contextlib import closing
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from everlong.cli.sessions_common import counted
from everlong.cli.usage import money
from everlong.gateway.logs import Log

if TYPE_CHECKING:
    from everlong.cli.clients import Client
    from everlong.config import Settings
    from everlong.gateway.account import Account
    from everlong.store import Store

__all__ = ["SessionLog", "Tally", "cost_without", "read_metrics", "tell", "why_nothing_came"]

_CONVERSATIONS = frozenset({"messages", "chat", "responses"})
_SECONDS = 2.0


@dataclass(slots=True)
class Tally:
    """Requests that went through a gateway, in numbers."""

    requests: int = 0
    failed: int = 0
    compactions: int = 0
    prompt_tokens: int = 0
    cache_read: int = 0
    dollars: Decimal = Decimal(0)

    def minus(self, before: Tally) -> Tally:
        """Return what was added since an earlier tally."""
        return Tally(
            self.requests - before.requests,
            self.failed - before.failed,
            self.compactions - before.compactions,
            self.prompt_tokens - before.prompt_tokens,
            self.cache_read - before.cache_read,
            self.dollars - before.dollars,
        )


class SessionLog(Log):
    """A log that also remembers the conversations of its requests; it writes where ``log`` writes."""

    def __init__(self, log: Log) -> None:
        super().__init__(None)
        self._log = log
        self._requests: Counter[str] = Counter()

    @property
    def sessions(self) -> list[str]:
        """The conversations, those with the most requests first."""
        return [session for session, _ in self._requests.most_common()]

    def request(self, account: Account) -> None:
        """Remember the conversation of a request, and log it."""
        self._log.request(account)
        if account.route in _CONVERSATIONS and account.session is not None:
            self._requests[account.session] += 1

    def say(self, level: str, event: str, **fields: object) -> None:
        """Log something else."""
        self._log.say(level, event, **fields)

    def close(self) -> None:
        """Write what is left."""
        self._log.close()


_LINE = re.compile(r"^everlong_(\w+?)_total(?:\{([^}]*)\})? (\S+)$", re.MULTILINE)
_LABEL = re.compile(r'(\w+)="([^"]*)"')


def read_metrics(address: str) -> Tally | None:
    """Return what a gateway has counted so far for all of its clients; None where it does not tell."""
    parts = urlsplit(address)
    try:
        with closing(http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=_SECONDS)) as connection:
            connection.request("GET", "/metrics")
            text = connection.getresponse().read(1_000_000).decode("utf-8", "replace")
    except (OSError, http.client.HTTPException):
        return None
    tally = Tally()
    for name, inside, number in _LINE.findall(text):
        labels, value = dict(_LABEL.findall(inside)), Decimal(number)
        if name == "requests" and labels.get("route") in _CONVERSATIONS:
            tally.requests += int(value)
            tally.failed += int(value) * _is_failure(int(labels.get("status", "0")))
        elif name == "compactions" and labels.get("outcome") == "compacted":
            tally.compactions += int(value)
        elif name == "dollars":
            tally.dollars += value
        elif name == "tokens" and labels.get("kind") != "output":
            tally.prompt_tokens += int(value)
            tally.cache_read += int(value) if labels.get("kind") == "cache_read" else 0
    return tally


def _is_failure(status: int) -> bool:
    return status >= 400 and status != 499  # a client that hangs up wanted that


def cost_without(store: Store, settings: Settings, sessions: list[str], since: float) -> tuple[Decimal, Decimal] | None:
    """Return what the calls of conversations cost, and an estimate of what they would have cost without compactions.

    None where that is not known: a call has no price, or no compaction spared anything.
    """
    from everlong.agent.accounting import account  # noqa: PLC0415 - only where something was compacted

    paid = without = Decimal(0)
    roots = {store.conversations.find(session).parts[0] for session in sessions}
    for name, one in account(store, settings, by="session", since=since).groups.items():
        if name not in roots:
            continue
        if one.unpriced_calls:
            return None
        paid += one.cost
        without += one.cost + one.unsent.cost - one.rewritten.cost - one.kinds["summary"].cost
    return (paid, without) if paid != without else None


def tell(
    tally: Tally, amounts: tuple[Decimal, Decimal] | None = None, session: str | None = None, *, is_shared: bool = False
) -> str:
    """Return the line that says what a program did at the gateway."""
    parts = [counted(tally.requests, "request")]
    if tally.failed:
        parts.append(f"{tally.failed:,} failed")
    parts.append(counted(tally.compactions, "compaction"))
    if tally.prompt_tokens:
        parts.append(f"{100 * tally.cache_read // tally.prompt_tokens} % from cache")
    if amounts is not None:
        parts.append(f"{money(amounts[0])} instead of an estimated {money(amounts[1])}")
    elif tally.dollars:
        parts.append(money(tally.dollars))
    line = ", ".join(parts)
    if is_shared:
        line += " (all clients of the gateway in this time)"
    if session is not None:
        line += f"; everlong sessions show {session}"
    return line


def why_nothing_came(client: Client | None, program: str) -> str:
    """Return why no request may have come through, and what to do."""
    if client is None:
        return (
            f"no request of {program} came through the gateway: it asked no model, or reads neither "
            "OPENAI_BASE_URL nor ANTHROPIC_BASE_URL; look for a base URL in its own settings (see docs/clients.md)"
        )
    return (
        f"no request of {client.title} came through the gateway: it asked no model, or uses another provider than "
        f"OpenAI and Anthropic; `everlong setup {client.name}` shows what its own file must say"
    )
