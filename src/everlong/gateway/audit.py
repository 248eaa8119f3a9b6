"""The audit: what the gateway would have done to requests that it passed on unchanged, and the savings.

Everything is computed from the store: the messages, and the tokens that providers reported for each turn. The cache of
a request without markers follows the providers' published rules. Compactions are made by the engine itself, with a
summary that needs no model, and are not stored. Answers are assumed to be the same. Sends and writes nothing.
"""

from __future__ import annotations

import json
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from itertools import accumulate
from typing import TYPE_CHECKING, Any, NamedTuple

from sqlalchemy import select

from everlong.agent.accounting import UNNAMED, AccountPrices, Tokens, account, dollars
from everlong.caching import PromptCache
from everlong.caching.rules import cache_rules, is_claude, provider_of
from everlong.caching.simulation import CacheSimulator
from everlong.context import ContextCompressor
from everlong.context.policy import Waiting
from everlong.errors import ConfigError, EverlongError
from everlong.gateway.window import RequestSize, Windows
from everlong.model import Message
from everlong.providers.endpoints import parse_model_name
from everlong.store.schema import branch as branches
from everlong.store.tree import Branch
from everlong.tokens.estimate import CHARS_PER_TOKEN

if TYPE_CHECKING:
    from everlong.config import Settings
    from everlong.store import Store, Turn

__all__ = ["Audit", "Audited", "audit"]

_NOTHING = Decimal(0)


@dataclass(frozen=True, slots=True)
class Audited:
    """One request: its usage, and what it would have been."""

    at: float
    model: str
    session: str | None
    """Its conversation."""
    tokens: Tokens
    marked: Tokens
    """The same request with the gateway's cache markers; as it was if the client placed its own."""
    shown: Tokens
    """That request by the view of the compactions that would have been made."""
    cost: Decimal | None
    """US dollars; None if the price is not known."""
    marked_cost: Decimal | None
    shown_cost: Decimal | None
    markers: int = 0
    """Markers that would have been put in."""
    compaction: str = ""
    """The reason why a compaction would have been made: ``threshold`` (from the next request on) or ``preflight``."""
    freed: int = 0
    """Tokens that this compaction would have freed in each later request."""

    def to_dict(self) -> dict[str, Any]:
        """Return it as JSON-ready data."""

        def amount(value: Decimal | None) -> str | None:
            return None if value is None else dollars(value)

        return {
            "at": self.at,
            "model": self.model,
            "session": self.session,
            "tokens": self.tokens.to_dict(),
            "cost": amount(self.cost),
            "markers": self.markers,
            "with_markers": {"tokens": self.marked.to_dict(), "cost": amount(self.marked_cost)},
            "compaction": self.compaction or None,
            "freed_tokens": self.freed,
            "with_both": {"tokens": self.shown.to_dict(), "cost": amount(self.shown_cost)},
        }


@dataclass
class Audit:
    """The requests that were passed on in audit mode, oldest first."""

    requests: list[Audited] = field(default_factory=list)
    titles: dict[str, str] = field(default_factory=dict)
    """Titles of conversations."""
    unpriced: list[str] = field(default_factory=list)
    """Models whose price is not known; no amount has them."""
    summary_cost: Decimal | None = None
    """US dollars that a model's summary has cost in this store on average; None if none was paid."""

    @property
    def conversations(self) -> dict[str | None, list[Audited]]:
        """The requests by conversation."""
        found: dict[str | None, list[Audited]] = {}
        for one in self.requests:
            found.setdefault(one.session, []).append(one)
        return found

    @property
    def saved_by_markers(self) -> Decimal:
        """US dollars that markers would have saved; below zero if they would have cost more."""
        return sum(((one.cost or _NOTHING) - (one.marked_cost or _NOTHING) for one in self.requests), _NOTHING)

    @property
    def saved_by_compactions(self) -> Decimal:
        """US dollars that compactions would have saved on top, without what summaries cost."""
        return sum(((one.marked_cost or _NOTHING) - (one.shown_cost or _NOTHING) for one in self.requests), _NOTHING)

    @property
    def summaries_cost(self) -> Decimal | None:
        """US dollars for the summaries of these compactions, if models wrote them; None if it is not known."""
        count = sum(bool(one.compaction) for one in self.requests)
        return None if self.summary_cost is None else count * self.summary_cost

    def to_dict(self) -> dict[str, Any]:
        """Return everything as JSON-ready data, with exact amounts as text."""
        return {
            "currency": "USD",
            "saved_by_markers": dollars(self.saved_by_markers),
            "saved_by_compactions": dollars(self.saved_by_compactions),
            "summaries_cost": None if self.summaries_cost is None else dollars(self.summaries_cost),
            "requests": [one.to_dict() for one in self.requests],
            "titles": self.titles,
            "unpriced_models": self.unpriced,
        }


