"""Providers of memory, which keep what an agent learns over sessions: base class, finding, and careful calls.

Any package can offer providers in the entry point group ``everlong.memory``; being installed activates nothing.

A provider is foreign code that may talk to a server: it can raise, hang, or return something else than promised. Its
calls run one after another in one thread, so that it may keep what is bound to a thread, such as a SQLite connection.
A provider that does not answer in time is not asked again in this session, nor in the next one as long as that call
has not returned; so there is never more than one thread.
"""

from __future__ import annotations

import inspect
import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from importlib.metadata import EntryPoint, entry_points
from typing import Any, NamedTuple

from everlong.context.text import clip, one_line
from everlong.errors import ConfigError
from everlong.model import Message
from everlong.redaction import redact
from everlong.workers import Failed, Overrun, Worker

_GROUP = "everlong.memory"
_KEY = "memory.provider"

Warn = Callable[[str], None]


class MemoryProvider(ABC):
    """A provider of memories; all calls of one session come one at a time and from one thread."""

    reading_tools: frozenset[str] = frozenset()
    """Names of its tools that only read; calls of other tools need the user's approval."""

    @property
    @abstractmethod
    def name(self) -> str:
        """The provider's name in warnings."""

    def initialize(self, session_id: str, **facts: Any) -> None:
        """Begin a session; ``facts`` are what the host knows of it, such as ``platform`` and ``folder``."""
        del session_id, facts

    def system_prompt_block(self) -> str:
        """Return text for the system prompt; called once per session, after `initialize`."""
        return ""

    def get_tool_schemas(self) -> list[dict[str, Any]]:
        """Return tools for the agent in the OpenAI format; called once per session, after `initialize`."""
        return []

    def handle_tool_call(self, name: str, args: dict[str, Any], **kwargs: Any) -> str:
        """Answer a call of one of the provider's tools, with a JSON text."""
        del args, kwargs
        return json.dumps({"error": f"Unknown tool: {name}"}, ensure_ascii=False)

    def prefetch(self, query: str) -> str:
        """Return memories that bear on the user's message."""
        del query
        return ""

    def sync_turn(self, user: str, assistant: str) -> None:
        """Take in a complete turn: the user's message and the assistant's answer."""
        del user, assistant

    def on_pre_compress(self, messages: list[Message]) -> str:
        """Return text for the summarizer, before a compaction."""
        del messages
        return ""

    def on_session_end(self, messages: list[Message]) -> None:
        """End the session: the user left the program, or began anew."""
        del messages

    def on_session_switch(self, session_id: str, **facts: Any) -> None:
        """Go on under another session id, as after a compaction."""
        del session_id, facts

    def shutdown(self) -> None:  # noqa: B027 - there is nothing to let go of by default
        """Close connections and files; this is the last call."""


# -- finding the one that the settings name ----------------------------------------------------------------------------


def external_provider(name: str, options: Mapping[str, Any] | None = None) -> MemoryProvider:
    """Make the provider of that name, and return it; raises `ConfigError` where that fails.

    Args:
        name: the entry point's name in the group ``everlong.memory``.
        options: passed as ``settings`` to a constructor that takes it.
    """
    entry = next(iter(entry_points(group=_GROUP, name=name)), None)
    if entry is None:
        installed = sorted({one.name for one in entry_points(group=_GROUP)})
        choice = f"installed are {', '.join(installed)}" if installed else "none is installed"
        raise ConfigError(
            f"{_KEY}: there is no memory provider {name!r} among the entry points of the group {_GROUP!r}; {choice}; "
            f"install the package that offers it, or set {_KEY} to one that is installed or to null",
            _KEY,
        )
    try:
        made = _make(entry, dict(options or {}))
    except (Exception, SystemExit) as error:
        raise ConfigError(
            f"{_KEY}: the memory provider {name!r} ({entry.value!r}) cannot be loaded: {describe_error(error)}; mend "
            f"or reinstall the package that offers it, or set {_KEY} to null",
            _KEY,
        ) from error
    if not isinstance(made, MemoryProvider):
        raise ConfigError(
            f"{_KEY}: the memory provider {name!r} ({entry.value!r}) is of the class {type(made).__name__}, which is "
            "not made from everlong.memory.MemoryProvider",
            _KEY,
        )
    return made


