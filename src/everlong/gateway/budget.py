"""The budget of keys with a limit in dollars.

Dollars are reserved before a request is sent, and settled with its cost. The most that a request can cost is reserved:
every byte a token, up to the window, and the longest answer. Requests that can be read in more than one way, or have
no price, are refused. Afterwards the upstream's own figures count. If it tells none, as with a stream that its client
left, the tokens are counted here: those sent, those that came back, and those that may have been made in the time.
Knows the fields of the two APIs that change the price of a request.
"""

from __future__ import annotations

import asyncio
import json
import logging
import re
import threading
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from everlong.errors import StoreError
from everlong.gateway.auth import Refused
from everlong.gateway.body import BrokenBody, dump_json, read_fields
from everlong.gateway.formats import whole_number
from everlong.gateway.window import count_request
from everlong.model.long_texts import read_in_steps
from everlong.providers.base import Usage
from everlong.providers.endpoints import ENDPOINTS, Endpoint, ModelName
from everlong.store.costs import Days, Reservation, Spending

if TYPE_CHECKING:
    from aiohttp import ClientResponse

    from everlong.gateway.formats import Dialect
    from everlong.gateway.routing import Route
    from everlong.gateway.window import Windows
    from everlong.model import Message
    from everlong.store.database import Database

__all__ = ["Budget", "Charge"]

_log = logging.getLogger("everlong.gateway")

_MOST_ANSWER = 128_000
"""Tokens of an answer if the request names no limit: no model writes more."""
_FRAME_TOKENS = 2_000
"""Tokens that providers and the gateway add to a prompt: rules for tools, notes, look-ups."""
_TOKENS_PER_SECOND = 100.0
"""Tokens per second that an answer of unknown length may have grown by."""
_BYTES_PER_TOKEN = 3.0
_PLAIN_TIERS = frozenset({"auto", "default", "flex", "standard", "standard_only", "batch"})
_OWN_TOOLS = ("function", "custom", "bash_", "text_editor_", "computer_", "memory_", "apply_patch", "local_shell")
"""Tools that the client runs; others cost by their use."""
_PLAIN_FIELDS = frozenset(
    {
        *("model", "messages", "input", "system", "instructions", "stream", "stream_options", "metadata", "store"),
        *("max_tokens", "max_completion_tokens", "max_output_tokens", "n", "best_of", "stop", "stop_sequences", "seed"),
        *("temperature", "top_p", "top_k", "top_a", "min_p", "typical_p", "frequency_penalty", "presence_penalty"),
        *("repetition_penalty", "repeat_penalty", "logit_bias", "logprobs", "top_logprobs", "echo", "suffix"),
        *("tools", "tool_choice", "parallel_tool_calls", "functions", "function_call", "max_tool_calls", "tool_stream"),
        *("thinking", "reasoning", "reasoning_effort", "reasoning_split", "include_reasoning", "enable_thinking"),
        *("thinking_budget", "output_config", "output_format", "response_format", "text", "verbosity", "prediction"),
        *("service_tier", "speed", "modalities", "audio", "inference_geo", "context_management", "truncation"),
        *("include", "previous_response_id", "conversation", "betas", "anthropic_version", "anthropic_beta"),
        *("cache_control", "prompt_cache_key", "prompt_cache_retention", "prompt_cache_options", "safety_identifier"),
        *("client_metadata", "chat_template_kwargs", "keep_alive", "cache_prompt", "slot_id", "diagnostics"),
        *("ignore_eos", "skip_special_tokens", "safe_prompt", "session_id", "trace", "usage", "transforms", "user"),
    }
)
"""Fields that change no price, or whose price is counted. By others another model may answer, more may be done than is
counted, or the answer may come when nobody counts it."""
_EMPTY: tuple[Any, ...] = (None, False, "", [])
_NOWHERE = (None, "global", "default", "auto")
_LIMITS = {
    "openai": ("max_tokens", "max_completion_tokens"),
    "anthropic": ("max_tokens",),
    "openai-responses": ("max_output_tokens",),
}
"""The fields that limit an answer, by dialect; an API ignores those of another one."""
_THINKING = (("thinking", "budget_tokens"), ("reasoning", "max_tokens"))
_THINKING_BESIDE = ((None, "thinking_budget"), ("chat_template_kwargs", "thinking_budget"))
"""Fields with the tokens that a model may think: as a part of its answer, and beside it."""
_MOST_ANSWERS = 128
"""Answers to one request; no API gives more."""
_TEXTS = frozenset(
    {
        *("text", "input_text", "output_text", "refusal", "summary_text", "reasoning_text", "message", "reasoning"),
        *("thinking", "redacted_thinking", "tool_use", "tool_result", "function", "function_call", "custom"),
        *("function_call_output", "custom_tool_call", "custom_tool_call_output", "local_shell_call"),
        *("local_shell_call_output", "compaction_trigger"),
    }
)
"""Types of items and parts that cost no more tokens than they have bytes. An image, a sound, a file and whatever a name
stands for cost by their size, which the request does not tell."""
_TEXT_FIELDS = frozenset(
    {
        *("role", "type", "id", "name", "content", "text", "refusal", "status", "phase", "cache_control", "citations"),
        *("annotations", "logprobs", "reasoning_content", "reasoning", "reasoning_details", "thinking", "signature"),
        *("data", "summary", "encrypted_content", "tool_calls", "tool_call_id", "tool_use_id", "is_error", "index"),
        *("function", "custom", "function_call", "arguments", "input", "call_id", "output", "action", "caller"),
        *("prompt_cache_breakpoint", "namespace"),
    }
)
"""The fields of such items and parts."""
_SEARCHES = re.compile(r"(?<!re)search|deep-research|sonar|\bcompound\b|[:-]online\b")
"""Names of models that search the web for every request."""
_HEARD = ("audio", "video")
_DATA = ("data:audio", "data:video")
_HUNG_SECONDS = 3.0
"""Seconds that a request waits for what its key has spent."""
_INSIDE = ("content", "output", "summary", "tool_calls")
"""The fields with items and parts inside of others."""

