"""Containment: an engine that raises, hangs, lies or forgets cannot break a turn.

`GuardedEngine` stands between the host and any engine that is not built in. Every call runs under a time limit on
copies of what the host has; what comes back is checked and mended; where nothing can be mended the built-in
compressor does that turn's work. Faults are told once per kind, and all of them are kept. No sandbox: a plugin runs
with its user's rights.
"""

from __future__ import annotations

import copy
import json
import traceback
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeVar

from everlong.caching import estimate_messages_tokens_rough
from everlong.context import CompactionReport, ContextCompressor, ContextEngine
from everlong.errors import TargetUnreachable
from everlong.model import Message
from everlong.plugins.adapters.host_state import Host, running_in
from everlong.plugins.checking import (
    CONSEQUENCES,
    FIGURES,
    EngineFault,
    FaultKind,
    Unusable,
    as_flag,
    as_kept,
    as_schemas,
    as_status,
    as_text,
    checked_output,
    figures_of,
    given_list,
    name_of,
    wanted_arguments,
)
from everlong.plugins.running import Failed, Overrun, Runner

__all__ = ["EngineFault", "FaultKind", "GuardedEngine", "compressor_of", "compressors_in"]

T = TypeVar("T")

_MOST_FAULTS = 100
_TOLERANCE = 1.01
"""A result that is a little longer by our count may be shorter by the engine's."""
_FULL = 0.85
"""An engine may leave a list as it is, for as long as this much of the window is not reached."""


def compressor_of(engine: ContextEngine) -> ContextCompressor | None:
    """The engine as a built-in compressor, where it is one or is derived from one."""
    inside = engine.inner if isinstance(engine, GuardedEngine) else engine
    return inside if isinstance(inside, ContextCompressor) else None


def compressors_in(engine: ContextEngine) -> list[ContextCompressor]:
    """The built-in compressors that work behind an engine: itself, what it is derived from, the one that stands in."""
    behind = [engine.inner, engine.fallback] if isinstance(engine, GuardedEngine) else [engine]
    return [one for one in behind if isinstance(one, ContextCompressor)]


