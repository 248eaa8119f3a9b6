"""The engine under test, made and called as by a host; every failure becomes a sentence for its author."""

from __future__ import annotations

import inspect
import json
import traceback
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from everlong import workers
from everlong.context.invariants import repair_all
from everlong.errors import MessageError
from everlong.model import Message, checked_messages
from everlong.plugins import running
from everlong.tokens import MessageCounter

__all__ = [
    "CallOverran",
    "ContractBroken",
    "EngineCaller",
    "MakeEngine",
    "Subject",
    "Workbench",
    "as_json",
    "case",
    "quote",
    "require",
    "takes",
    "tokens",
]

MakeEngine = Callable[..., Any]
"""A class or function that makes a new engine; called with ``context_length`` if it takes that."""

_SHOWN_CHARS = 700
_counter = MessageCounter()
_CALLING = frozenset({__file__, running.__file__, workers.__file__})
"""Files between a check and the engine, which say nothing to its author."""


class ContractBroken(Exception):  # noqa: N818 - it states a fact about the engine; nothing of the package failed
    """A breach of one clause; the text says what the engine did, and what it should do."""


class CallOverran(ContractBroken):
    """A call that did not return in time; it may still be running, so no other call should follow."""


def require(holds: object, sentence: str) -> None:
    """Raise `ContractBroken` with the sentence unless something holds."""
    if not holds:
        raise ContractBroken(sentence)


