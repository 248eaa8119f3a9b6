"""The common base of the adapters: a whole history goes in at every call, messages that fit the window come out.

`HistoryKeeper` remembers each compacted view by the hash of the history that it stands for, and sends it again with
the new messages behind it until the next compaction is due. So the beginning of the requests stays the same, as prompt
caches need it. Histories that were edited, rewound or forked are recognized by their common beginning. Messages are in
the OpenAI format.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Hashable, Iterable, Mapping, Sequence
from copy import copy
from itertools import takewhile
from threading import Lock
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

from everlong.context import ContextCompressor, ContextEngine, repair_messages
from everlong.context.oversized import SpillLimits
from everlong.context.policy import OVERFLOW_MARGIN, OVERFLOW_TRIES, overflow_target, room_in
from everlong.errors import ConfigError, EverlongError, TargetUnreachable
from everlong.model import (
    HashChain,
    Message,
    leading_system_count,
    text_of,
    title_from,
    with_part_appended,
    without_thinking,
)
from everlong.providers.failures import overflow_numbers
from everlong.tokens import MessageCounter, counter_for

if TYPE_CHECKING:
    from everlong.agent.tools.hidden_tools import HiddenTool, RecallLookup
    from everlong.store import Branch, Store

__all__ = [
    "Fitted",
    "HistoryKeeper",
    "MakeEngine",
    "Newest",
    "OfferedTools",
    "Originals",
    "OverflowRescue",
    "arguments_of",
    "refused_window",
    "send_fitting",
    "send_fitting_async",
]

MakeEngine = Callable[[], ContextEngine]
"""A function that makes an engine; every conversation has its own."""

_log = logging.getLogger(__name__)

_REMEMBERED = 2_000
"""The number of remembered places in conversations; older ones are compacted again when due."""
_GROWTH = 1.05
"""The factor by which a list that a compaction left over the threshold must grow before the next compaction."""

_Original = TypeVar("_Original")
_Value = TypeVar("_Value")
_Sent = TypeVar("_Sent")
_Answer = TypeVar("_Answer")


class Fitted(NamedTuple):
    """The messages to send, and the engine that must hear of the response."""

    messages: list[Message]
    engine: ContextEngine
    at: Branch | None = None
    """The place of the conversation in the store, if there is one."""
    room: int = 0
    """The tokens that the window still holds beside this request."""

    def report(self, prompt: int | None, answer: int | None) -> None:
        """Report the provider's counts, if there are any, to the engine, which decides and calibrates by them."""
        if prompt:
            counts = {"prompt_tokens": prompt, "completion_tokens": answer or 0}
            self.engine.update_from_response({**counts, "total_tokens": prompt + (answer or 0)})


class OverflowRescue:
    """The refusals of one request as too long: each says how to fit it into the window once more."""

    def __init__(self) -> None:
        self.window: int | None = None
        """The window that the last refusal named, 0 if it named none; None before the first refusal."""
        self.refusals = 0

    def takes(self, error: Exception) -> bool:
        """Take in an error; return whether to fit and send the request once more."""
        window = refused_window(error)
        if window is None or self.refusals >= OVERFLOW_TRIES:
            return False
        self.window, self.refusals = window, self.refusals + 1
        return True


def send_fitting(fit: Callable[[OverflowRescue], _Sent], send: Callable[[_Sent], _Answer]) -> tuple[_Answer, _Sent]:
    """Return the answer to a request and the request; one that is refused as too long is fitted and sent once more."""
    rescue = OverflowRescue()
    while True:
        sent = fit(rescue)
        try:
            return send(sent), sent
        except Exception as error:  # each provider's client has its own
            if not rescue.takes(error):
                raise


async def send_fitting_async(
    fit: Callable[[OverflowRescue], _Sent], send: Callable[[_Sent], Awaitable[_Answer]]
) -> tuple[_Answer, _Sent]:
    """Do the same on an event loop; fitting, which may ask a model, runs in a thread."""
    rescue = OverflowRescue()
    while True:
        sent = await asyncio.to_thread(fit, rescue)
        try:
            return await send(sent), sent
        except Exception as error:
            if not rescue.takes(error):
                raise


class _Turns:
    """An engine and the last place that it has seen; a history that continues from another place gets a new engine."""

    def __init__(self, engine: ContextEngine) -> None:
        self.engine = engine
        self.lock = Lock()
        self.at: Hashable = None
        self.place: Branch | None = None
        """The place in the store, for an engine that reads there."""
        self.session: str | None = None
        """The session there, as which people find the conversation."""


class _HistoryLine(NamedTuple):
    """A conversation up to a place: its engine, and the view that replaces its first messages."""

    turns: _Turns
    covered: int = 0
    view: tuple[Message, ...] = ()
    note: str = ""
    floor: float = 0.0
    """The size up to which compacting is known not to help."""


