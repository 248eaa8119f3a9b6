"""The official clients of OpenAI and Anthropic with a conversation that never ends: `wrap_client`.

A wrapped client is a copy of the client with the same class, methods and answers. Every request for an answer (plain,
streamed, parsed, raw) passes its ``request`` method, and there the conversation is fitted into the window. The work is
written once, as steps that a synchronous or an asynchronous client carries out.
"""

from __future__ import annotations

import asyncio
import logging
from base64 import b64encode
from collections.abc import AsyncIterator, Callable, Generator, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar
from weakref import WeakKeyDictionary

from everlong.agent.tools.hidden_tools import (
    ROUNDS,
    HiddenTool,
    Hiding,
    find_lookups,
    hide_lookups,
    hiding_for,
    lookup_entries,
)
from everlong.arguments import check_callable, check_count, check_text
from everlong.caching import PromptCache
from everlong.context import ContextCompressor, ContextEngine
from everlong.errors import ConfigError
from everlong.integrations.client_formats import Body, ClientFormat, ReadBody, format_of
from everlong.integrations.history import Fitted, HistoryKeeper, MakeEngine, OfferedTools, OverflowRescue
from everlong.tokens import MessageCounter

if TYPE_CHECKING:
    from everlong.providers.base import Reply
    from everlong.store import Store

__all__ = ["wrap_client"]

Client = TypeVar("Client")

_log = logging.getLogger(__name__)

_RAW_HEADER = "x-stainless-raw-response"
"""Set by the clients themselves where the answer is to be the bare HTTP response."""
_SYNC, _ASYNC = "SyncAPIClient", "AsyncAPIClient"
"""The base classes of the clients, in both packages."""
_PACKAGES = ("openai", "anthropic")
_WRAPPED, _ENDLESS = "/folder/", 2**40


def wrap_client(
    client: Client,
    make_engine: MakeEngine | None = None,
    *,
    window: int | None = None,
    store: Store | None = None,
    conversation: str = "",
    recall: bool = False,
    cache: bool = True,
) -> Client:
    """Return a client of OpenAI or Anthropic whose conversations never outgrow the window.

    It is used like the client itself: pass the whole history at every call. Conversations are recognized by their
    words, or by the name ``conversation``.

    Args:
        client: an ``OpenAI``, ``AsyncOpenAI``, ``Anthropic`` or ``AsyncAnthropic``; it stays as it is.
        make_engine: makes an engine for each conversation; by default a `ContextCompressor`.
        window: the model's window in tokens; by default that of the catalogue. For ``make_engine`` of your own it has
            no meaning.
        store: keeps every message and compaction, if given; without one nothing is written anywhere.
        conversation: names the conversation of all requests of this client.
        recall: offer the model tools that look things up in the store. Their calls are answered here, and the caller
            never sees them.
        cache: place cache markers in requests for Claude that have none.

    Raises:
        ConfigError: it is no client of these packages, or recall is asked for without a store.

    >>> from openai import OpenAI
    >>> client = wrap_client(OpenAI(api_key="any"), window=16_000)
    >>> isinstance(client, OpenAI)
    True
    """
    given: Any = client
    if make_engine is None and _WRAPPED in str(getattr(given, "base_url", "")):
        window = _ENDLESS  # the gateway of `everlong wrap` shortens it; a shortened one would be a new one to it
    bases = {base.__name__ for base in type(given).__mro__}
    homes = [base.__module__.partition(".")[0] for base in type(given).__mro__]
    package = next((home for home in homes if home in _PACKAGES), "")
    if not package or not bases & {_SYNC, _ASYNC}:
        raise ConfigError(
            f"wrap_client takes a client of the openai or anthropic package, not {type(given).__name__}; "
            "make one first, such as wrap_client(OpenAI())",
            key="client",
        )
    if isinstance(getattr(given, "_everlong", None), ClientConversations):
        raise ConfigError("this client is wrapped already; wrap the original one", key="client")
    check_text("conversation", conversation)
    if make_engine is not None:
        check_callable("make_engine", make_engine, "a function that makes an engine")
    if window is not None:
        check_count("window", window, "tokens")
    wrapped = given.copy()
    kind: Any = type(given)
    wrapped.__class__ = _wrapped_class(kind, _ASYNC in bases)
    conversations = ClientConversations(make_engine, window, store, conversation, OfferedTools(store, recall=recall))
    conversations.places_markers = cache
    library = import_module(package)
    conversations.absent = (library.Omit, library.NotGiven)
    wrapped._everlong = conversations  # noqa: SLF001 - an attribute of our own class
    return wrapped  # type: ignore[no-any-return]


# -- steps -------------------------------------------------------------------------------------------------------------


class _Send(NamedTuple):
    """A step: send a request; the result is the client's answer."""

    options: Any