def audit(store: Store, settings: Settings, *, since: float | None = None, session: str | None = None) -> Audit:
    """Return what the gateway would have done, since a moment in seconds since 1970, or for one session only.

    Earlier requests count for what they left behind.
    """
    sessions = store.sessions.newest()
    whole = {one.id: one.conversation for one in sessions}
    only = None if session is None else whole.get(session, session)
    by_branch: defaultdict[int, list[Turn]] = defaultdict(list)
    for turn in store.turns.since():
        its = None if turn.session is None else whole.get(turn.session, turn.session)
        if turn.usage and turn.usage.get("audited") and (only is None or its == only):
            by_branch[turn.branch].append(turn)
    found, prices = Audit(), AccountPrices(settings)
    auditor = _Auditor(store, settings, prices, whole)
    for number, turns in by_branch.items():
        for one in auditor.judged(number, turns):
            if since is None or one.at >= since:
                found.requests.append(one)
    found.requests.sort(key=lambda one: one.at)
    known = {one.session for one in found.requests}
    found.titles = {one.conversation: one.title for one in sessions if one.title and one.conversation in known}
    found.unpriced = prices.missing
    paid = account(store, settings).total.kinds["summary"]
    found.summary_cost = paid.cost / paid.calls if paid.calls else None
    return found


class _ShownAudit(NamedTuple):
    """A conversation as it would be sent."""

    messages: list[Message]
    freed: int = 0
    """Tokens that are not sent any more."""
    is_new: bool = False
    """True if the next request is the first that is sent so."""


class _Auditor:
    """The judge of one store's turns."""

    def __init__(self, store: Store, settings: Settings, prices: AccountPrices, whole: Mapping[str, str]) -> None:
        self._store = store
        self._settings = settings
        self._prices = prices
        self._whole = whole
        self._windows = Windows(settings)

    def judged(self, number: int, turns: Sequence[Turn]) -> Iterator[Audited]:
        """Go through the turns of a branch, oldest first."""
        deepest = max(turns, key=lambda turn: turn.depth)
        entries = self._store.entries(Branch(number, deepest.node, deepest.depth))
        messages = [entry.message for entry in entries]
        depths = [entry.depth for entry in entries]
        lengths = list(accumulate(map(_length, messages), initial=0))
        system, tools = self._preamble(number)
        head = sum(map(_length, [*system, *tools]))
        marking = _Markers(self._settings, turns, tools)
        shown, waiting = _ShownAudit([]), Waiting()
        done = 0
        for turn in turns:
            count = bisect_right(depths, turn.depth)
            said = messages[:count]
            tokens = Tokens.of(turn.usage or {})
            marked, markers = marking.with_markers(turn, [*system, *said], tokens)
            fixed = tokens.prompt * head // max(1, head + lengths[count])
            if count < done:
                shown, waiting = _ShownAudit([]), Waiting()  # it went back, maybe behind what was compacted
            added, done = said[done:] if shown.messages else said, len(said)
            shown = shown._replace(messages=[*shown.messages, *added])
            reason, freed = "", 0
            name, provider = turn.model or "", _provider(turn.model)
            size = self._windows.limits(name, provider, tokens.prompt - shown.freed, fixed=fixed)
            waiting.sent(size.tokens, size.pace, size.prices)
            is_due = size.is_considered and waiting.reason(size.tokens, size.pace, size.prices) is None
            if self._settings.compression.enabled and is_due:
                made = self._compacted(turn, (system, tools), shown.messages, size)
                waiting.compacted(size.tokens if made is None else size.tokens - made[1])
                if made is not None:
                    reason = "preflight" if size.is_too_large else "threshold"
                    left, freed = made
                    before, now = shown, shown.freed + freed
                    shown = _ShownAudit(left, now, is_new=True)
                    if reason == "threshold":  # it is made while the answer comes
                        yield self._audited(turn, tokens, (marked, markers), before, fixed, (reason, freed))
                        continue
            yield self._audited(turn, tokens, (marked, markers), shown, fixed, (reason, freed))
            shown = shown._replace(is_new=False)

    def _audited(
        self,
        turn: Turn,
        tokens: Tokens,
        marking: tuple[Tokens, int],
        shown: _ShownAudit,
        fixed: int,
        compaction: tuple[str, int],
    ) -> Audited:
        marked, markers = marking
        would_be = shorten(marked, shown.freed, fixed, is_first=shown.is_new)
        rates = self._prices.of(turn.model, tokens.prompt, turn.began)
        smaller = self._prices.of(turn.model, would_be.prompt, turn.began)
        if rates is None:
            self._prices.miss(turn.model or UNNAMED)
        return Audited(
            turn.began,
            turn.model or UNNAMED,
            None if turn.session is None else self._whole.get(turn.session, turn.session),
            tokens,
            marked,
            would_be,
            None if rates is None else rates.cost(tokens.usage),
            None if rates is None else rates.cost(marked.usage),
            None if smaller is None else smaller.cost(would_be.usage),
            markers,
            *compaction,
        )

    def _compacted(
        self, turn: Turn, preamble: tuple[list[Message], list[Any]], messages: list[Message], size: RequestSize
    ) -> tuple[list[Message], int] | None:
        """Return a conversation after a compaction, and the tokens that go; None for none."""
        system, tools = preamble
        engine = ContextCompressor(size.window, settings=self._settings.compression, model=turn.model or "")
        engine.calibrate([*system, *messages], size.tokens, tools)
        try:
            made = engine.compress([*system, *messages])
        except EverlongError:
            return None
        before, after = engine.estimate_tokens([*system, *messages]), engine.estimate_tokens(made)
        if after >= before:
            return None
        whole = before + sum(map(_length, tools)) // CHARS_PER_TOKEN
        return made[len(system) :], int((before - after) * size.tokens / max(1, whole))

    def _preamble(self, number: int) -> tuple[list[Message], list[Any]]:
        """Return the system messages and tools that a branch was last sent with."""
        with self._store.database.read() as connection:
            digest = connection.execute(select(branches.c.preamble).where(branches.c.id == number)).scalar()
            if digest is None:
                return [], []
            told = self._store.reader.values(connection, [bytes(digest)]).get(bytes(digest)) or {}
        return list(told.get("system") or []), list(told.get("tools") or [])