class _Request(NamedTuple):
    """A whole history on its way to the model."""

    history: list[Message]
    start: int
    """The number of its leading system messages."""
    overhead: int
    at: Branch | None


class HistoryKeeper:
    """Keeps any number of conversations inside their windows.

    Args:
        make_engine: makes an engine for each conversation, such as ``lambda: ContextCompressor(128_000)``.
        store: keeps every message and compaction, if given; views then outlive the process.
        platform: the name of the framework, for the engines.
    """

    def __init__(self, make_engine: MakeEngine, *, store: Store | None = None, platform: str = "library") -> None:
        self._make_engine = make_engine
        self._store = store
        self._platform = platform
        self._chain = HashChain()
        self._counter = MessageCounter()
        self._lines: Newest[_HistoryLine] = Newest(_REMEMBERED)

    def fit(
        self,
        messages: Sequence[Message],
        *,
        conversation: str = "",
        model: str = "",
        overhead: int = 0,
        answer_tokens: int = 0,
        rescue: OverflowRescue | None = None,
    ) -> Fitted:
        """Return the messages to send in place of a whole conversation.

        Args:
            messages: the whole conversation, with its system prompt first.
            conversation: its name, if the framework has one; a conversation without a name is recognized by its words.
            model: the name of the model, if known.
            overhead: further tokens of the request, such as the schemas of tools.
            answer_tokens: the longest answer that the request asks for, if it says so.
            rescue: the refusals of this request as too long, if the adapter can send it again.
        """
        history = repair_messages(list(messages))
        start = leading_system_count(history)
        nodes = self._chain.nodes(history[start:])
        places = [(conversation, at, node.id) for at, node in enumerate(nodes, 1)]
        line = self._line(places, conversation)
        engine = line.turns.engine
        with line.turns.lock:  # engines take one turn at a time; other conversations go on
            for name, value in (("overhead_tokens", overhead), ("answer_tokens", answer_tokens)):
                if hasattr(engine, name):
                    setattr(engine, name, value)
            request = _Request(history, start, overhead, self._record(line, history, conversation))
            current = self._current(line, request)
            size = self._size(engine, current, overhead)
            refusals = 0 if rescue is None else rescue.refusals
            if rescue is not None and rescue.window is not None:
                window = rescue.window or int(size * OVERFLOW_MARGIN)
                if window < engine.context_length:
                    engine.update_model(model, window)  # the window is smaller than known
            if self._spill(engine, request, current, newest_only=True):
                current = self._current(line, request)
                size = self._size(engine, current, overhead)
            if refusals or (size > line.floor and _is_due(engine, current, size)):
                line = self._shorten(line, request, refusals)
                current = self._current(line, request)
                after = self._size(engine, current, overhead)
                if self._spill(engine, request, current):
                    current = self._current(line, request)
                    after = self._size(engine, current, overhead)
                floor = after * _GROWTH if after >= size or engine.should_compress(after) else 0.0
                line, size = line._replace(floor=floor), after
        if places:
            line.turns.at = places[-1]
            self._lines.put(places[-1], line)
        return Fitted(current, engine, request.at, max(0, room_in(engine.context_length, answer_tokens) - size))

    def take_reply(self, messages: Sequence[Message], reply: Message, *, conversation: str = "") -> None:
        """Store the answer to a conversation, if there is a store; else the next request brings it."""
        if self._store is None:
            return
        try:
            self._store.record([*repair_messages(list(messages)), reply], conversation=conversation)
        except EverlongError as error:  # the answer is there, and must reach its reader
            _log.warning("an answer could not be stored: %s", error)

    def _record(self, line: _HistoryLine, history: list[Message], conversation: str) -> Branch | None:
        if self._store is None:
            return None
        before, at = line.turns.place, self._store.record(history, conversation=conversation)
        if before is None or before.id != at.id:
            opening = takewhile(lambda message: message["role"] != "assistant", history)
            title = title_from(list(map(self._store.cleaned, opening)))
            line.turns.session = self._store.sessions.start_once(at, platform=self._platform, title=title)
        line.turns.place = at
        return at

    def _current(self, line: _HistoryLine, request: _Request) -> list[Message]:
        """Return the present form of a history: the view, and all messages after it."""
        history, start = request.history, request.start
        if self._store is not None and request.at is not None:
            from everlong.store.compaction import see  # noqa: PLC0415 - only those with a store load it

            seen = see(self._store, request.at)  # others who said the same have system prompts of their own
            system = seen.system._replace(given=history[:start]).messages()
            return [*system, *(one.message for one in seen.sent if one.message is not None)]
        return [*_add_note(history[:start], line.note), *line.view, *history[start + line.covered :]]

    def _shorten(self, line: _HistoryLine, request: _Request, refusals: int) -> _HistoryLine:
        """Compact a conversation; one that was refused as too long is cut further each time."""
        if not refusals:
            return self._compact(line, request, "preflight")
        engine = line.turns.engine
        size = self._size(engine, self._current(line, request), request.overhead)
        if refusals == 1:
            line = self._compact(line, request, "overflow", force=True)
            if self._size(engine, self._current(line, request), request.overhead) < OVERFLOW_MARGIN * size:
                return line
        fixed = self._size(engine, [], request.overhead)
        target = overflow_target(size, refusals - 1, fixed=fixed)
        try:
            return self._compact(line, request, "overflow", force=True, target_tokens=target)
        except TargetUnreachable as unreachable:
            if unreachable.least >= size - fixed:
                return line
            return self._compact(line, request, "overflow", force=True, target_tokens=unreachable.least)

    def _compact(self, line: _HistoryLine, request: _Request, reason: str, **options: Any) -> _HistoryLine:
        engine = line.turns.engine
        if self._store is not None and request.at is not None:
            from everlong.store import Occasion  # noqa: PLC0415 - only those with a store load it

            self._store.compact(request.at, engine, Occasion(reason, line.turns.session), **options)
            return line
        history, start, current = request.history, request.start, self._current(line, request)
        shorter = repair_messages(engine.compress(list(current), **options))
        if self._counter.total(shorter) >= self._counter.total(current):
            return line
        end = leading_system_count(shorter)
        note = line.note + _note_between(_add_note(history[:start], line.note), shorter[:end])
        return line._replace(covered=len(history) - start, view=tuple(map(without_thinking, shorter[end:])), note=note)

    def _spill(
        self, engine: ContextEngine, request: _Request, current: list[Message], *, newest_only: bool = False
    ) -> bool:
        """Put stubs in the place of messages that no window holds; only a store keeps the whole of them.

        With ``newest_only`` the new messages, if they alone are more than a window holds.
        """
        if self._store is None or request.at is None or engine.context_length <= 0:
            return False
        room = room_in(engine.context_length)
        if self._size(engine, current, request.overhead) < room:
            return False
        from everlong.store.compaction import OVERSIZED  # noqa: PLC0415 - only those with a store load it

        fixed = self._size(engine, current[: leading_system_count(current)], request.overhead)
        limits = SpillLimits(max(1, room - fixed), self._counter, newest_only=newest_only)
        return self._store.spill(request.at, limits, OVERSIZED).outcome == "compacted"

    def _size(self, engine: ContextEngine, messages: list[Message], overhead: int) -> int:
        """Return the size by the engine's own count, if it has one, because reports of the provider calibrate it."""
        estimate = getattr(engine, "estimate_tokens", self._counter.total)
        return int(estimate(messages)) + (0 if hasattr(engine, "overhead_tokens") else overhead)

    # -- recognizing conversations -----------------------------------------------------------------------------------

    def _line(self, places: list[tuple[str, int, bytes]], conversation: str) -> _HistoryLine:
        """Return the line that a history continues; a new one if the history has parted from another conversation."""
        known = ((place, self._lines.get(place)) for place in reversed(places))
        place, line = next((one for one in known if one[1] is not None), (None, None))
        if line is not None and line.turns.at == place:
            return line
        turns = _Turns(self._engine(conversation))
        if self._store is not None and callable(attach := getattr(turns.engine, "attach", None)):
            attach(self._store.graph(lambda: turns.place))
        return _HistoryLine(turns) if line is None else line._replace(turns=turns)

    def _engine(self, conversation: str) -> ContextEngine:
        engine = _guard(self._make_engine())
        known = {"platform": self._platform, "conversation_id": conversation, "context_length": engine.context_length}
        engine.on_session_start(conversation or self._platform, **known)
        return engine


