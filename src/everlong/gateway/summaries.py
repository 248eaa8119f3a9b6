"""The choice of the summary writer: the conversation's own model, a configured one, or none.

The conversation's own model is asked with the request as it was sent and one message more, so that it reads from the
cache and the client looks to its provider as it always does. If a request does not fit, the one before it is sent
instead. The client's credentials stay in its request: in memory, for as long as the summary takes.
"""

from __future__ import annotations

import asyncio
import re
import threading
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import TimeoutError as FutureTimeoutError
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlsplit
from weakref import WeakKeyDictionary

from aiohttp import ClientError

from everlong.context.model_summary import LEAST_WINDOW, CompletionSummarizer
from everlong.context.summary_prompts import warm_ask
from everlong.errors import ConfigError, ProviderError, SummarizerError
from everlong.gateway.body import dump_json, parse_json, read_body, splice
from everlong.gateway.budget import Charge
from everlong.gateway.stream import tap_for
from everlong.gateway.upstream import whole_of
from everlong.model import calls_of, text_of, with_part_appended
from everlong.providers.auxiliary import ProviderSummarizer, summarizer_for
from everlong.providers.connection import connect
from everlong.providers.endpoints import SMALL, parameters_in
from everlong.providers.failures import classify_answer

if TYPE_CHECKING:
    from aiohttp import ClientResponse

    from everlong.config import Settings
    from everlong.context import Summarizer, SummaryRequest
    from everlong.context.summarizers import WrittenSummary
    from everlong.gateway.body import Draft
    from everlong.gateway.budget import Budget
    from everlong.gateway.formats import Dialect
    from everlong.gateway.requests import RelayedRequest
    from everlong.gateway.window import Windows
    from everlong.model import Message
    from everlong.providers.base import CallOptions, Provider, Reply, Usage
    from everlong.store import Store

__all__ = [
    "Earlier",
    "OwnSummarizer",
    "PreparedSummary",
    "Summaries",
    "earlier_request",
    "spent_by",
]

_SECONDS = 180.0
"""Seconds that a model may take for a summary."""
_DAY = 86_400.0
MOST_A_DAY = 1_000
"""Summaries in a day (UTC) that a tenant's own models are asked for: a guard against loops, not a budget."""
_MOST_REFUSAL = 100_000
"""Bytes of a refusal that is read."""

_MARKER = re.compile(rb'"cache_control"\s*:\s*(\{[^{}]*\})')

Send = Callable[["RelayedRequest", bytes, "Charge | None"], Awaitable["ClientResponse"]]


class Earlier(NamedTuple):
    """The request before one that does not fit, as it can be sent again."""

    body: bytes
    marker: Mapping[str, Any] | None = None
    """The client's cache marker behind its end, which is not in it."""


def earlier_request(dialect: Dialect, draft: Draft, lead: int) -> tuple[Draft, Mapping[str, Any] | None] | None:
    """Return a body up to the model's last words, and the marker cut off with the rest; None for a first request.

    The ``lead`` entries at its beginning are system messages.
    """
    entries = [parse_json(draft.body[slice(*draft.entry(number))]) for number in range(lead, len(draft.ends))]
    count = len(entries)
    for is_said in (False, True):
        while count and dialect.is_said(entries[count - 1]) is is_said:
            count -= 1
    if not count:
        return None
    rest = draft.body[draft.ends[lead + count - 1] : draft.ends[-1]]
    markers = _MARKER.findall(rest)
    return draft.cut(lead + count), parse_json(markers[-1]) if markers and dialect.takes_markers else None


class PreparedSummary(NamedTuple):
    """A summary that is there before its conversation is to be compacted."""

    written: WrittenSummary
    spent: float | None
    """US dollars."""
    under: int | None
    """The view under which it was written."""


