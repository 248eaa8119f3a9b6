"""Caching strategies, chosen and applied request by request; `PromptCache` is the object that a host uses.

A `PromptCache` belongs to one session. It turns a request into the one to send: with markers if the provider takes
them, with a routing key if the provider caches by itself. It makes no call and keeps hashes, no text.

The strategy ``ledger`` knows the prefixes that a provider should still hold, and makes the most of four markers:

    S  the last block of the system prompt, which covers the tools as well
    R  the deepest block whose prefix is known to be held: a sure hit, whatever was appended since
    F  the frontier: the last block of a summary, or of a region whose results were cleared
    W  the last block that can carry a marker, so that the next request finds all of this one

Markers left over go where they widen the reach of a read.
"""

from __future__ import annotations

import time
from bisect import bisect_left, insort
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, TypeAlias

from everlong.arguments import check_text
from everlong.caching.blocks import Count, Layout, RequestView, layout_of, rough_count
from everlong.caching.markers import CacheMark, Role, mark_newest, strip_markers, with_markers
from everlong.caching.rules import (
    SECONDS,
    CacheRules,
    ModelRules,
    Provider,
    Ttl,
    cache_rules,
    is_claude,
    model_rules,
    provider_of,
)
from everlong.config import CachingValues, caching_values

__all__ = ["Choice", "Ledger", "Placement", "PromptCache", "choose_strategy", "last_markable"]

_SPACING = 15
"""Blocks between spare markers, so that reads that walk back 20 positions leave no gap."""
_CAPACITY = 8_192
_CLIENTS = frozenset({"client", "automatic"})

Strategy: TypeAlias = Literal["ledger", "system_and_3", "automatic", "off"]
_NAMES: dict[Provider, str] = {
    "anthropic": "Anthropic",
    "openrouter": "OpenRouter",
    "bedrock": "Bedrock",
    "vertex": "Vertex",
    "openai": "OpenAI",
    "gemini": "Gemini",
    "deepseek": "DeepSeek",
    "xai": "xAI",
    "local": "a local server",
    "unknown": "this provider",
}


@dataclass(frozen=True, slots=True)
class Choice:
    """The strategy in force for a model at a provider, and the reason."""

    strategy: Strategy
    provider: Provider
    rules: CacheRules
    model_rules: ModelRules
    reason: str

    @property
    def line(self) -> str:
        """The line that the command line prints at start."""
        state = "DISABLED" if self.strategy == "off" else "ENABLED"
        return f"💾 Prompt caching: {state} ({self.reason})"


@dataclass(frozen=True, slots=True)
class Placement:
    """The markers of one request."""

    strategy: Strategy
    marks: tuple[CacheMark, ...] = ()
    prompt_tokens: int = 0


def choose_strategy(
    model: str, provider: str = "", base_url: str = "", settings: CachingValues | Mapping[str, Any] | None = None
) -> Choice:
    """Return the strategy for a model at a provider, by the settings of ``prompt_caching``.

    >>> choose_strategy("claude-sonnet-4-6", "anthropic").strategy
    'ledger'
    """
    check_text("model", model)
    check_text("provider", provider)
    values = caching_values(settings)
    found = provider_of(provider, base_url, model)
    rules = cache_rules(found, model)
    name = _NAMES[found]
    strategy: Strategy
    if values.strategy == "off":
        strategy, reason = "off", "prompt_caching.strategy is off"
    elif rules.style == "automatic":
        strategy, reason = _choose_automatic(found, model, rules)
    elif not is_claude(model):
        strategy, reason = "off", f"{model or 'no model'} is not a Claude model, and {name} marks only those"
    else:
        strategy = "system_and_3" if values.strategy == "system_and_3" else "ledger"
        reason = f"Claude via {name}, {values.cache_ttl} TTL"
    return Choice(strategy, found, rules, model_rules(model), reason)


def _choose_automatic(provider: Provider, model: str, rules: CacheRules) -> tuple[Strategy, str]:
    if is_claude(model):
        return "off", f"{_NAMES[provider]} is not known to take cache markers"
    if provider == "unknown":
        return "off", f"nothing is known about caching of {model or 'this model'} at this provider"
    return "automatic", f"automatic at {_NAMES[provider]}, {rules.ttl_seconds // 60}m TTL"