class OfferedTools:
    """The tools of an adapter's conversations, and the answers to their calls.

    Args:
        store: the store of the conversations, if there is one.
        recall: offer the tools that look things up in the store.

    Raises:
        ConfigError: recall is asked for without a store.
    """

    def __init__(self, store: Store | None, *, recall: bool = False) -> None:
        if recall and store is None:
            raise ConfigError("recall reads from a store, and none is given; pass store=Store.open(PATH)", key="recall")
        self._store = store
        self._recall = recall
        self._counter = counter_for()

    def of(self, engine: ContextEngine) -> tuple[HiddenTool, ...]:
        """Return the tools to offer beside an engine; always the same, because a changed prompt is not cached."""
        from everlong.agent.tools.hidden_tools import TOOLS, tools_to_hide  # noqa: PLC0415 - only requests load the agent's

        return tools_to_hide(engine, _log.warning) or (TOOLS if self._recall else ())

    def answer(self, fitted: Fitted, lookups: Sequence[RecallLookup]) -> dict[str, str]:
        """Return the answers to calls of these tools, in what room the window has left; blocks."""
        from everlong.agent.tools.hidden_tools import look_up_all  # noqa: PLC0415 - as above

        engine = fitted.engine
        if self._store is not None and fitted.at is not None and hasattr(engine, "attach"):
            own: Any = copy(engine)  # others who said the same so far may have gone on with the engine
            own.attach(self._store.graph(fitted.at))
            engine = own

        def call(name: str, arguments: Mapping[str, Any]) -> str:
            return engine.handle_tool_call(name, dict(arguments), messages=fitted.messages)

        room, window = fitted.room, engine.context_length
        return look_up_all(self._store, fitted.at, list(lookups), room, self._counter, call, window)

    def call(self, fitted: Fitted | None, name: str, arguments: Mapping[str, Any]) -> str:
        """Return the answer to one call, for frameworks that run tools themselves."""
        from everlong.agent.tools.hidden_tools import RecallLookup  # noqa: PLC0415 - as above

        if fitted is None:
            return "[nothing of this conversation is known yet; all of it is in sight]"
        return self.answer(fitted, [RecallLookup("call", name, arguments)])["call"]


