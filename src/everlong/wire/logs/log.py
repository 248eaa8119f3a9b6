"""What a client's log tells: its conversations piece by piece, with the facts and the figures beside them.

A log that grows by lines is read by a `LogReader`: it is fed one line after the other and hands out *runs*, stretches
of one conversation. `settled` has what no later line can change, and the place in the file from which on a reader that
is made later goes on; `rest` has what stands after it, as far as it is known. A reader that finds a line which it
cannot place without those before its beginning raises `NeedsWhole`: then the log has to be read as a whole.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any, ClassVar, NamedTuple

import orjson

from everlong.errors import TranscriptError
from everlong.model import Message

__all__ = [
    "MALFORMED",
    "LogFacts",
    "LogPart",
    "LogReader",
    "LogRun",
    "LogUsage",
    "NeedsWhole",
    "count_of",
    "dicts_in",
    "dollars_of",
    "explain_malformed",
    "parse_line",
    "text_field",
]

MALFORMED = (ValueError, TypeError, AttributeError, LookupError, OverflowError)
"""The errors that a reader raises where a value does not have the form that its client gives it."""
_MOST = 1e15
"""The largest count that is believed; what is larger no database could add up."""


class NeedsWhole(Exception):  # noqa: N818 - a signal to whoever reads a log piece by piece
    """A sign that a log cannot be read from the middle: a line goes back to something before it."""


class LogUsage(NamedTuple):
    """The tokens and dollars that a log states; input that a cache served is counted only there."""

    input_tokens: int = 0
    output_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    reasoning_tokens: int = 0
    api_calls: int = 0
    cost: float = 0.0
    """US dollars, as the client states them; 0 if it states none."""

    def plus(self, *others: LogUsage) -> LogUsage:
        """Return the sum of this and others."""
        return LogUsage(*map(sum, zip(self, *others, strict=True)))

    @property
    def is_told(self) -> bool:
        """True if the log states anything."""
        return self != _NOTHING_USED

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        return self._asdict()

    @classmethod
    def of(cls, told: Mapping[str, Any]) -> LogUsage:
        """Return the usage that `to_dict` gave."""
        return cls(**{name: told[name] for name in cls._fields if isinstance(told.get(name), int | float)})


_NOTHING_USED = LogUsage()


@dataclass(frozen=True, slots=True)
class LogFacts:
    """What a log says about one conversation, beside its messages."""

    client: str
    session: str | None = None
    """The client's own id of the conversation."""
    agent: str | None = None
    """The name of the sub-agent whose conversation it is."""
    works_for: str | None = None
    """The client's id of the conversation that had it begun, or that it was forked from."""
    title: str | None = None
    """The title that the client, or a person in it, gave; None where there is none."""
    folder: str | None = None
    git_branch: str | None = None
    model: str | None = None
    version: str | None = None
    started: float | None = None
    ended: float | None = None
    end_reason: str | None = None
    user: str | None = None

    @property
    def key(self) -> str | None:
        """The name of the conversation among all of its client."""
        if self.agent is None:
            return self.session
        return f"{self.session or 'session'}/agent-{self.agent}"

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON, without those that are not known."""
        return {name: value for name, value in asdict(self).items() if value is not None}

    @classmethod
    def of(cls, told: Mapping[str, Any]) -> LogFacts:
        """Return the facts that `to_dict` gave."""
        return cls(**{one.name: told[one.name] for one in fields(cls) if one.name in told})


@dataclass(slots=True)
class LogRun:
    """A stretch of one conversation."""

    facts: LogFacts
    messages: list[Message] = field(default_factory=list)
    times: list[float | None] = field(default_factory=list)
    usage: LogUsage = _NOTHING_USED
    """What these messages used, or the whole conversation where ``is_total``."""
    goes_on: bool = False
    """True if the conversation is that of the last run of the part before."""
    is_total: bool = False
    """True if the usage is that of the whole conversation."""
    is_abandoned: bool = False
    """True if a person went back and another way, which is a run of its own."""


@dataclass(slots=True)
class LogPart:
    """Runs of a log, and where to read on."""

    runs: list[LogRun]
    offset: int
    """The place in the file up to which these runs reach."""
    carried: dict[str, Any]
    """What a reader needs that begins there; JSON-ready."""


class LogReader(ABC):
    """The reader of a log that grows by lines."""

    client: ClassVar[str]
    folder: str | None = None
    """The folder of the file, for formats that belong to the folder that they lie in."""

    def __init__(self, carried: Mapping[str, Any] | None = None, offset: int = 0, *, is_whole: bool = False) -> None:
        told = carried or {}
        self.is_whole = is_whole
        """True if the log is read from its first line on and nothing is taken before its last one."""
        facts = told.get("facts")
        self.facts = LogFacts.of(facts) if isinstance(facts, Mapping) else LogFacts(self.client)
        self._is_begun = bool(told.get("is_begun"))
        """True once the conversation has a message, in this part or in one before it."""
        self._done: list[LogRun] = []
        self._done_used: list[list[LogUsage]] = []
        self._open = LogRun(self.facts, goes_on=self._is_begun)
        self._used: list[LogUsage] = []
        """The usage of the open run."""
        self._place = (offset, self.facts, self._is_begun, {name: told[name] for name in told.keys() - _COMMON})

    # -- what subclasses call ------------------------------------------------------------------------------------------

    def say(self, message: Message, time: float | None) -> None:
        """Add a message to the conversation."""
        self._open.messages.append(message)
        self._open.times.append(time)
        self._is_begun = True

    def count(self, usage: LogUsage) -> None:
        """Add what a call has used."""
        self._used.append(usage)

    def learn(self, **told: Any) -> None:
        """Note facts of the conversation; None says nothing."""
        facts = self.facts
        known = {name: value for name, value in told.items() if value is not None and getattr(facts, name) != value}
        if known:
            self.facts = replace(self.facts, **known)

    def begin_conversation(self, facts: LogFacts, offset: int) -> None:
        """Begin another conversation in the same file; the one before is complete."""
        self._settle(offset)
        self.facts = facts
        self._is_begun = False
        self._used.clear()
        self._open = LogRun(facts)
        self._settle(offset)

    def settle(self, offset: int) -> None:
        """Note that nothing before this place of the file will change any more."""
        if self.is_whole:
            return
        self._settle(offset)

    def _settle(self, offset: int) -> None:
        run = self._open
        run.facts = self.facts
        if run.messages or self._used:
            if self._done and run.goes_on:
                last = self._done[-1]
                last.messages += run.messages
                last.times += run.times
                last.facts = run.facts
                run.messages.clear()
                run.times.clear()
            else:
                self._done.append(run)
                self._done_used.append([])
                self._open = LogRun(self.facts, goes_on=self._is_begun)
            self._done_used[-1] += self._used
            self._used.clear()
        self._place = (offset, self.facts, self._is_begun, self.state())

    def state(self) -> dict[str, Any]:
        """Return what a reader of this format needs to go on; JSON-ready."""
        return {}

    @abstractmethod
    def feed(self, line: bytes, offset: int) -> None:
        """Read the next line of the file, which begins at this place.

        Raises:
            NeedsWhole: The line can only be understood with those before the place where this reader began.
            ValueError: It is no line of such a log.
        """

    def finish(self) -> None:  # noqa: B027 - most formats have nothing to do
        """Note that no further line is there for now, so that a message that was being collected is told."""

    # -- what callers take ---------------------------------------------------------------------------------------------

    @property
    def settled_offset(self) -> int:
        """The place of the file up to which nothing will change any more."""
        return self._place[0]

    def settled(self) -> LogPart:
        """Take out what no later line can change."""
        offset, facts, is_begun, state = self._place
        runs, self._done = self._done, []
        for run, used in zip(runs, self._done_used, strict=True):
            run.usage = run.usage.plus(*used)
        self._done_used = []
        return LogPart(runs, offset, {"facts": _carried(facts), "is_begun": is_begun, **state})

    def carried_at_end(self) -> dict[str, Any]:
        """Return what a reader needs that begins after the last line of a log that was read as a whole."""
        return {"facts": _carried(self.facts), "is_begun": self._is_begun, **self.state()}

    def rest(self) -> list[LogRun]:
        """Return what stands after the settled part, as far as it is known; call `finish` before."""
        run = LogRun(self.facts, self._open.messages, self._open.times, goes_on=self._open.goes_on)
        run.usage = run.usage.plus(*self._used)
        return [run] if run.messages or run.usage.is_told else []


def _carried(facts: LogFacts) -> dict[str, Any]:
    """Return the facts without the title: words of a conversation stay in one place."""
    return {name: value for name, value in facts.to_dict().items() if name != "title"}


_COMMON = frozenset({"facts", "is_begun"})


def parse_line(line: bytes) -> Any:
    """Return the JSON value of a line.

    Raises:
        ValueError: It is none.
    """
    try:
        return orjson.loads(line)
    except ValueError:  # halves of surrogate pairs and huge numbers, which only the standard library reads
        try:
            return json.loads(line)
        except RecursionError as error:
            raise ValueError("nested too deeply") from error


@contextmanager
def explain_malformed() -> Iterator[None]:
    """Raise the errors of malformed values as a `TranscriptError`: such a log costs itself, and no other one."""
    try:
        yield
    except MALFORMED as error:
        raise TranscriptError(
            f"the log does not have the form that its client writes ({type(error).__name__}: {error}); "
            "it is damaged, or of a version that is not known yet"
        ) from error


def count_of(value: object) -> int:
    """Return a number of tokens; 0 for anything that is none."""
    return int(value) if isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < _MOST else 0


def dollars_of(value: object) -> float:
    """Return an amount of dollars; 0 for anything that is none."""
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < 1e9 else 0.0


def dicts_in(value: object) -> list[dict[str, Any]]:
    """Return the objects in a list; none for anything that is no list."""
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []


def text_field(entry: Mapping[str, Any], *names: str) -> str | None:
    """Return the first of some fields that is a text with something in it."""
    for name in names:
        value = entry.get(name)
        if isinstance(value, str) and value:
            return value
    return None