class PromptCache:
    """The cache markers of one session, placed request by request.

    Args:
        model: the model's name; a request that names another model follows that model's rules.
        provider: ``anthropic``, ``openrouter``, ``bedrock``, ``vertex``, ``openai`` …; by default derived from
            ``base_url`` or the model's name.
        base_url: the address that requests go to.
        settings: the ``prompt_caching`` section, as a mapping or as `PromptCachingSettings`.
        session_id: the name of the session, for providers that route by it.
        count: a function that counts a text's tokens; only the least size of a cached prompt depends on it.
        clock: the time in seconds; any clock that all requests share.

    >>> cache = PromptCache("claude-sonnet-4-6", provider="anthropic")
    >>> request = {"model": "claude-sonnet-4-6", "max_tokens": 100, "messages": messages[1:]}
    >>> "cache_control" in str(cache.apply(request)), "cache_control" in str(request)
    (True, False)
    """

    def __init__(
        self,
        model: str,
        provider: str = "",
        *,
        base_url: str = "",
        settings: Mapping[str, Any] | Any | None = None,
        session_id: str = "",
        count: Count = rough_count,
        clock: Callable[[], float] = time.time,
    ) -> None:
        check_text("model", model)
        check_text("provider", provider)
        self.settings = caching_values(settings)
        self.session_id = session_id
        self.last: Placement | None = None
        self._where = (provider, base_url)
        self._count = count
        self._clock = clock
        self._sessions: dict[tuple[Provider, str], _CacheSession] = {}
        self.choice = self._choose(model)

    def _choose(self, model: str) -> Choice:
        provider, base_url = self._where
        self._model = model
        return choose_strategy(model, provider, base_url, self.settings)

    def use(self, model: str) -> None:
        """Use another model's rules from now on, as a request does that names one."""
        if model and model != self._model:
            self.choice = self._choose(model)

    # -- sending -----------------------------------------------------------------------------------------------------

    def apply(self, request: Mapping[str, Any], now: float | None = None) -> dict[str, Any]:
        """Return the request to send in place of this one; it shares everything that it does not change."""
        now = self._clock() if now is None else now
        model = request.get("model")
        if isinstance(model, str):
            self.use(model)
        strategy = self.choice.strategy
        if strategy == "ledger":
            return self._route(self._place(request, now))
        session, layout = self._session(), layout_of(self.choice.provider, request)
        session.view.update(request, layout)
        tokens = session.view.sizes[-1] if session.view.sizes else 0
        self.last = Placement(strategy, prompt_tokens=tokens)
        if strategy == "system_and_3":
            return self._route(self._apply_plain(request, layout))
        return self._route(dict(request)) if strategy == "automatic" else dict(request)

    def _place(self, request: Mapping[str, Any], now: float) -> dict[str, Any]:
        layout = layout_of(self.choice.provider, request)
        session = self._session()
        view, ledger = session.view, session.ledger
        view.update(request, layout)
        del session.known[bisect_left(session.known, view.kept) :]
        session.known += [at for at in range(view.kept, len(view.chain)) if view.chain[at] in ledger.entries]
        placement = self._decide(session, request, layout, now)
        self.last = placement
        least = self.choice.model_rules.minimum_tokens
        for mark in placement.marks:
            if view.sizes[mark.at] >= least:
                if view.chain[mark.at] not in ledger.entries:
                    insort(session.known, mark.at)
                ledger.record(view.chain[mark.at], mark.ttl, now)
        placed = [mark for mark in placement.marks if mark.role != "automatic"]
        return with_markers(request, layout, view.blocks, placed, [*view.marked, *view.ephemerals])

    def _decide(self, session: _CacheSession, request: Mapping[str, Any], layout: Layout, now: float) -> Placement:
        view, ledger = session.view, session.ledger
        end = view.chain[-1] if view.chain else b""
        if session.last is not None and session.last.is_repeated(end, view.marked):
            return session.last.placement  # a retry must not look different
        own = self._own_marks(view, request, layout)
        marks = _place_marks(
            view,
            session.known,
            lambda prefix: ledger.is_live(prefix, now),
            own=own,
            slots=self.choice.rules.breakpoints,
            ttl=self.settings.cache_ttl,
        )
        placement = Placement("ledger", tuple(marks), view.sizes[-1] if view.sizes else 0)
        session.last = _SentRequest(end, tuple(view.marked), placement, tuple(view.chain[mark.at] for mark in marks))
        return placement

    def _own_marks(self, view: RequestView, request: Mapping[str, Any], layout: Layout) -> list[CacheMark]:
        """Return the client's own markers, as far as the provider would take them."""
        own = [CacheMark(at, _ttl(view.blocks[at].marker), "client") for at in view.marked if view.blocks[at].can_mark]
        automatic = request.get("cache_control") if layout == "anthropic" else None
        limit = self.choice.rules.breakpoints
        if isinstance(automatic, Mapping) and view.blocks:
            last = last_markable(view, len(view.blocks)) or 0
            own = [mark for mark in own if mark.at != last][: limit - 1]
            own.append(CacheMark(last, _ttl(str(automatic.get("ttl", "5m"))), "automatic"))
        return own if len(own) <= limit else [own[0], *own[len(own) - limit + 1 :]]

    def _apply_plain(self, request: Mapping[str, Any], layout: Layout) -> dict[str, Any]:
        """Apply the plain strategy to a request of any layout."""
        ttl = self.settings.cache_ttl
        if layout != "anthropic":
            messages = mark_newest(request["messages"], ttl, layout == "openai")
            return {**request, "messages": messages}
        body = strip_markers(request, texts=False)
        system = body.get("system")
        listed = [{"role": "system", "content": system}] if system else []
        marked = mark_newest([*listed, *body["messages"]], ttl, native_anthropic=True)
        prompt = {"system": marked[0]["content"]} if listed else {}
        return {**body, **prompt, "messages": marked[len(listed) :]}

    def _route(self, body: dict[str, Any]) -> dict[str, Any]:
        """Add the field that keeps the session on the machine with its cache."""
        key = self.choice.rules.routing_key
        if key and self.session_id and "-" not in key and key not in body:
            body[key] = self.session_id
        return body

    @property
    def headers(self) -> dict[str, str]:
        """Headers to send along, for providers that route by one."""
        key = self.choice.rules.routing_key
        return {key: self.session_id} if key and self.session_id and "-" in key else {}

    # -- looking back ------------------------------------------------------------------------------------------------

    def is_cold(self, now: float | None = None) -> bool:
        """Return whether the provider has forgotten the conversation, so that an edit costs nothing extra."""
        session, now = self._session(), self._clock() if now is None else now
        view = session.view
        return not any(
            at >= view.head and session.ledger.is_live(view.chain[at], now) for at in reversed(session.known)
        )

    def forget(self) -> None:
        """Take back what the last request recorded, because it failed before the provider read it."""
        session = self._session()
        if session.last is not None:
            for prefix in session.last.prefixes:
                session.ledger.entries.pop(prefix, None)
            session.known = [at for at in session.known if session.view.chain[at] in session.ledger.entries]
            session.last = None

    def let_go(self) -> None:
        """Free the memory of the last request; the next one is read anew.

        Marked prefixes stay known; only `is_cold` cannot tell before the next request.
        """
        for key, session in self._sessions.items():
            session.view, session.known = RequestView("/".join(key), self._count), []

    def _session(self) -> _CacheSession:
        key = (self.choice.provider, self._model)
        if key not in self._sessions:
            self._sessions[key] = _CacheSession(RequestView("/".join(key), self._count))
        return self._sessions[key]