class Newest(Generic[_Value]):
    """The newest values by key; a process that serves for months forgets the oldest. Any thread may use it."""

    def __init__(self, most: int = 500) -> None:
        self._most = most
        self._values: OrderedDict[Hashable, _Value] = OrderedDict()
        self._lock = Lock()

    def put(self, key: Hashable, value: _Value) -> None:
        """Keep a value as the newest one."""
        with self._lock:
            self._values[key] = value
            self._values.move_to_end(key)
            while len(self._values) > self._most:
                self._values.popitem(last=False)

    def get(self, key: Hashable) -> _Value | None:
        """Return the value of a key; None if there is none any more."""
        with self._lock:
            return self._values.get(key)


class Originals(Generic[_Original]):
    """The framework's own objects by message, so that kept messages are sent unchanged."""

    def __init__(self, pairs: Iterable[tuple[Message, _Original]]) -> None:
        self._found: dict[str, _Original] = {}
        self._results: dict[str, _Original] = {}
        for message, original in pairs:
            self._found[_key(message)] = original
            if message["role"] == "tool":
                self._results[str(message.get("tool_call_id"))] = original

    def of(self, message: Message) -> _Original | None:
        """Return the original of a message; None for one that a compaction wrote or changed."""
        return self._found.get(_key(message))

    def result_of(self, message: Message) -> _Original | None:
        """Return the original of a tool result that was cleared or shortened."""
        return self._results.get(str(message.get("tool_call_id"))) if message["role"] == "tool" else None


def arguments_of(text: str) -> dict[str, Any] | None:
    """Return the arguments of a call; None where the model wrote something else than a JSON object."""
    try:
        found = json.loads(text.strip() or "{}", strict=False)  # models write line breaks into strings as they are
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def refused_window(error: Exception) -> int | None:
    """Return the window that an API's refusal of a too long request names, 0 if none; None for other errors."""
    body, code = getattr(error, "body", None), getattr(error, "code", None)
    numbers = overflow_numbers(str(error), body if isinstance(body, Mapping) else {}, {str(code)})
    return None if numbers is None else numbers[1] or 0


def _guard(engine: ContextEngine) -> ContextEngine:
    """Return an engine that cannot break a turn: one that is not built in runs behind a guard."""
    if isinstance(engine, ContextCompressor):
        return engine
    from everlong.plugins.engines import adopt  # noqa: PLC0415 - only those with another engine load it
    from everlong.plugins.guard import GuardedEngine  # noqa: PLC0415 - as above

    own = adopt(engine)
    return GuardedEngine(own, lambda: ContextCompressor(own.context_length or 128_000), warn=_log.warning)


def _key(message: Message) -> str:
    return json.dumps(message, sort_keys=True, default=str)


def _is_due(engine: ContextEngine, messages: list[Message], size: int) -> bool:
    return engine.should_compress_preflight(messages) or engine.should_compress(size)


def _add_note(system: list[Message], note: str) -> list[Message]:
    if not note or not system:
        return system
    return [*system[:-1], with_part_appended(system[-1], note)]


def _note_between(before: list[Message], after: list[Message]) -> str:
    """Return the note that a compaction appended to the system prompt."""
    old, new = ("\n".join(map(text_of, messages)) for messages in (before, after))
    return new[len(old) :].strip() if new.startswith(old) else ""