class _Work(NamedTuple):
    """A step: do something that may take a while, such as compacting; the result is that of the function."""

    run: Callable[[], Any]


Steps = Generator[_Send | _Work, Any, Any]
"""The work of a request; returns the answer for the caller."""
Send = Callable[[Any], Any]


def _carry_out(steps: Steps, send: Send) -> Any:
    """Carry out steps in this thread."""
    act: Callable[[], Any] = partial(next, steps)
    while True:
        try:
            step = act()
        except StopIteration as done:
            return done.value
        try:
            result = step.run() if isinstance(step, _Work) else send(step.options)
        except Exception as error:  # noqa: BLE001 - the steps decide what it means
            act = partial(steps.throw, error)
        else:
            act = partial(steps.send, result)


async def _carry_out_async(steps: Steps, send: Send) -> Any:
    """Carry out steps on an event loop; work that takes a while runs in a thread."""
    act: Callable[[], Any] = partial(next, steps)
    while True:
        try:
            step = act()
        except StopIteration as done:
            return done.value
        try:
            result = await (asyncio.to_thread(step.run) if isinstance(step, _Work) else send(step.options))
        except Exception as error:  # noqa: BLE001 - as above
            act = partial(steps.throw, error)
        else:
            act = partial(steps.send, result)


@lru_cache(maxsize=64)
def _wrapped_class(kind: Any, is_async: bool) -> Any:
    """Return the subclass of a client's class that fits conversations."""

    def request(self: Any, cast_to: Any, options: Any, *, stream: bool = False, stream_cls: Any = None) -> Any:
        send = partial(kind.request, self, cast_to, stream=stream, stream_cls=stream_cls)
        conversations = self._everlong
        if conversations is None:
            return send(options)
        steps = conversations.steps(options, send, is_stream=stream)
        return _carry_out(steps, send)

    async def request_async(
        self: Any, cast_to: Any, options: Any, *, stream: bool = False, stream_cls: Any = None
    ) -> Any:
        send = partial(kind.request, self, cast_to, stream=stream, stream_cls=stream_cls)
        conversations = self._everlong
        if conversations is None:
            return await send(options)
        steps = conversations.steps(options, send, is_stream=stream)
        return await _carry_out_async(steps, send)

    def copy(self: Any, **options: Any) -> Any:
        made = kind.copy(self, **options)
        made._everlong = self._everlong  # noqa: SLF001 - as above
        return made

    own = {"request": request_async if is_async else request, "copy": copy, "with_options": copy, "_everlong": None}
    return type(kind.__name__, (kind,), {**own, "__module__": kind.__module__, "__doc__": kind.__doc__})


# -- conversations -----------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Draft:
    """A request that fits, with all that is needed to understand its answer."""

    options: Any
    body: Body
    fitted: Fitted
    tools: tuple[HiddenTool, ...]
    messages: list[Any]
    """The whole conversation that it stands for."""
    keeper: HistoryKeeper

    @property
    def hidden(self) -> frozenset[str]:
        return frozenset(tool.name for tool in self.tools)