class OwnSummarizer:
    """A summarizer that asks the conversation's own model, over the connection of its request."""

    name = "own model"

    def __init__(
        self,
        relayed: RelayedRequest,
        sent: Earlier,
        room: int,
        send: Send,
        windows: Windows,
        take: Callable[[], bool],
        seconds: float = _SECONDS,
    ) -> None:
        self._relayed = relayed
        self._sent = sent
        self._room = room
        self._send = send
        self._windows = windows
        self._take = take
        self._seconds = seconds
        self._loop = asyncio.get_running_loop()
        self.calls: list[SummaryCall] = []

    def summarize(self, request: SummaryRequest) -> str:
        """Ask, and wait for the answer; not in the loop's thread.

        A request without the conversation as it was sent, of a single run of turns, brings its transcript along.
        """
        if not request.prefix:
            return CompletionSummarizer(self.complete, window=self._window, name=self.name).summarize(request)
        told = warm_ask(request, request.budget_tokens)
        if request.count(told) + request.budget_tokens > self._room:
            raise SummarizerError("the conversation leaves no room in the window for its summary")
        return self._wait_for(_with_ask(self._relayed.dialect, self._sent, told))

    def complete(self, messages: list[Message], max_tokens: int) -> str:
        """Return the model's answer to a prompt of its own, without the conversation; not in the loop's thread."""
        told = "\n\n".join(text_of(message) for message in messages)
        return self._wait_for(_alone(self._relayed.dialect, self._sent.body, told, max_tokens))

    @property
    def _window(self) -> int:
        relayed = self._relayed
        model = relayed.turn.model if relayed.turn is not None else ""
        return max(LEAST_WINDOW, relayed.windows.known(model, relayed.route.provider).window)

    def _wait_for(self, body: bytes) -> str:
        if not self._take():
            raise SummarizerError(f"{MOST_A_DAY:,} summaries were asked for today, and more are not")
        asking = asyncio.run_coroutine_threadsafe(self._ask(body), self._loop)
        try:
            return asking.result(self._seconds)
        except FutureTimeoutError as error:
            asking.cancel()
            raise SummarizerError(f"no summary came within {self._seconds:g} seconds") from error

    async def _ask(self, body: bytes) -> str:
        given = self._relayed.account.charge
        charge = None if given is None else Charge(given.tenant, given.most)
        try:
            return await self._answer(body, charge)
        finally:
            if charge is not None:
                await charge.close()

    async def _answer(self, body: bytes, charge: Charge | None) -> str:
        relayed = self._relayed
        dialect = relayed.dialect
        try:
            upstream = await self._send(relayed, body, charge)
            if upstream.status != 200:
                refusal = await whole_of(upstream, _MOST_REFUSAL)
                upstream.close()
                why = classify_answer(upstream.status, refusal.data)
                raise SummarizerError(f"the upstream answered with status {upstream.status}") from why
            tap = tap_for(dialect, upstream)
            try:
                async for chunk in upstream.content.iter_any():
                    await tap.take(chunk)
            finally:
                upstream.close()  # in the middle of an answer that came too late
        except (ClientError, OSError) as error:
            raise SummarizerError(f"the upstream cannot be reached ({type(error).__name__})") from error
        reply = await tap.reply()
        if reply is None:
            raise SummarizerError(tap.otherwise)
        model = relayed.turn.model if relayed.turn is not None else ""
        spent = self._windows.cost(model, reply.usage)
        self.calls.append(SummaryCall(model, reply.usage, spent))
        if charge is not None:
            charge.told(reply.usage)
        if calls_of(reply.message):
            raise SummarizerError("the model called a tool rather than write a summary")
        return text_of(reply.message)


def _with_ask(dialect: Dialect, earlier: Earlier, told: str) -> bytes:
    """Put an ask behind the last message of a body; inside it if that is a user's, so that roles alternate.

    The prompt cached up to there stays valid. A marker on the ask has the provider look for it.
    """
    sent, marker = earlier
    read = read_body(sent, dialect.list_name)
    last = read.entries[-1] if read.entries else None
    if last is not None and dialect.list_name == "messages" and last.value.get("role") == "user":
        asking = with_part_appended(last.value, told)
        if marker is not None:
            asking["content"][-1]["cache_control"] = marker
        return splice(sent, [(last.start, last.end, dump_json(asking))])
    entries = b",".join(map(dump_json, dialect.entries_of([{"role": "user", "content": told}])))
    return splice(sent, [(read.end, read.end, b"," + entries if last is not None else entries)])


_KEPT_FIELDS = frozenset({"model", "metadata", "user", "store", "service_tier", "safety_identifier"})
"""The fields of a client's request that one on the side has too."""


def _alone(dialect: Dialect, sent: bytes, told: str, max_tokens: int) -> bytes:
    """Return a body with one message and no tools, for the model and the account of another one."""
    given = parse_json(sent)
    body = {name: value for name, value in given.items() if name in _KEPT_FIELDS}
    body[dialect.list_name] = dialect.entries_of([{"role": "user", "content": told}])
    for name in ("max_tokens", "max_completion_tokens", "max_output_tokens"):
        if name in given:
            body[name] = max_tokens
    return dump_json(body)