T = TypeVar("T")
Said = Callable[[], Awaitable["Message | None"]]
"""A function that returns the part of the newest answer that has arrived; None if its bytes have to be counted."""


@dataclass(slots=True)
class Charge:
    """The charge of one request of a key with a limit; several requests may be sent upstream for it."""

    tenant: str
    most: float
    """US dollars in a day."""
    sends: list[_SentCost] = field(default_factory=list)
    budget: Budget | None = None
    said: Said | None = None

    def answered(self, upstream: ClientResponse) -> None:
        """Note the answer to the request that was sent last."""
        if self.sends:
            self.sends[-1].upstream = upstream

    def told(self, *used: Usage) -> None:
        """Note the upstream's figures for the requests that were sent last, in their order."""
        for sent, usage in zip(reversed(self.sends), reversed(used), strict=False):
            sent.usage = usage if usage.prompt_tokens else None

    async def close(self) -> float:
        """Settle everything; return the total cost."""
        sends, self.sends = self.sends, []
        total = 0.0
        for number, sent in enumerate(sends):
            total += await sent.settle(self.budget, self.said if number == len(sends) - 1 else None)
        return total


@dataclass(slots=True)
class _SentCost:
    """One request that went upstream, with its reservation."""

    held: Reservation
    words: bytes
    dialect: Dialect
    name: ModelName
    answer_tokens: int
    prompt_tokens: int
    upstream: ClientResponse | None = None
    usage: Usage | None = None
    """Its tokens, if the upstream told them."""
    began: float = field(default_factory=time.monotonic)

    async def settle(self, budget: Budget | None, said: Said | None) -> float:
        assert budget is not None  # noqa: S101 - nothing is sent without one
        if self.usage is not None:  # at the price by which it was let in
            dollars = await asyncio.to_thread(budget.cost, self.name, self.usage)
            dollars = self.held.dollars if dollars is None else dollars
        elif self.upstream is not None and self.upstream.status >= 400:
            dollars = 0.0
        else:
            dollars = await asyncio.to_thread(self._counted, budget, None if said is None else await said())
        try:
            await budget.ask(partial(budget.spending.settle, self.held, dollars))
        except StoreError as error:  # it stays reserved, maybe until the database goes on
            _log.error("what a request cost could not be stored: %s", type(error).__name__)
        return dollars

    def _counted(self, budget: Budget, said: Message | None) -> float:
        """Return the cost by our own count."""
        prompt = count_request(self.dialect, self.words)
        written = len(dump_json(said)) / _BYTES_PER_TOKEN if said is not None else 0.0
        if said is None and self.upstream is not None:
            written = self.upstream.content.total_bytes / _BYTES_PER_TOKEN
        made = max(written, (time.monotonic() - self.began) * _TOKENS_PER_SECOND)
        usage = Usage(min(prompt, self.prompt_tokens), min(int(made) + 1, self.answer_tokens))
        cost = budget.cost(self.name, usage)
        return self.held.dollars if cost is None else min(cost, self.held.dollars)