def _make(entry: EntryPoint, options: dict[str, Any]) -> Any:
    """Return the provider that is offered: the object itself, or what a class or function makes."""
    offered = entry.load()
    if not callable(offered):
        return offered
    return offered(settings=options) if "settings" in inspect.signature(offered).parameters else offered()


# -- calling it --------------------------------------------------------------------------------------------------------


class CallOutcome(NamedTuple):
    """The outcome of a call: a value, or the problem in one sentence."""

    value: Any = None
    problem: str = ""


class Contained:
    """One provider, called in a way that cannot raise or hang."""

    def __init__(self, provider: MemoryProvider, seconds: float, warn: Warn) -> None:
        self.provider = provider
        self._seconds = seconds
        self._warn = warn
        self._warned: set[str] = set()
        self._out_because = ""
        self._worker = Worker(f"everlong-memory-{type(provider).__name__}")
        self.label = repr(type(provider).__name__)
        self.label = repr(self._read_name())

    def overrides(self, method: str) -> bool:
        """Return whether the provider has a method of its own, and not only the default that does nothing."""
        own = getattr(type(self.provider), method, None)
        return own is not getattr(MemoryProvider, method) or method in getattr(self.provider, "__dict__", {})

    @property
    def is_asked(self) -> bool:
        """True as long as the provider takes part in this session."""
        return not self._out_because

    def begin_session(self) -> None:
        """Ask the provider again in a new session, unless it still hangs in a call of the last one."""
        self._warned.clear()
        self._out_because = ""
        if self._worker.is_stuck:
            self.leave_out("is still busy with a call of the last session")

    def leave_out(self, reason: str) -> None:
        """Stop asking the provider in this session, and warn why."""
        self._out_because = f"memory provider {self.label} {reason}; it is left alone until the next session"
        self.complain(self._out_because)

    def complain(self, problem: str) -> None:
        """Warn about a problem, once in a session."""
        if problem not in self._warned:
            self._warned.add(problem)
            self._warn(problem)

    def call(self, method: str, *args: Any, **facts: Any) -> CallOutcome:
        """Call a method of the provider; a problem is warned about and stands in the outcome."""
        if not self.is_asked:
            return CallOutcome(problem=self._out_because)
        return self._call(method, args, facts)

    def text(self, method: str, *args: Any) -> str:
        """Return the text that a method returns; empty where anything went wrong."""
        outcome = self.call(method, *args)
        if outcome.problem or outcome.value is None:
            return ""
        if not isinstance(outcome.value, str):
            self.complain(
                f"memory provider {self.label} gave {type(outcome.value).__name__} instead of a text from {method}; "
                "that is ignored"
            )
            return ""
        return outcome.value

    def close(self) -> None:
        """Shut the provider down and let its thread end."""
        if not self._worker.is_stuck:
            self._call("shutdown", (), {})
        self._worker.close()

    def _call(self, method: str, args: tuple[Any, ...], facts: dict[str, Any]) -> CallOutcome:
        if not self.overrides(method):
            return CallOutcome()
        try:
            return CallOutcome(self._worker.call(lambda: getattr(self.provider, method)(*args, **facts), self._seconds))
        except Overrun:
            self.leave_out(f"did not answer {method} within {self._seconds:g} seconds")
            return CallOutcome(problem=self._out_because)
        except Failed as failed:
            problem = f"memory provider {self.label} failed in {method}: {describe_error(failed.error)}"
            self.complain(problem)
            return CallOutcome(problem=problem)

    def _read_name(self) -> str:
        try:
            name: object = self._worker.call(lambda: self.provider.name, self._seconds)
        except Overrun:
            self.leave_out(f"did not tell its name within {self._seconds:g} seconds")
        except Failed as failed:
            self.complain(f"memory provider {self.label} failed to tell its name: {describe_error(failed.error)}")
        else:
            if isinstance(name, str) and name.strip():
                return clip(one_line(name), 60)
        return type(self.provider).__name__


def describe_error(error: BaseException) -> str:
    """Return an error in one line, without the secrets that it may quote."""
    try:
        words = f"{type(error).__name__}: {error}"
    except Exception:  # noqa: BLE001 - an error of foreign code may fail even to say what it is
        words = type(error).__name__
    return clip(one_line(redact(words)), 300)