class EngineCaller:
    """Calls the author's code, each call within a time limit; its failures become `ContractBroken`.

    All calls run in one thread, as plugins run in Everlong. Without a limit they run in the thread of the test, where
    a debugger can stop them.
    """

    def __init__(self, seconds: float | None) -> None:
        self._seconds = seconds
        self._runner = None if seconds is None else running.Runner("everlong-contract", seconds)

    def call(self, told: str, advice: str, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Return what a function returns; ``told`` names the call in a finding, ``advice`` ends it."""
        work = partial(function, *args, **kwargs)
        try:
            return work() if self._runner is None else self._runner.call(work)
        except running.Overrun:
            limit = f"{self._seconds:g} second{'' if self._seconds == 1 else 's'}"
            raise CallOverran(
                f"{told} did not return within {limit}; look for a loop that never ends or a wait without a time "
                "limit, or give the tests more time with seconds=…"
            ) from None
        except running.Failed as failed:
            if not isinstance(failed.error, Exception):  # pytest.skip() in make_engine, for example
                raise failed.error from None
            raise _breach(told, advice, failed.error) from failed.error
        except Exception as error:  # the author must learn of whatever the engine raises
            raise _breach(told, advice, error) from error

    def close(self) -> None:
        """Let the thread of the calls end."""
        if self._runner is not None:
            self._runner.close()


class Subject:
    """One engine under test; what it raises becomes `ContractBroken` with the author's own line."""

    def __init__(self, engine: Any, caller: EngineCaller) -> None:
        self.engine = engine
        self._caller = caller

    def has(self, method: str) -> bool:
        """Return whether the engine has a method; without our base class, optional ones may be missing."""
        return callable(getattr(self.engine, method, None))

    def get(self, attribute: str, *default: Any) -> Any:
        """Return an attribute, which a host may read at any time, or the default if the engine has none."""
        return self._caller.call(f"reading {attribute}", "", getattr, self.engine, attribute, *default)

    def call(self, method: str, *args: Any, advice: str = "", **kwargs: Any) -> Any:
        """Call a method and return its result."""
        require(self.has(method), f"the engine has no method {method}()")
        told = _spell_call(method, args, kwargs)
        return self._caller.call(told, advice, getattr(self.engine, method), *args, **kwargs)

    def compress(self, messages: list[Message], *args: Any, **kwargs: Any) -> list[Message]:
        """Return a compacted list, of which only the outer shape has been checked."""
        told = _spell_call("compress", (..., *args), kwargs).replace("Ellipsis", "messages")
        advice = f"a host may hand in any conversation{case(messages)}"
        result = self._caller.call(told, advice, self.engine.compress, messages, *args, **kwargs)
        require(isinstance(result, list), f"{told} returned {_kind(result)}; return a list of messages{case(messages)}")
        try:
            return checked_messages(result)
        except MessageError as error:
            raise ContractBroken(f"{told} returned a list that is none of messages: {error}{case(messages)}") from None


class Workbench:
    """A maker of engines for the checks; it also holds the number of generated conversations to try."""

    def __init__(self, make: MakeEngine, context_length: int, examples: int, seconds: float | None = None) -> None:
        self.make = make
        self.context_length = context_length
        self.examples = examples
        self._caller = EngineCaller(seconds)

    def bare(self) -> Subject:
        """Return a new engine as its constructor left it."""
        with_length = takes(self.make, "context_length")
        told = f"making an engine with {f'context_length={self.context_length}' if with_length else 'no argument'}"
        arguments = {"context_length": self.context_length} if with_length else {}
        return Subject(self._caller.call(told, "", self.make, **arguments), self._caller)

    def fresh(self, context_length: int | None = None) -> Subject:
        """Return a new engine that knows its window, as a host sets it before a conversation."""
        window = context_length or self.context_length
        subject = self.bare()
        if subject.get("context_length") != window and subject.has("update_model"):
            subject.call("update_model", "", window)
        return subject

    def close(self) -> None:
        """Let the thread of the calls end."""
        self._caller.close()


def takes(function: Callable[..., Any], name: str) -> bool:
    """Return whether a function takes an argument of this name."""
    parameters = inspect.signature(function).parameters.values()
    return any(p.name == name or p.kind is p.VAR_KEYWORD for p in parameters if p.kind is not p.POSITIONAL_ONLY)


def tokens(messages: Sequence[Message], *, repaired: bool = False) -> int:
    """Return the size of a list by our own estimate; with ``repaired``, after its tool calls are mended."""
    return sum(_counter.counts(repair_all(list(messages)) if repaired else messages))


def case(messages: Sequence[Message], result: Sequence[Message] | None = None) -> str:
    """Return the conversation that showed a fault, and its result, for the end of a finding."""
    return f"\n  given: {quote(messages)}" + ("" if result is None else f"\n  returned: {quote(result)}")


def quote(messages: Sequence[Message]) -> str:
    """Return a conversation for people to read: whole if short, else its beginning and its length."""
    text = ", ".join(repr(_short(message)) for message in messages)
    cut = text if len(text) <= _SHOWN_CHARS else f"{text[:_SHOWN_CHARS]}…"
    return f"[{cut}]" if len(messages) == 1 else f"{len(messages)} messages [{cut}]"


def as_json(value: Any, what: str) -> str:
    """Return a value as JSON text; raise `ContractBroken` if it cannot be written as JSON."""
    try:
        return json.dumps(value)
    except (TypeError, ValueError) as error:
        raise ContractBroken(
            f"{what} cannot be written as JSON ({error}); use plain dicts, lists, texts and numbers"
        ) from None


def _short(message: Message) -> Message:
    content = message.get("content")
    if not isinstance(content, str) or len(content) <= 80:
        return message
    return {**message, "content": f"{content[:60]}… ({len(content):,} characters)"}


def _kind(value: object) -> str:
    return "None" if value is None else f"a {type(value).__name__}"


def _spell_call(method: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
    words = [*map(_argument, args), *(f"{name}={_argument(value)}" for name, value in kwargs.items())]
    return f"{method}({', '.join(words)})"


def _argument(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 120 else f"{text[:100]}…"


def _breach(told: str, advice: str, error: Exception) -> ContractBroken:
    return ContractBroken(f"{told} raised {_describe_error(error)}{f'; {advice}' if advice else ''}")


def _describe_error(error: Exception) -> str:
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename not in _CALLING]
    where = f" ({Path(frames[-1].filename).name}, line {frames[-1].lineno})" if frames else ""
    return f"{type(error).__name__}: {error}{where}" if str(error) else f"{type(error).__name__}{where}"