class Budget:
    """The reservations of keys with a limit."""

    def __init__(self, database: Database, windows: Windows, days: Days | None = None) -> None:
        self.spending = Spending(database, days or Days())
        self._windows = windows
        self._threads = ThreadPoolExecutor(4, thread_name_prefix="everlong-budget")

    async def ask(self, work: Callable[[], T]) -> T:
        """Return what the database says, in threads that nobody else waits for.

        Raises:
            StoreError: it does not answer; the work goes on.
        """
        doing = asyncio.get_running_loop().run_in_executor(self._threads, work)
        doing.add_done_callback(lambda done: done.cancelled() or done.exception())  # seen, if nobody waits
        if not (await asyncio.wait({doing}, timeout=_HUNG_SECONDS))[0]:
            raise StoreError("the database does not answer")
        return doing.result()

    async def reserve(
        self,
        charge: Charge,
        words: bytes | None,
        dialect: Dialect,
        model: str,
        route: Route,
        *,
        only_checks: bool = False,
    ) -> None:
        """Reserve the most that a request may cost; ``words`` is its body without an encoding, if it can be read.

        With ``only_checks`` nothing is reserved, and a request is refused for which there would not be enough.

        Raises:
            Refused: it cannot be read or priced, or there is not enough left of the day's dollars.
        """
        charge.budget = self
        name = ModelName(route.provider, model)
        sent = await asyncio.to_thread(self._bounded, words, dialect, name, may_shrink=only_checks)
        dollars = await asyncio.to_thread(
            self.cost, sent.name, Usage(sent.prompt_tokens, sent.answer_tokens), is_most=True
        )
        if dollars is None:
            raise _no_price(model, route)
        held, left = None, 0.0
        has_left = threading.Event()

        def take() -> Reservation | None:
            taken = self.spending.reserve(charge.tenant, dollars, charge.most)
            if taken is not None and has_left.is_set():
                self.spending.settle(taken, 0.0)
            return taken

        try:
            if not only_checks:
                held = await self.ask(take)
            if held is None:
                left = charge.most - await self.ask(partial(self.spending.spent, charge.tenant))
        except StoreError as error:
            raise Refused(503, "what this key has spent cannot be looked up; try again", 5) from error
        finally:
            if held is None:
                has_left.set()
        if held is not None:
            sent.held = held
            charge.sends.append(sent)
        elif not only_checks or dollars > left:
            raise _too_dear(charge.most, left, dollars, self.spending.days.rest)

    def add(self, charge: Charge, dollars: float) -> None:
        """Add what the gateway's own account paid for a client; nothing was reserved for it. Blocks."""
        held = self.spending.reserve(charge.tenant, 0.0, float("inf"))
        if held is not None:
            self.spending.settle(held, dollars)

    def cost(self, name: ModelName, usage: Usage, *, is_most: bool = False) -> float | None:
        """Return the cost of tokens, or None without a price; ``is_most`` for prompts that a cache may take in."""
        rates = None
        for known in (str(name), name.model):  # by its provider, else as `everlong usage` finds it
            rates = rates or self._windows.catalogue.rates(known, usage.prompt_tokens, is_most=True)
        if rates is None:
            return None
        kinds = [usage]
        if is_most:
            prompt, answer = usage.input_tokens, usage.output_tokens
            kinds += [Usage(0, answer, cache_write_tokens=prompt), Usage(0, answer, 0, prompt, prompt)]
        return max(float(rates.cost(kind)) for kind in kinds)

    def _bounded(self, words: bytes | None, dialect: Dialect, name: ModelName, *, may_shrink: bool) -> _SentCost:
        """Return a request with the most tokens that it and its answer can have.

        Some upstreams serve a larger window than is known; a request that may be shortened yet is not meant for it.
        """
        if words is None:
            raise _unpriced("its body cannot be read")
        try:
            request = {field: _parse_once(words[slice(*place)]) for field, place in read_fields(words).items()}
        except BrokenBody as error:
            raise _unpriced(f"its body cannot be read: {error}") from error
        if request.get("model") != name.model or not name.model:
            raise _unpriced("it names no model")
        _check_priced(request)
        if _SEARCHES.search(name.model.lower()):
            raise _unpriced("its model looks things up, and each time costs")
        window, is_known = self._window(name)
        prompt = len(words) + _FRAME_TOKENS
        is_elsewhere = any(request.get(field) for field in ("previous_response_id", "conversation"))
        said = [request.get(field) for field in (dialect.list_name, "system", "instructions")]
        if is_elsewhere or not all(map(_is_text, said)):
            if any(map(_is_heard, said)):
                raise _unpriced("sounds and films have prices of their own")
            prompt = max(prompt, window)
        longest = window if is_known else _MOST_ANSWER
        count = max(whole_number(request.get(field)) for field in ("n", "best_of")) or 1
        answer = min(_answer_tokens(request, _LIMITS[dialect.name]), longest, _MOST_ANSWER * 8) * count
        if is_known and prompt > window:
            prompt = window if may_shrink else min(prompt, max(window, count_request(dialect, words)))
        passes = _passes(request)
        return _SentCost(Reservation("", 0, 0.0), words, dialect, name, answer * passes, prompt * passes)

    def _window(self, name: ModelName) -> tuple[int, bool]:
        endpoint = ENDPOINTS.get(name.provider, Endpoint(name.provider))
        info = self._windows.catalogue.info(name, endpoint)
        return info.context_length, info.context_source in ("settings", "catalogue", "server")