class ClientConversations:
    """The conversations of a wrapped client and its copies."""

    def __init__(
        self,
        make_engine: MakeEngine | None,
        window: int | None,
        store: Store | None,
        conversation: str,
        offered: OfferedTools,
    ) -> None:
        self.places_markers = True
        self.absent: tuple[type, ...] = ()
        """The types whose values stand for fields that the caller has not given."""
        self._make_engine = make_engine
        self._window = window
        self._store = store
        self._conversation = conversation
        self._offered = offered
        self._counter = MessageCounter()
        self._keepers: dict[str, HistoryKeeper] = {}
        self._caches: WeakKeyDictionary[ContextEngine, PromptCache] = WeakKeyDictionary()

    def steps(self, options: Any, send: Send, *, is_stream: bool) -> Steps:
        """Carry a request to its answer; any other request of the client goes out as it is."""
        form, given = format_of(str(options.url)), options.json_data
        if form is None or not isinstance(given, Mapping):
            return (yield _Send(options))
        body: Body = yield _Work(partial(_whole_body, given, options.extra_json, self.absent))  # it may read files
        options = _replace_body(options, body)
        read = form.read(body)
        if read is None:
            return (yield _Send(options))
        is_plain = not _is_raw(options)
        rescue = OverflowRescue()
        make = partial(self._draft, form, options, read, rescue, hides=is_plain)
        while True:
            draft = yield _Work(make)
            try:
                answer = yield _Send(draft.options)
            except Exception as error:
                if not rescue.takes(error):
                    raise
                continue
            break
        if not is_plain:
            return answer
        if is_stream:
            if form.can_hide({**body, "store": False}):
                answer.response = _WatchedResponse(answer.response, _Watch(self, form, draft, make, rescue), send)
            return answer
        return (yield from self._look_up(form, draft, answer))

    def _look_up(self, form: ClientFormat, draft: _Draft, answer: Any) -> Steps:
        """Answer the calls of hidden tools in a whole answer, until there are none."""
        whole: dict[str, Any] = {}
        for left in reversed(range(ROUNDS)):
            whole = answer.to_dict(mode="json") if hasattr(answer, "to_dict") else {}
            lookups, others = find_lookups(form.api, whole, draft.hidden)
            if not lookups:
                break
            if others or not left:
                whole = hide_lookups(form.api, whole, draft.hidden)
                shown = type(answer).construct(**whole)
                shown._request_id = getattr(answer, "_request_id", None)  # noqa: SLF001 - documented by the clients
                answer = shown
                break
            draft = yield _Work(partial(self.answered, form, draft, whole))
            answer = yield _Send(draft.options)
        yield _Work(partial(self.finish, draft, form.reply(whole) if whole else None))
        return answer

    # -- requests ------------------------------------------------------------------------------------------------------

    def _draft(
        self,
        form: ClientFormat,
        options: Any,
        read: ReadBody,
        rescue: OverflowRescue,
        *,
        hides: bool,
    ) -> _Draft:
        body: Body = dict(options.json_data)
        model = str(body.get("model") or "")
        keeper = self._keeper(model, form.provider)
        tools = body.get("tools") if isinstance(body.get("tools"), list) else []
        fitted = keeper.fit(
            read.messages,
            conversation=self._conversation,
            model=model,
            overhead=self._counter.count_tools(tools),
            answer_tokens=form.answer_tokens(body),
            rescue=rescue,
        )
        is_view = fitted.messages != read.messages
        if is_view:
            body = form.write(body, read, fitted.messages)
        hidden: tuple[HiddenTool, ...] = ()
        if hides and form.can_hide(body) and (tools or is_view):
            hidden = self._offered.of(fitted.engine)
        if hidden:
            body = form.with_tools(body, hidden)
        if form.takes_markers and hides:
            body = self._mark(body, options.json_data, fitted.engine, model, is_view=is_view)
        sent = _replace_body(options, body)
        return _Draft(sent, body, fitted, hidden, read.messages, keeper)

    def answered(self, form: ClientFormat, draft: _Draft, whole: dict[str, Any]) -> _Draft:
        """Return the request to send after an answer that only called hidden tools."""
        lookups, _ = find_lookups(form.api, whole, draft.hidden)
        results = self._offered.answer(draft.fitted, lookups)
        used = sum(self._counter.count_text(text) for text in results.values())
        body = form.with_entries(draft.body, lookup_entries(form.api, whole, results))
        fitted = draft.fitted._replace(room=max(0, draft.fitted.room - used))
        return replace(draft, options=_replace_body(draft.options, body), body=body, fitted=fitted)

    def finish(self, draft: _Draft, reply: Reply | None) -> None:
        """Report an answer: its tokens to the engine, its words to the store."""
        if reply is None:
            return
        if reply.usage.prompt_tokens:
            draft.fitted.engine.update_from_response(reply.usage.to_dict())
        draft.keeper.take_reply(draft.messages, reply.message, conversation=self._conversation)

    def _keeper(self, model: str, provider: str) -> HistoryKeeper:
        """Return the keeper of a model's conversations; with engines of the caller's own there is one for all."""
        name = "" if self._make_engine is not None else model
        if name not in self._keepers:
            make = self._make_engine or partial(self._compressor, model, provider)
            self._keepers[name] = HistoryKeeper(make, store=self._store, platform="sdk")
        return self._keepers[name]

    def _compressor(self, model: str, provider: str) -> ContextEngine:
        window = self._window
        if window is None:
            from everlong.providers.catalogue import Catalogue  # noqa: PLC0415 - slow, and only asked for a window
            from everlong.providers.endpoints import ModelName, endpoint_for  # noqa: PLC0415 - as above

            window = Catalogue().info(ModelName(provider, model), endpoint_for(provider)).context_length
        return ContextCompressor(window, model=model or None)

    def _mark(
        self, body: Body, original: Mapping[str, Any], engine: ContextEngine, model: str, *, is_view: bool
    ) -> Body:
        """Return a body with cache markers: the caller's own as long as they hold, else markers of our own."""
        own = list(_markers_in(original))
        has_own = bool(own)
        if (has_own and not is_view) or not (has_own or self.places_markers):
            return body
        cache = self._caches.get(engine)
        if cache is None:
            is_long = any(isinstance(one, Mapping) and one.get("ttl") == "1h" for one in own)
            settings = {"cache_ttl": "1h"} if is_long else None
            cache = PromptCache(model, "anthropic", settings=settings)
            self._caches[engine] = cache
        return cache.apply(body)