class Summaries:
    """The choice of summary writers, by the settings, or as they are ``given``."""

    def __init__(
        self,
        settings: Settings,
        send: Send,
        windows: Windows,
        budget: Budget,
        given: Callable[[], Summarizer | None] | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._most = MOST_A_DAY
        self._send = send
        self._windows = windows
        self._budget = budget
        self._clock = clock
        self._day, self._counts = 0, Counter[str]()
        self._lock = threading.Lock()
        self.is_own = (
            given is None and settings.gateway.summaries == "own" and not settings.auxiliary.compression.names_model
        )
        self._configured = given or (lambda: None if self.is_own else _configured(settings, windows))
        self._settings = settings
        self.asks_model = self.is_own or self._configured() is not None
        """True if a model writes them, which costs something."""

    @property
    def told(self) -> str:
        """The writer of summaries in words, for the person who starts the gateway."""
        own, chosen = self._settings.gateway, self._settings.auxiliary.compression
        if self.is_own:
            return f"each conversation's own model, with its client's credentials, at most {MOST_A_DAY:,} a day"
        if not self.asks_model:
            return "no model: they are made of the conversation's own lines"
        if not chosen.names_model:
            return f"{own.summaries}, as gateway.summaries says"
        where = "" if chosen.base_url is None else f" at {urlsplit(chosen.base_url).hostname}"
        named = ", ".join(chosen.names) or f"{chosen.provider}:{chosen.model or 'its usual model'}"
        return f"{named}{where}, as auxiliary.compression says"

    def configured(self) -> Summarizer | None:
        """Return the configured model; None if each conversation's own is asked, or none."""
        return self._configured()

    def now(
        self, relayed: RelayedRequest, earlier: Earlier | None, room: int, seconds: float = _SECONDS
    ) -> Summarizer | None:
        """Return the writer of a summary that a request waits for; None for lines of the conversation itself.

        The request before it in the conversation, if there is one, leaves so many tokens of ``room`` in the window.
        """
        if not self.is_own:
            return self._configured()
        if earlier is None or _is_small(relayed) or not self._may_ask(relayed.tenant):
            return None
        take = partial(self._take, relayed.tenant)
        return OwnSummarizer(relayed, earlier, room, self._send, self._windows, take, seconds)

    def ahead(self, relayed: RelayedRequest, room: int) -> Summarizer | None:
        """Return the writer of a summary that nobody waits for, with so many tokens left in the window."""
        if not self.is_own:
            return self._configured()
        if relayed.sent_body is None or _is_small(relayed) or not self._may_ask(relayed.tenant):
            return None
        take = partial(self._take, relayed.tenant)
        return OwnSummarizer(relayed, Earlier(relayed.sent_body), room, self._send, self._windows, take)

    def keep_receipts(self, store: Store, session: str, writer: Summarizer | None, charge: Charge | None) -> None:
        """Store a receipt for every call of a writer that is done, whatever came of it. Blocks.

        A configured model has its own key; what it costs counts against the limit of the client that it works for.
        """
        for call in calls_by(writer) or ():
            store.receipts.add(session, "summary", model=call.model, usage=call.usage.to_dict(), cost=call.cost)
            if charge is not None and not isinstance(writer, OwnSummarizer):
                self._budget.add(charge, call.cost)

    def _may_ask(self, tenant: str) -> bool:
        """Return whether a conversation's own model may be asked once more today."""
        today = int(self._clock() // _DAY)
        if today != self._day:
            self._day, self._counts = today, Counter()
        return self._counts[tenant] < self._most

    def _take(self, tenant: str) -> bool:
        """Count one more question to a conversation's own model today; False if there have been too many."""
        with self._lock:
            if not self._may_ask(tenant):
                return False
            self._counts[tenant] += 1
            return True


def _is_small(relayed: RelayedRequest) -> bool:
    """Return whether the model of a request is known to be too small to write summaries."""
    parameters = None if relayed.turn is None else parameters_in(relayed.turn.model)
    return parameters is not None and parameters < SMALL


class SummaryCall(NamedTuple):
    """A paid call of a model that wrote a summary, or tried to."""

    model: str
    usage: Usage
    cost: float
    """US dollars."""


_paid: WeakKeyDictionary[Summarizer, list[SummaryCall]] = WeakKeyDictionary()
"""The calls of configured summarizers."""


def _configured(settings: Settings, windows: Windows) -> Summarizer | None:
    """Return the model that the settings name, with its own key; None if there is none. Its real window is learned."""
    calls: list[SummaryCall] = []

    def ask(provider: Provider, messages: Sequence[Message], call: CallOptions) -> Reply:
        reply = provider.complete(messages, **call)
        model = f"{provider.name}:{provider.model}"
        calls.append(SummaryCall(model, reply.usage, windows.cost(model, reply.usage)))
        return reply

    made: Summarizer | None = None
    try:
        if settings.auxiliary.compression.names_model:
            made = summarizer_for(settings, catalogue=windows.catalogue, ask=ask)
        elif settings.gateway.summaries not in ("own", "built-in"):
            connection = connect(settings.gateway.summaries, settings, catalogue=windows.catalogue)
            made = ProviderSummarizer(connection, ask=ask)
    except (ConfigError, ProviderError):
        return None
    if made is not None:
        _paid[made] = calls
    return made


def calls_by(summarizer: Summarizer | None) -> list[SummaryCall] | None:
    """Return the calls of a summarizer so far; None if they are not known."""
    if isinstance(summarizer, OwnSummarizer):
        return summarizer.calls
    return None if summarizer is None else _paid.get(summarizer)


def spent_by(summarizer: Summarizer | None) -> float | None:
    """Return the cost of a summarizer, if it is known."""
    calls = calls_by(summarizer)
    return None if calls is None else sum(call.cost for call in calls)