class _Markers:
    """The effect of the gateway's markers on the requests of a branch, by the published rules of caches."""

    def __init__(self, settings: Settings, turns: Sequence[Turn], tools: list[Any]) -> None:
        model = turns[0].model or ""
        provider = provider_of(model=model.partition(":")[2] or model)
        used = [Tokens.of(turn.usage or {}) for turn in turns]
        has_own = any(tokens.cache_read or tokens.written for tokens in used)
        takes_them = cache_rules(provider, model).style == "markers" and is_claude(model)
        self._is_on = takes_them and not has_own and settings.prompt_caching.strategy != "off"
        self._tools = tools
        self._cache = PromptCache(model, provider, settings=settings.prompt_caching, warn=lambda _: None)
        self._simulator = CacheSimulator(model, provider)

    def with_markers(self, turn: Turn, messages: list[Message], tokens: Tokens) -> tuple[Tokens, int]:
        """Return the tokens of a request with markers, and how many it would carry."""
        if not self._is_on:
            return tokens, 0
        body = {"messages": messages, **({"tools": self._tools} if self._tools else {})}
        sent = self._cache.apply(body, turn.began)
        outcome = self._simulator.send(sent, turn.began, responds_after=0.0)  # who goes on has the answer before
        marks = self._cache.last.marks if self._cache.last is not None else ()
        if not outcome.prompt or not (outcome.read or outcome.written):
            return tokens, 0
        scale = tokens.prompt / outcome.prompt
        read = int(outcome.read * scale)
        short, hour = (int(outcome.written.get(ttl, 0) * scale) for ttl in ("5m", "1h"))
        return Tokens(tokens.prompt - read - short - hour, read, short, hour, tokens.output), len(marks)


def shorten(tokens: Tokens, freed: int, fixed: int, *, is_first: bool) -> Tokens:
    """Return the usage of a request with so many tokens less in its history.

    What is freed stood at its beginning, so it goes from what was read first. In the first request after a compaction,
    of the rest only the ``fixed`` part is read: what stands behind the summary has to be sent anew.
    """
    if not freed:
        return tokens
    read = max(0, tokens.cache_read - freed)
    left = freed - (tokens.cache_read - read)
    hour, left = _less(tokens.cache_write_1h, left)
    short, left = _less(tokens.cache_write_5m, left)
    plain, _ = _less(tokens.plain, left)
    anew = max(0, read - fixed) if is_first else 0
    result = replace(tokens, plain=plain, cache_read=read - anew, cache_write_5m=short, cache_write_1h=hour)
    if not tokens.written:
        return replace(result, plain=result.plain + anew)
    if tokens.cache_write_5m:
        return replace(result, cache_write_5m=result.cache_write_5m + anew)
    return replace(result, cache_write_1h=result.cache_write_1h + anew)


def _less(amount: int, by: int) -> tuple[int, int]:
    taken = min(amount, by)
    return amount - taken, by - taken


def _length(value: Any) -> int:
    """Return the length of a message or a tool as JSON."""
    return len(json.dumps(value, ensure_ascii=False, default=str))


def _provider(model: str | None) -> str:
    try:
        return parse_model_name(model or "").provider
    except ConfigError:
        return "custom"