class GuardedEngine(ContextEngine):
    """An engine that cannot break a turn, whatever the one inside does.

    Args:
        engine: the engine inside, of any base class.
        fallback: makes the engine that stands in for it.
        seconds: what one call may take; models that it asks through Everlong do not count.
        warn: told each kind of fault once.
        record: told every fault.
        host: what the engine is given where it asks for settings and models.
    """

    def __init__(
        self,
        engine: ContextEngine,
        fallback: Callable[[], ContextEngine],
        *,
        seconds: float = 60.0,
        warn: Callable[[str], None] = lambda _: None,
        record: Callable[[EngineFault], None] = lambda _: None,
        host: Host | None = None,
        runner: Runner | None = None,
    ) -> None:
        self.inner = engine
        self.fallback = fallback()
        self.host = host
        self.check: Callable[[], None] | None = None
        """Called while a compaction is waited for; whoever can be interrupted raises there."""
        self.is_off = False
        """Whether the engine inside is left alone for good, because it did not come back in time."""
        self.faults: deque[EngineFault] = deque(maxlen=_MOST_FAULTS)
        self._count = 0
        self._stands_in = False
        self.last_fault: str | None = None
        """What went wrong in the last compaction; None where nothing did."""
        self._runner = runner or Runner("everlong-engine", seconds)
        self._warn = warn
        self._record = record
        self._told: set[FaultKind] = set()
        self._unread: set[str] = set()
        """Figures that could not be read, each of which is told once."""
        self._report: CompactionReport | None = None
        self._name = type(engine).__name__
        self._name = self._tried("name", lambda: name_of(engine), lambda: self._name)

    @property
    def name(self) -> str:
        """The name of the engine inside."""
        return self._name

    @property
    def last_report(self) -> CompactionReport | None:
        """What the last compaction did, where whoever did it told."""
        return self._report

    # -- calling -------------------------------------------------------------------------------------------------------

    def _tried(self, method: str, work: Callable[[], T], otherwise: Callable[[], T]) -> T:
        """What the engine inside says, or what is said in its place; its figures are read in the same go."""
        if self.is_off:
            return otherwise()
        try:
            value, (figures, raised) = self._runner.call(
                lambda: self._worked(work), self.check if method == "compress" else None
            )
        except Overrun as overrun:
            self.is_off = True
            self._fault("time", method, f"did not come back from {method}() in time: {overrun}")
            return otherwise()
        except Failed as failed:
            error = failed.error
            if not _is_its_own(error):
                raise error from None
            if isinstance(error, Unusable):
                self._fault("type", method, f"returned a wrong type: {method}() {error}")
            else:
                self._fault("raised", method, f"raised {type(error).__name__} in {method}(): {error}", error)
            return otherwise()
        self._take(figures)
        for name, problem in raised.items():
            if name not in self._unread:
                self._unread.add(name)
                self._fault("raised", name, f"raised {type(problem).__name__} when {name} was read", problem)
        return value

    def _worked(self, work: Callable[[], T]) -> tuple[T, tuple[dict[str, Any], dict[str, Exception]]]:
        with running_in(self.host):
            return work(), figures_of(self.inner)

    def _take(self, figures: Mapping[str, Any]) -> None:
        for name in FIGURES:
            setattr(self, name, figures.get(name, getattr(self.fallback, name)))
        self.context_length = self.fallback.context_length  # which is the model's, whatever the engine says

    def _asked(self, method: str, *args: Any, **options: Any) -> Any:
        """Call a method of the engine inside with as much as it takes; None where it has no such method."""
        found = getattr(self.inner, method, None)
        if not callable(found):
            return None
        return found(*args, **wanted_arguments(found, options))

    def _fault(self, kind: FaultKind, method: str, text: str, error: BaseException | None = None) -> None:
        trace = "".join(traceback.format_exception(error)) if error is not None else ""
        fault = EngineFault(kind, method, text, trace)
        self.faults.append(fault)
        self._count += 1
        self._record(fault)
        if kind not in self._told:
            self._told.add(kind)
            self._warn(f"the context engine {self._name!r} {text}; {CONSEQUENCES[kind]}")

    # -- watching the conversation -------------------------------------------------------------------------------------

    def update_from_response(self, usage: dict[str, Any]) -> None:
        """Tell both engines what the provider reported; the one that stands in must be ready at any time."""
        self.fallback.update_from_response(dict(usage))
        self._tried("update_from_response", lambda: self._asked("update_from_response", dict(usage)), lambda: None)
        self._follow()

    def should_compress(self, prompt_tokens: int | None = None) -> bool:
        """What the engine inside says; what the built-in one would say where it says nothing usable."""
        otherwise = partial(self.fallback.should_compress, prompt_tokens)
        if self._stands_in:  # whoever did it last knows best whether it is worth doing again
            return otherwise()
        return self._tried("should_compress", lambda: as_flag(self._asked("should_compress", prompt_tokens)), otherwise)

    def should_compress_preflight(self, messages: list[Message]) -> bool:
        """Ask with a copy of the messages; the one that stands in calibrates itself by them."""
        otherwise = self.fallback.should_compress_preflight(messages)
        given = given_list(messages)
        said = self._tried(
            "should_compress_preflight",
            lambda: as_flag(self._asked("should_compress_preflight", given) or False),
            lambda: otherwise,
        )
        return otherwise if self._stands_in else said

    def has_content_to_compress(self, messages: list[Message]) -> bool:
        """Ask with a copy of the messages."""
        if not hasattr(type(self.inner), "has_content_to_compress"):
            return True
        given = given_list(messages)
        return self._tried(
            "has_content_to_compress",
            lambda: as_flag(self._asked("has_content_to_compress", given)),
            lambda: self.fallback.has_content_to_compress(messages),
        )

    def estimate_tokens(self, messages: Sequence[Message]) -> int:
        """The prompt tokens of a request, as the built-in engine counts them."""
        estimate = getattr(self.fallback, "estimate_tokens", estimate_messages_tokens_rough)
        return int(estimate(messages))

    def _follow(self) -> None:
        """Where the engine inside is off, the figures are those of the one that stands in."""
        if self.is_off:
            self._take({})

    # -- compacting ----------------------------------------------------------------------------------------------------

    def compress(
        self,
        messages: list[Message],
        current_tokens: int | None = None,
        focus_topic: str | None = None,
        **options: Any,
    ) -> list[Message]:
        """A shorter list that can be sent; of the engine inside where that is possible."""
        self.last_fault, self._report = None, None
        wishes = {"current_tokens": current_tokens, "focus_topic": focus_topic, **options}
        before = self._count
        found = self._tried("compress", lambda: self._compacted(messages, wishes), lambda: None)
        result = self._accepted(messages, found) if found is not None else None
        if self._count > before or self.is_off:
            self.last_fault = self.faults[-1].text
        self._stands_in = result is None
        if result is None:
            return self._stood_in(messages, wishes)
        self._report = _report_of(self.inner)
        target = options.get("target_tokens")
        if target is not None and self.estimate_tokens(result) - self.estimate_tokens([]) > target:
            # An engine need not know of targets; a request that was refused as too long has to become shorter.
            result = self.fallback.compress(result, **wanted_arguments(self.fallback.compress, wishes))
        self._settle(result)
        return result

    def _compacted(self, messages: list[Message], wishes: dict[str, Any]) -> _Compacted:
        """Run in the engine's thread, on copies without the marks by which the store knows its messages again."""
        plain, given = given_list(messages), given_list(messages)
        origins = {id(one): message for copies in (plain, given) for one, message in zip(copies, messages, strict=True)}
        made = self._asked("compress", list(given), **wishes)
        try:
            checked = checked_output(plain, made)
        except Unusable as wrong:
            return _Compacted([], [], str(wrong))
        kept = [as_kept(message, origins.get(id(message))) for message in checked.messages]
        return _Compacted(kept, checked.repairs, "")

    def _accepted(self, messages: list[Message], found: _Compacted) -> list[Message] | None:
        if found.problem:
            self._fault("list", "compress", f"compress() {found.problem}")
            return None
        # By one measure for both: of what was sent the exact count is known, of what is new only an estimate.
        before, after = map(estimate_messages_tokens_rough, (messages, found.messages))
        if after > before * _TOLERANCE:
            self._fault("growth", "compress", f"compress() made {after:,} tokens of {before:,}")
            return None
        tokens, window = self.estimate_tokens(messages), self.fallback.context_length
        if after >= before and tokens >= _FULL * window:
            self._fault("full", "compress", f"compress() left {tokens:,} tokens as they were in a window of {window:,}")
            return None
        if found.repairs:
            self._fault("repaired", "compress", f"compress() {' and '.join(found.repairs)}")
        return found.messages

    def _stood_in(self, messages: list[Message], wishes: dict[str, Any]) -> list[Message]:
        result = self.fallback.compress(messages, **wanted_arguments(self.fallback.compress, wishes))
        report = _report_of(self.fallback)
        if report is not None and self.last_fault is not None:
            report = replace(report, fallback_reason=f"{self._name} {self.last_fault}")
        self._report = report
        self._settle(result)
        self._follow()
        return result

    def _settle(self, result: list[Message]) -> None:
        """After a compaction, the figure that thresholds are held against is that of the new list."""
        tokens = self.estimate_tokens(result)
        self.fallback.last_prompt_tokens = tokens
        if self.last_prompt_tokens > tokens or self.last_prompt_tokens <= 0:
            self.last_prompt_tokens = tokens
            self._tried("last_prompt_tokens", lambda: _put(self.inner, "last_prompt_tokens", tokens), lambda: None)

    # -- a session's life ----------------------------------------------------------------------------------------------

    def on_session_start(self, session_id: str, **kwargs: Any) -> None:
        """Tell both engines."""
        self.fallback.on_session_start(session_id, **kwargs)
        if self.host is not None:
            facts = {"session_id": session_id, **kwargs}
            self.host.session.update({key: str(facts[key]) for key in _SESSION if facts.get(key)})
        self._tried("on_session_start", lambda: self._asked("on_session_start", session_id, **kwargs), lambda: None)

    def on_session_end(self, session_id: str, messages: list[Message]) -> None:
        """Tell both engines; the messages are a copy."""
        given = given_list(messages)
        self.fallback.on_session_end(session_id, messages)
        self._tried("on_session_end", lambda: self._asked("on_session_end", session_id, given), lambda: None)

    def on_session_reset(self) -> None:
        """Tell both engines."""
        self.fallback.on_session_reset()
        self._tried("on_session_reset", lambda: self._asked("on_session_reset"), lambda: None)
        self._follow()

    def update_model(
        self,
        model: str,
        context_length: int,
        base_url: str = "",
        api_key: str = "",
        provider: str = "",
        **kwargs: Any,
    ) -> None:
        """Tell both engines; the window that counts is that of the model, whatever the engine says."""
        facts = {"base_url": base_url, "api_key": api_key, "provider": provider, **kwargs}
        self.fallback.update_model(model, context_length, **facts)
        self._tried("update_model", lambda: self._asked("update_model", model, context_length, **facts), lambda: None)
        self._follow()

    # -- tools and status ----------------------------------------------------------------------------------------------

    def get_tool_schemas(self) -> list[dict[str, Any]]:
        """The schemas that can be offered to a model."""
        return self._tried("get_tool_schemas", lambda: as_schemas(self._asked("get_tool_schemas")), list)

    def handle_tool_call(self, name: str, args: dict[str, Any], **kwargs: Any) -> str:
        """The tool's answer; the model is told where it failed."""
        given, facts = copy.deepcopy(args), copy.deepcopy(kwargs)
        if isinstance(facts.get("messages"), list):
            facts["messages"] = given_list(facts["messages"])
        before = self._count
        answer = self._tried(
            "handle_tool_call",
            lambda: as_text(self._asked("handle_tool_call", name, given, **facts)),
            lambda: "",
        )
        if answer or (self._count == before and not self.is_off):
            return answer
        why = self.faults[-1].text if self.faults else "is off"
        return json.dumps({"error": f"the tool {name} is not available: its engine {why}"})

    def get_status(self) -> dict[str, Any]:
        """The figures, with whatever the engine adds to them."""
        usual = super().get_status()
        own = self._tried("get_status", lambda: as_status(self._asked("get_status")), dict[str, Any])
        return {**usual, **own, "engine": self._name, **({"off": True} if self.is_off else {})}

    def close(self) -> None:
        """Let the engine's thread end."""
        self._runner.close()


@dataclass(frozen=True, slots=True)
class _Compacted:
    messages: list[Message]
    repairs: list[str]
    problem: str


_SESSION = ("session_id", "conversation_id", "platform")


def _is_its_own(error: BaseException) -> bool:
    """Whether the engine itself raised it; what Everlong raises to stop a turn, and to refuse a target, goes on."""
    if isinstance(error, TargetUnreachable):
        return False
    return isinstance(error, Exception) or not type(error).__module__.startswith("everlong.")


def _put(engine: object, name: str, value: int) -> None:
    with suppress(AttributeError):  # a figure that an engine works out by itself
        setattr(engine, name, value)


def _report_of(engine: object) -> CompactionReport | None:
    report = getattr(engine, "last_report", None)
    return report if isinstance(report, CompactionReport) else None