def _markers_in(value: Any) -> Iterator[Any]:
    """Yield the cache markers of a body."""
    if isinstance(value, Mapping):
        for name, inner in value.items():
            if name == "cache_control":
                yield inner
            else:
                yield from _markers_in(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _markers_in(inner)


def _is_raw(options: Any) -> bool:
    """Return whether the answer is to be the bare HTTP response."""
    return isinstance(options.headers, Mapping) and _RAW_HEADER in {str(name).lower() for name in options.headers}


def _whole_body(body: Mapping[str, Any], extra: Mapping[str, Any] | None, absent: tuple[type, ...]) -> Body:
    """Return the body that the client will send: with ``extra_body``, and without the fields that are not given."""
    whole: Body = _plain({**body, **(extra or {})}, absent)
    return whole


def _plain(value: Any, absent: tuple[type, ...]) -> Any:
    """Return a value as plain data: dicts for the client's own objects, lists for iterators, base64 for files."""
    if isinstance(value, Mapping):
        plain = {name: _plain(inner, absent) for name, inner in value.items() if not isinstance(inner, absent)}
        if plain.get("type") == "base64" and "data" in plain:  # the only place where the clients take files
            plain["data"] = _file_text(plain["data"])
        return plain
    if hasattr(value, "model_dump"):
        return value.model_dump(mode="json", exclude_unset=True, by_alias=True)
    if isinstance(value, str | bytes | bytearray) or hasattr(value, "read") or not isinstance(value, Iterable):
        return value
    return [_plain(inner, absent) for inner in value]


def _file_text(data: Any) -> Any:
    """Return the base64 text of a path or an open file; any other value as it is."""
    if not isinstance(data, Path) and not hasattr(data, "read"):
        return data
    content = data.read_bytes() if isinstance(data, Path) else data.read()
    return b64encode(content.encode() if isinstance(content, str) else content).decode("ascii")


def _replace_body(options: Any, body: Body) -> Any:
    changed = options.model_copy()
    changed.json_data, changed.extra_json = body, None
    return changed


# -- streams -----------------------------------------------------------------------------------------------------------


class _Watch:
    """The watch over one stream: hides look-ups, sends their results, and hears what was said."""

    def __init__(
        self,
        conversations: ClientConversations,
        form: ClientFormat,
        draft: _Draft,
        make: Callable[[], _Draft],
        rescue: OverflowRescue,
    ) -> None:
        self._conversations = conversations
        self._form = form
        self._draft = draft
        self._make = make
        self._rescue = rescue
        self._left = ROUNDS
        self._others = True
        self.hiding: Hiding = hiding_for(form.api, draft.hidden)

    def after(self) -> Steps:
        """Do what a stream's end asks for; return the stream that goes on, None if it is over."""
        refused = self.hiding.refusal
        if refused is not None and self._rescue.takes(RuntimeError(refused)):
            self._draft = yield _Work(self._make)
            self.hiding.again()
            return (yield _Send(self._draft.options))
        whole = self.hiding.whole()
        if whole is None:  # it broke off: the client raises what it makes of that
            return None
        lookups, self._others = find_lookups(self._form.api, whole, self._draft.hidden)
        self._left -= 1
        if lookups and not self._others and self._left:
            self._draft = yield _Work(partial(self._conversations.answered, self._form, self._draft, whole))
            self.hiding.again()
            return (yield _Send(self._draft.options))
        said = hide_lookups(self._form.api, whole, self._draft.hidden) if lookups else whole
        self._others = self._others or not lookups
        yield _Work(partial(self._conversations.finish, self._draft, self._form.reply(said)))
        return None

    def end(self) -> bytes:
        """Return the end of the stream, which was held back."""
        return self.hiding.end(has_calls=self._others)


class _WatchedResponse:
    """An HTTP response whose bytes pass a watch; all else is the response itself."""

    def __init__(self, response: Any, watch: _Watch, send: Send) -> None:
        self._response = response
        self._watch = watch
        self._send = send

    def __getattr__(self, name: str) -> Any:
        return getattr(self._response, name)

    def iter_bytes(self) -> Iterator[bytes]:
        """Yield the bytes that the client sees."""
        stream: Any = self
        while stream is not None:
            for chunk in self._response.iter_bytes():
                if shown := self._watch.hiding.take(chunk):
                    yield shown
            stream = _carry_out(self._watch.after(), self._send)
            if stream is not None:
                self._response.close()
                self._response = stream.response
        if last := self._watch.end():
            yield last

    async def aiter_bytes(self) -> AsyncIterator[bytes]:
        """Yield the bytes that the client sees."""
        stream: Any = self
        while stream is not None:
            async for chunk in self._response.aiter_bytes():
                if shown := self._watch.hiding.take(chunk):
                    yield shown
            stream = await _carry_out_async(self._watch.after(), self._send)
            if stream is not None:
                await self._response.aclose()
                self._response = stream.response
        if last := self._watch.end():
            yield last