def _check_priced(request: dict[str, Any]) -> None:
    """Refuse fields that change the price of a request in a way that we cannot count."""
    for name, value in request.items():
        if name not in _PLAIN_FIELDS and value not in _EMPTY:
            raise _unpriced(f"nobody can tell beforehand what it costs with {name[:60]!r}")
    for name in ("n", "best_of"):
        if request.get(name) is not None and not 1 <= whole_number(request[name]) <= _MOST_ANSWERS:
            raise _unpriced(f"{name} is no number of answers up to {_MOST_ANSWERS}")
    tier = request.get("service_tier")
    if (tier is not None and str(tier) not in _PLAIN_TIERS) or request.get("speed") not in (None, "standard"):
        raise _unpriced("it asks to be served before others, at another price")
    if request.get("inference_geo") not in _NOWHERE:
        raise _unpriced("it asks to be served in one place, at another price")
    if request.get("audio") or request.get("modalities") not in (None, [], ["text"]):
        raise _unpriced("it asks for other than text")
    _check_tools(request.get("tools"))


def _check_tools(tools: Any) -> None:
    if tools is not None and not (isinstance(tools, list) and all(isinstance(tool, dict) for tool in tools)):
        raise _unpriced("its tools are no list of tools")
    for tool in tools or ():
        kind = tool.get("type")
        if kind is not None and not str(kind).startswith(_OWN_TOOLS):
            raise _unpriced(f"the tool {str(kind)[:60]!r} costs by its use")
        if kind is None and not tool.keys() & {"name", "function"}:
            raise _unpriced("a tool has neither a name nor a kind")