def _ttl(value: str | None) -> Ttl:
    return "1h" if value == "1h" else "5m"


class _SentRequest(NamedTuple):
    """The last request: the hash of all of it, the client's own marks, and the placement."""

    end: bytes
    marked: tuple[int, ...]
    placement: Placement
    prefixes: tuple[bytes, ...]
    """The hashes of the prefixes that end with its markers."""

    def is_repeated(self, end: bytes, marked: Sequence[int]) -> bool:
        """Return whether a request is this one again, as it came or as it was sent."""
        sent = {mark.at for mark in self.placement.marks}
        return end == self.end and (tuple(marked) == self.marked or (bool(marked) and sent == set(marked)))


# -- the ledger --------------------------------------------------------------------------------------------------------


class _LedgerEntry(NamedTuple):
    """The expiry of a prefix that the provider should hold."""

    expires: float
    ttl: Ttl


@dataclass
class Ledger:
    """The prefixes marked in requests to one model of one provider, by hash, with their expiry."""

    entries: dict[bytes, _LedgerEntry] = field(default_factory=dict)

    def is_live(self, prefix: bytes, now: float) -> bool:
        """Return whether the provider should still hold a prefix."""
        entry = self.entries.get(prefix)
        return entry is not None and now < entry.expires

    def record(self, prefix: bytes, ttl: Ttl, now: float) -> None:
        """Record a marker that was sent; a prefix that is still held keeps its longer life."""
        entry = self.entries.get(prefix)
        if entry is not None and now < entry.expires:
            ttl = entry.ttl
        self.entries[prefix] = _LedgerEntry(now + SECONDS[ttl], ttl)
        if len(self.entries) > _CAPACITY:
            oldest = sorted(self.entries, key=lambda known: self.entries[known].expires)
            for known in oldest[: _CAPACITY // 2]:
                del self.entries[known]


def _place_marks(
    view: RequestView,
    known: Sequence[int],
    is_live: Callable[[bytes], bool],
    *,
    own: Sequence[CacheMark],
    slots: int,
    ttl: Ttl,
) -> list[CacheMark]:
    """Return the markers for a request, including the client's ``own``, in the order of their blocks.

    ``known`` are the blocks, in order, whose prefix stands in the ledger.
    """
    slots -= len(own)
    taken = {mark.at for mark in own}
    chosen: list[CacheMark] = []

    def take(at: int | None, role: Role) -> None:
        if at is not None and len(chosen) < slots and at not in taken:
            taken.add(at)
            chosen.append(CacheMark(at, ttl, role))

    # Blocks from the first one on that only this request has are worth no marker.
    last = last_markable(view, view.ephemerals[0] if view.ephemerals else len(view.blocks))
    held = (at for at in reversed(known) if view.blocks[at].can_mark and is_live(view.chain[at]))
    take(last, "W")
    take(last_markable(view, view.head), "S")
    take(next((at for at in held if last is None or at < last), None), "R")
    for frontier in view.frontiers[-1:]:
        take(last_markable(view, frontier + 1, frontier), "F")
    for at in range((last or 0) - _SPACING, view.head, -_SPACING):
        take(last_markable(view, at + 1, view.head), "spare")
    return _order_marks([*chosen, *own])


def last_markable(view: RequestView, end: int, start: int = 0) -> int | None:
    """Return the last block between two places that can carry a marker."""
    for at in range(min(end, len(view.blocks)) - 1, start - 1, -1):
        if view.blocks[at].can_mark:
            return at
    return None


def _order_marks(marks: list[CacheMark]) -> list[CacheMark]:
    """Return marks in the order of blocks, with no five-minute mark before a one-hour mark."""
    ordered = sorted(marks)
    short_seen = False
    fixed: list[CacheMark] = []
    last_own_hour = max((mark.at for mark in ordered if mark.role in _CLIENTS and mark.ttl == "1h"), default=-1)
    for mark in ordered:
        ttl: Ttl = mark.ttl
        if mark.role not in _CLIENTS:
            ttl = "5m" if short_seen else "1h" if mark.at < last_own_hour else mark.ttl
        short_seen = short_seen or ttl == "5m"
        fixed.append(mark._replace(ttl=ttl))
    return fixed


# -- the state of a session --------------------------------------------------------------------------------------------


@dataclass
class _CacheSession:
    """The state of a conversation with one model of one provider."""

    view: RequestView
    ledger: Ledger = field(default_factory=Ledger)
    known: list[int] = field(default_factory=list)
    last: _SentRequest | None = None
