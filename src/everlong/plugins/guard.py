"""The guard around engines: one that raises, hangs, lies or forgets cannot break a turn.

`GuardedEngine` stands between the host and any engine that is not built in. Every call has a time limit and works on
copies; its result is checked and mended, and the built-in compressor takes over where that fails. Each kind of fault is
warned about once. This is no sandbox: a plugin runs with its user's rights.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeVar

from everlong.caching import estimate_messages_tokens_rough
from everlong.context import CompactionReport, ContextCompressor, ContextEngine
from everlong.errors import TargetUnreachable
from everlong.model import Message
from everlong.plugins.checking import (
    CONSEQUENCES,
    FIGURES,
    FaultKind,
    Unusable,
    as_flag,
    as_schemas,
    as_status,
    as_text,
    check_output,
    copy_for_plugin,
    figures_of,
    name_of,
    restore_marks,
    wanted_arguments,
)
from everlong.plugins.host import Host, running_in
from everlong.plugins.running import Failed, Overrun, Runner

__all__ = ["GuardedEngine", "compressor_of", "compressors_in", "report_of"]

T = TypeVar("T")

_TOLERANCE = 1.01
"""Growth that is accepted, because the engine may count differently."""
_FULL_SHARE = 0.85
"""Share of the window from which an engine must shorten the list."""


def compressor_of(engine: ContextEngine) -> ContextCompressor | None:
    """Return the engine if it is a built-in compressor or derived from one; else None."""
    inside = engine.inner if isinstance(engine, GuardedEngine) else engine
    return inside if isinstance(inside, ContextCompressor) else None


def compressors_in(engine: ContextEngine) -> list[ContextCompressor]:
    """Return the built-in compressors behind an engine: itself, the guarded one, and the one that stands in."""
    behind = [engine.inner, engine.fallback] if isinstance(engine, GuardedEngine) else [engine]
    return [one for one in behind if isinstance(one, ContextCompressor)]


class GuardedEngine(ContextEngine):
    """An engine that cannot break a turn, whatever the engine inside does.

    Args:
        engine: the engine inside, of any base class.
        fallback: makes the engine that stands in for it.
        warn: told each kind of fault once.
        host: what the engine is given where it asks for settings and models.
        runner: the thread of the engine's calls; by default a new one.
    """

    def __init__(
        self,
        engine: ContextEngine,
        fallback: Callable[[], ContextEngine],
        *,
        warn: Callable[[str], None] = lambda _: None,
        host: Host | None = None,
        runner: Runner | None = None,
    ) -> None:
        self.inner = engine
        self.fallback = fallback()
        self.host = host
        self.is_off = False
        """True once the engine inside took too long, and is not called any more."""
        self._count = 0
        self._newest_fault = "is off"
        self._stands_in = False
        self.last_fault: str | None = None
        """The fault of the last compaction; None where there was none."""
        self._runner = runner or Runner("everlong-engine")
        self._warn = warn
        self._warned_kinds: set[FaultKind] = set()
        self._unread: set[str] = set()
        """Figures whose failure was reported already."""
        self._report: CompactionReport | None = None
        self._name = type(engine).__name__
        self._name = self._try("name", lambda: name_of(engine), lambda: self._name)

    @property
    def name(self) -> str:
        """The name of the engine inside."""
        return self._name

    @property
    def last_report(self) -> CompactionReport | None:
        """The report of the last compaction, if the engine made one."""
        return self._report

    # -- calling -------------------------------------------------------------------------------------------------------

    def _try(self, method: str, work: Callable[[], T], otherwise: Callable[[], T]) -> T:
        """Call the engine inside and read its figures; return its value, or that of ``otherwise`` if it fails."""
        if self.is_off:
            return otherwise()
        try:
            value, (figures, raised) = self._runner.call(
                lambda: self._work_and_measure(work), self.host.check if self.host and method == "compress" else None
            )
        except Overrun as overrun:
            self.is_off = True
            self._fault("time", f"did not come back from {method}() in time: {overrun}")
            return otherwise()
        except Failed as failed:
            error = failed.error
            if not _is_fault(error):
                raise error from None
            if isinstance(error, Unusable):
                self._fault("type", f"returned a wrong type: {method}() {error}")
            else:
                self._fault("raised", f"raised {type(error).__name__} in {method}(): {error}")
            return otherwise()
        self._take_figures(figures)
        for name, problem in raised.items():
            if name not in self._unread:
                self._unread.add(name)
                self._fault("raised", f"raised {type(problem).__name__} when {name} was read")
        return value

    def _work_and_measure(self, work: Callable[[], T]) -> tuple[T, tuple[dict[str, Any], dict[str, Exception]]]:
        with running_in(self.host):
            return work(), figures_of(self.inner)

    def _take_figures(self, figures: Mapping[str, Any]) -> None:
        for name in FIGURES:
            setattr(self, name, figures.get(name, getattr(self.fallback, name)))
        self.context_length = self.fallback.context_length  # the model's window, whatever the engine says

    def _call(self, method: str, *args: Any, **options: Any) -> Any:
        """Call a method of the engine inside with the options that it takes; None where it has no such method."""
        found = getattr(self.inner, method, None)
        if not callable(found):
            return None
        return found(*args, **wanted_arguments(found, options))

    def _tell(self, method: str, *args: Any, **options: Any) -> None:
        """Call a method of the engine inside whose answer does not matter."""
        self._try(method, lambda: self._call(method, *args, **options), lambda: None)

    def _fault(self, kind: FaultKind, text: str) -> None:
        self._count += 1
        self._newest_fault = text
        if kind not in self._warned_kinds:
            self._warned_kinds.add(kind)
            self._warn(f"the context engine {self._name!r} {text}; {CONSEQUENCES[kind]}")

    # -- watching the conversation -------------------------------------------------------------------------------------

    def update_from_response(self, usage: dict[str, Any]) -> None:
        """Tell both engines what the provider reported, so that the fallback is ready at any time."""
        self.fallback.update_from_response(dict(usage))
        self._tell("update_from_response", dict(usage))
        self._follow_fallback()

    def should_compress(self, prompt_tokens: int | None = None) -> bool:
        """Return the answer of the engine inside, or that of the fallback where it is unusable."""
        otherwise = partial(self.fallback.should_compress, prompt_tokens)
        if self._stands_in:  # the engine that compacted last knows best whether to do it again
            return otherwise()
        return self._try("should_compress", lambda: as_flag(self._call("should_compress", prompt_tokens)), otherwise)

    def should_compress_preflight(self, messages: list[Message]) -> bool:
        """Ask both engines, the one inside with a copy; the fallback calibrates itself by the messages."""
        otherwise = self.fallback.should_compress_preflight(messages)
        given = copy_for_plugin(messages)
        said = self._try(
            "should_compress_preflight",
            lambda: as_flag(self._call("should_compress_preflight", given) or False),
            lambda: otherwise,
        )
        return otherwise if self._stands_in else said

    def has_content_to_compress(self, messages: list[Message]) -> bool:
        """Ask the engine inside with a copy of the messages."""
        if not hasattr(type(self.inner), "has_content_to_compress"):
            return True
        given = copy_for_plugin(messages)
        return self._try(
            "has_content_to_compress",
            lambda: as_flag(self._call("has_content_to_compress", given)),
            lambda: self.fallback.has_content_to_compress(messages),
        )

    def estimate_tokens(self, messages: Sequence[Message]) -> int:
        """Return the prompt tokens of a request, as the fallback counts them."""
        estimate = getattr(self.fallback, "estimate_tokens", estimate_messages_tokens_rough)
        return int(estimate(messages))

    def _follow_fallback(self) -> None:
        """Take the figures of the fallback if the engine inside is off."""
        if self.is_off:
            self._take_figures({})

    # -- compacting ----------------------------------------------------------------------------------------------------

    def compress(
        self,
        messages: list[Message],
        current_tokens: int | None = None,
        focus_topic: str | None = None,
        **options: Any,
    ) -> list[Message]:
        """Return a shorter list that can be sent, made by the engine inside if possible."""
        self.last_fault, self._report = None, None
        wishes = {"current_tokens": current_tokens, "focus_topic": focus_topic, **options}
        before = self._count
        found = self._try("compress", lambda: self._compress_inside(messages, wishes), lambda: None)
        result = self._accept(messages, found) if found is not None else None
        if self._count > before or self.is_off:
            self.last_fault = self._newest_fault
        self._stands_in = result is None
        if result is None:
            return self._compress_instead(messages, wishes)
        self._report = report_of(self.inner)
        target = options.get("target_tokens")
        if target is not None and self.estimate_tokens(result) - self.estimate_tokens([]) > target:
            # An engine may ignore targets, but a request that was refused as too long has to become shorter.
            result = self.fallback.compress(result, **wanted_arguments(self.fallback.compress, wishes))
        self._settle(result)
        return result

    def _compress_inside(self, messages: list[Message], wishes: dict[str, Any]) -> _Compacted:
        """Compact copies without the store's marks; runs in the engine's thread."""
        plain, given = copy_for_plugin(messages), copy_for_plugin(messages)
        origins = {id(one): message for copies in (plain, given) for one, message in zip(copies, messages, strict=True)}
        made = self._call("compress", list(given), **wishes)
        try:
            checked = check_output(plain, made)
        except Unusable as wrong:
            return _Compacted([], [], str(wrong))
        kept = [restore_marks(message, origins.get(id(message))) for message in checked.messages]
        return _Compacted(kept, checked.repairs, "")

    def _accept(self, messages: list[Message], found: _Compacted) -> list[Message] | None:
        if found.problem:
            self._fault("list", f"compress() {found.problem}")
            return None
        # Both by the same estimate, because the exact count of the new list is unknown.
        before, after = map(estimate_messages_tokens_rough, (messages, found.messages))
        if after > before * _TOLERANCE:
            self._fault("list", f"compress() made {after:,} tokens of {before:,}")
            return None
        tokens, window = self.estimate_tokens(messages), self.fallback.context_length
        if after >= before and tokens >= _FULL_SHARE * window:
            self._fault("list", f"compress() left {tokens:,} tokens as they were in a window of {window:,}")
            return None
        if found.repairs:
            self._fault("repaired", f"compress() {' and '.join(found.repairs)}")
        return found.messages

    def _compress_instead(self, messages: list[Message], wishes: dict[str, Any]) -> list[Message]:
        result = self.fallback.compress(messages, **wanted_arguments(self.fallback.compress, wishes))
        report = report_of(self.fallback)
        if report is not None and self.last_fault is not None:
            report = replace(report, fallback_reason=f"{self._name} {self.last_fault}")
        self._report = report
        self._settle(result)
        self._follow_fallback()
        return result

    def _settle(self, result: list[Message]) -> None:
        """Make the tokens of the new list the figure that thresholds are compared with."""
        tokens = self.estimate_tokens(result)
        self.fallback.last_prompt_tokens = tokens
        if self.last_prompt_tokens > tokens or self.last_prompt_tokens <= 0:
            self.last_prompt_tokens = tokens
            self._try("last_prompt_tokens", lambda: _set_figure(self.inner, "last_prompt_tokens", tokens), lambda: None)

    # -- a session's life ----------------------------------------------------------------------------------------------

    def on_session_start(self, session_id: str, **kwargs: Any) -> None:
        """Tell both engines."""
        self.fallback.on_session_start(session_id, **kwargs)
        if self.host is not None:
            facts = {"session_id": session_id, **kwargs}
            self.host.session.update({key: str(facts[key]) for key in _SESSION if facts.get(key)})
        self._tell("on_session_start", session_id, **kwargs)

    def on_session_end(self, session_id: str, messages: list[Message]) -> None:
        """Tell both engines, the one inside with a copy of the messages."""
        given = copy_for_plugin(messages)
        self.fallback.on_session_end(session_id, messages)
        self._tell("on_session_end", session_id, given)

    def on_session_reset(self) -> None:
        """Tell both engines."""
        self.fallback.on_session_reset()
        self._tell("on_session_reset")
        self._follow_fallback()

    def update_model(
        self,
        model: str,
        context_length: int,
        base_url: str = "",
        api_key: str = "",
        provider: str = "",
        **kwargs: Any,
    ) -> None:
        """Tell both engines; the model's window counts, whatever the engine says."""
        facts = {"base_url": base_url, "api_key": api_key, "provider": provider, **kwargs}
        self.fallback.update_model(model, context_length, **facts)
        self._tell("update_model", model, context_length, **facts)
        self._follow_fallback()

    # -- tools and status ----------------------------------------------------------------------------------------------

    def get_tool_schemas(self) -> list[dict[str, Any]]:
        """Return the engine's tools that can be offered to a model."""
        return self._try("get_tool_schemas", lambda: as_schemas(self._call("get_tool_schemas")), list)

    def handle_tool_call(self, name: str, args: dict[str, Any], **kwargs: Any) -> str:
        """Return the tool's answer, or an error for the model."""
        given, facts = copy.deepcopy(args), copy.deepcopy(kwargs)
        if isinstance(facts.get("messages"), list):
            facts["messages"] = copy_for_plugin(facts["messages"])
        before = self._count
        answer = self._try(
            "handle_tool_call",
            lambda: as_text(self._call("handle_tool_call", name, given, **facts)),
            lambda: "",
        )
        if answer or (self._count == before and not self.is_off):
            return answer
        return json.dumps({"error": f"the tool {name} is not available: its engine {self._newest_fault}"})

    def get_status(self) -> dict[str, Any]:
        """Return the figures, with what the engine adds to them."""
        usual = super().get_status()
        own = self._try("get_status", lambda: as_status(self._call("get_status")), dict[str, Any])
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


def _is_fault(error: BaseException) -> bool:
    """Return whether an error is the engine's fault; Everlong's interrupts and `TargetUnreachable` are not."""
    if isinstance(error, TargetUnreachable):
        return False
    return isinstance(error, Exception) or not type(error).__module__.startswith("everlong.")


def _set_figure(engine: object, name: str, value: int) -> None:
    with suppress(AttributeError):  # a read-only figure
        setattr(engine, name, value)


def report_of(engine: object) -> CompactionReport | None:
    """Return the report of an engine's last compaction; None where it has none."""
    report = getattr(engine, "last_report", None)
    return report if isinstance(report, CompactionReport) else None