def _passes(request: dict[str, Any]) -> int:
    """Return how often the prompt of a request may be read: once more if the provider compacts it."""
    return 2 if b"compact" in dump_json(request.get("context_management")) else 1


def _answer_tokens(request: dict[str, Any], limits: Sequence[str]) -> int:
    """Return the most tokens of an answer, with its thinking: servers read an odd limit as none at all."""

    def numbers(places: Iterable[tuple[str | None, str]]) -> list[Any]:
        inside = ((request if name is None else request.get(name), field) for name, field in places)
        found = (value.get(field) for value, field in inside if isinstance(value, dict))
        return [number for number in found if number is not None]

    given = numbers((None, name) for name in limits)
    thinking, beside = numbers(_THINKING), numbers(_THINKING_BESIDE)
    is_limited = bool(given) and all(map(whole_number, [*given, *thinking, *beside]))
    most = max([*given, *thinking]) + sum(beside) if is_limited else _MOST_ANSWER
    # Words that a client predicts are paid for as an answer if the model does not say them.
    return most + len(dump_json(request.get("prediction") or ""))


def _is_text(value: Any) -> bool:
    """Return whether messages, items or parts cost no more tokens than they have bytes."""
    if value is None or isinstance(value, str):
        return True
    if isinstance(value, list):
        return all(map(_is_text, value))
    if not isinstance(value, dict) or not value.keys() <= _TEXT_FIELDS or value.keys() == {"id"}:
        return False
    kind = value.get("type", "message" if "role" in value else "function" if "function" in value else "")
    return isinstance(kind, str) and kind in _TEXTS and all(_is_text(value.get(field)) for field in _INSIDE)


def _is_heard(value: Any) -> bool:
    """Return whether there is a sound or a film in messages, items or parts, whatever field or type it goes by."""
    if isinstance(value, str):
        return value[:10].lower() in _DATA
    inside: Iterable[Any] = value if isinstance(value, list) else ()
    if isinstance(value, dict):
        told = (name for name, one in (*value.items(), (str(value.get("type")), value)) if one not in _EMPTY)
        if any(kind in name.lower() for name in told for kind in _HEARD):
            return True
        inside = value.values()
    return any(map(_is_heard, inside))


def _parse_once(data: bytes) -> Any:
    """Return the value of some JSON; `BrokenBody` if an object in it has a name twice: servers may take either."""

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) < len(pairs):
            raise BrokenBody("a name stands there twice")
        return found

    try:
        return read_in_steps(data, partial(json.loads, object_pairs_hook=once))
    except (ValueError, RecursionError) as error:
        raise BrokenBody(str(error)) from error


def _unpriced(why: str) -> Refused:
    return Refused(400, f"this key may spend so many US dollars a day, so what cannot be priced is refused: {why}")


def _no_price(model: str, route: Route) -> Refused:
    spelt = repr(model[:100])[1:-1]
    where = f"the upstream {route.shown} (provider {route.provider})"
    return Refused(
        403,
        f"this key may spend so many US dollars a day, and the price of '{spelt}' at {where} is not known; set "
        f"models.{spelt}.input_price and models.{spelt}.output_price in the gateway's config.yaml, in US dollars for a "
        "million tokens, and start the gateway again",
    )


def _too_dear(most: float, left: float, dollars: float, rest: float) -> Refused:
    if left <= 0:
        return Refused(429, f"this key may spend {most:,.2f} US dollars a day (UTC), and has; try tomorrow", rest)
    return Refused(
        429,
        f"this key may spend {most:,.2f} US dollars a day (UTC), and {left:,.4f} are left, with those reserved for "
        f"requests under way; this one may cost {dollars:,.4f} if its answer is as long as it may be: allow a shorter "
        "one (max_tokens), wait for others, or try tomorrow",
        rest,
    )
