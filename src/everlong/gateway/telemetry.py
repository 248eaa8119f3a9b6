"""Logs and metrics of requests; none of them holds words of a conversation or a key."""

from __future__ import annotations

import asyncio
import logging
import sys
import threading
import time
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from io import RawIOBase
from shutil import get_terminal_size
from typing import IO, TYPE_CHECKING, Any

import orjson

from everlong.gateway.auth import NOBODY
from everlong.gateway.bounds import HeldMemory

if TYPE_CHECKING:
    from everlong.caching.misses import Miss
    from everlong.gateway.auth import Caller
    from everlong.gateway.budget import Charge
    from everlong.providers.base import Usage

__all__ = [
    "CONTENT_TYPE",
    "LEVELS",
    "GatewayLog",
    "Metrics",
    "RequestAccount",
    "captured",
    "open_log",
    "server_logger",
]

LEVELS = ("debug", "info", "warning", "error")
_SOON = 0.05
_MOST_LINES = 10_000
_MOST_CHARS = 200
_LEAST_NAME = 11
"""Characters of a model's name that stay where the terminal is too narrow for the line."""


@dataclass(slots=True)
class RequestAccount:
    """The account of one request, without content: its handler fills it in, metrics and logs read it afterwards."""

    id: str
    method: str = ""
    path: str = ""
    route: str = "other"
    """The endpoint, by the gateway's own name for it."""
    caller: Caller = NOBODY
    folder: str | None = None
    """The folder that its client works in, where the path names it."""
    program: str | None = None
    """The client's own name: at first where the path has it, later from its headers, which may only name the SDK."""
    started: float = field(default_factory=time.time)
    """Seconds since 1970."""
    begun: float = field(default_factory=time.perf_counter)
    seconds: float = 0.0
    """Seconds that it took, once it is over."""
    status: int = 0
    received: int = 0
    """Bytes of the request's body."""
    sent: int = 0
    """Bytes of the answer's body."""
    api: str = ""
    provider: str = ""
    model: str = ""
    session: str | None = None
    branch: int | None = None
    compactions: list[str] = field(default_factory=list)
    """Reasons of the compactions that were made for it."""
    opted_out: bool = False
    """True if its client wants nothing changed or stored."""
    usage: Usage | None = None
    miss: Miss | None = None
    """The part of the prompt that was not read from the provider's cache, and the reason."""
    held: HeldMemory = field(default_factory=HeldMemory)
    """The memory that its body and its answer take."""
    charge: Charge | None = None
    """The charge for a key that may spend only so much."""
    cost: float = 0.0
    """US dollars."""
    problem: str = ""
    """The class of an error in the gateway."""

    def note_usage(self, cost: Callable[[str, Usage], float], *used: Usage, is_estimated: bool = False) -> None:
        """Note the usage of its answers, of which all but the last only looked something up, and what they cost."""
        self.usage = sum(used[1:], used[0])
        self.cost = sum(cost(self.model, one) for one in used)
        if self.charge is not None and not is_estimated:  # a limit has a count of its own, on the high side
            self.charge.told(*used)


class GatewayLog:
    """A log of lines in a file, as JSON or for people; without a file it drops them."""

    def __init__(self, file: IO[bytes] | RawIOBase | None, level: str = "info", *, for_people: bool = False) -> None:
        self._file = file
        self._for_people = for_people
        self._least = LEVELS.index(level) if file is not None else len(LEVELS)
        self._lines: list[Callable[[], bytes]] = []
        """Lines that the writing thread puts into words."""
        self._dropped = 0
        self._lock = threading.Lock()
        self._writing = threading.Lock()
        self._is_due = False

    def request(self, account: RequestAccount) -> None:
        """Log the end of a request."""
        level = "error" if account.problem else "warning" if account.status >= 500 else "info"
        if account.route in {"health", "metrics"} and level == "info":
            level = "debug"
        if LEVELS.index(level) >= self._least:
            line = _people_line if self._for_people else _request_line
            self._put(partial(line, level, time.time(), account))

    def say(self, level: str, event: str, **fields: Any) -> None:
        """Log another event."""
        if LEVELS.index(level) >= self._least:
            self._put(partial(_people_event if self._for_people else _line, level, event, time.time(), fields))

    def close(self) -> None:
        """Write the lines that are left."""
        self._write()
        if self._file is not None and self._file is not sys.stderr.buffer:
            self._file.close()
        self._file = None

    def _put(self, line: Callable[[], bytes]) -> None:
        with self._lock:
            if len(self._lines) >= _MOST_LINES:
                self._dropped += 1
                return
            self._lines.append(line)
            is_first, self._is_due = not self._is_due, True
        if is_first:
            try:
                loop = asyncio.get_running_loop()
            except RuntimeError:  # before or after the gateway runs
                self._write()
                return
            loop.call_later(_SOON, lambda: loop.run_in_executor(None, self._write))

    def _write(self) -> None:
        with self._writing:
            with self._lock:
                lines, self._lines, self._is_due = self._lines, [], False
                dropped, self._dropped = self._dropped, 0
            if self._file is None or not lines:
                return
            if dropped:
                lines.append(partial(_line, "warning", "lines dropped", time.time(), {"count": dropped}))
            try:
                self._file.write(b"".join(line() for line in lines))
                self._file.flush()
            except (OSError, ValueError):  # a full disk, or a terminal that is gone: requests matter more
                self._dropped += len(lines)


def open_log(*, as_json: bool = False) -> GatewayLog:
    """Return a log on stderr; a terminal gets lines for people unless JSON is asked for."""
    return GatewayLog(sys.stderr.buffer, for_people=sys.stderr.isatty() and not as_json)


def server_logger(log: GatewayLog) -> logging.Logger:
    """Return the HTTP server's logger: it tells only the kind of an error, because the text may quote a request."""
    logger = logging.Logger("everlong.gateway")
    logger.addHandler(_Kinds(log))
    return logger


@contextmanager
def captured(log: GatewayLog) -> Iterator[None]:
    """Take the messages of the gateway's own modules into the log; they name kinds of errors, never content."""
    logger, handler = logging.getLogger("everlong.gateway"), _Sayings(log)
    before = logger.propagate, logger.level
    logger.propagate = False
    logger.setLevel(logging.INFO)
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.propagate, logger.level = before


class _Sayings(logging.Handler):
    def __init__(self, log: GatewayLog) -> None:
        super().__init__()
        self._log = log

    def emit(self, record: logging.LogRecord) -> None:
        level = "error" if record.levelno >= logging.ERROR else record.levelname.lower()
        self._log.say(level, "gateway", message=record.getMessage()[:_MOST_CHARS])


class _Kinds(logging.Handler):
    def __init__(self, log: GatewayLog) -> None:
        super().__init__(logging.WARNING)
        self._log = log

    def emit(self, record: logging.LogRecord) -> None:
        kind = record.exc_info[0] if record.exc_info else None
        is_clients = kind is not None and kind.__module__.startswith("aiohttp.")  # what it sent was no request
        level = "warning" if is_clients else "error"
        self._log.say(level, "connection", problem=kind.__name__ if kind is not None else "unknown")


def _request_line(level: str, now: float, account: RequestAccount) -> bytes:
    usage, miss = account.usage, account.miss
    fields: dict[str, Any] = {
        "id": account.id,
        "method": account.method[:_MOST_CHARS],
        "path": account.path[:_MOST_CHARS],
        "status": account.status,
        "ms": round(account.seconds * 1000, 3),
        "received": account.received,
        "sent": account.sent,
        "tenant": account.caller.tenant or None,
        "model": _without_key(account, account.model)[:_MOST_CHARS] or None,
        "session": account.session,
        "branch": account.branch,
        "opted_out": account.opted_out or None,
        "compactions": account.compactions or None,
        "prompt_tokens": usage.prompt_tokens if usage is not None else None,
        "output_tokens": usage.output_tokens if usage is not None else None,
        "cache_read_tokens": usage.cache_read_tokens if usage is not None else None,
        "cache_missed_tokens": miss.tokens if miss is not None else None,
        "cache_miss": miss.reason if miss is not None else None,
        "problem": account.problem or None,
    }
    return _line(level, "request", now, {name: value for name, value in fields.items() if value is not None})


def _people_line(level: str, now: float, account: RequestAccount) -> bytes:
    """Return the end of a request for people: time, client, model, tokens, cache share, dollars, seconds."""
    usage, told = account.usage, list[str]()
    client, model = (_without_key(account, name)[:_MOST_CHARS] for name in (account.program or "", account.model))
    if usage is not None and usage.prompt_tokens:
        share = usage.cache_read_tokens / usage.prompt_tokens
        told.append(f"{usage.prompt_tokens:,} → {usage.output_tokens:,}, {share:.0%} cached")
    if account.cost:
        told.append(f"${account.cost:.4f}")
    if account.status >= 400 or account.problem:
        told.append(" ".join(filter(None, [str(account.status), account.problem])))
    end = "  ".join([*told, f"{account.seconds:.1f} s"])
    room = max(get_terminal_size().columns - len(f"00:00:00  {client}    {end}"), _LEAST_NAME)
    shown = model if len(model) <= room else f"{model[: room - 1]}…"
    named = [client, shown] if account.model else [f"{account.method} {account.path}"[:_MOST_CHARS]]
    return _people_event(level, "  ".join(filter(None, [*named, end])), now, {})


def _people_event(level: str, event: str, now: float, fields: dict[str, Any]) -> bytes:
    moment = datetime.fromtimestamp(now).astimezone().strftime("%H:%M:%S")
    mark = f"{level}: " if level in {"warning", "error"} else ""
    shown = _clean(fields)
    event = str(shown.pop("message", event))
    told = "  ".join(f"{name} {value}".strip() for name, value in shown.items() if value is not None)
    text = f"{moment}  {mark}{event}  {told}".rstrip()
    printable = "".join(sign if sign.isprintable() else "�" for sign in text)  # a client chose some of the words
    return printable.encode("utf-8", "replace") + b"\n"


def _without_key(account: RequestAccount, text: str) -> str:
    """Return a text of the client's, unless it has put its key there."""
    return "" if account.caller.has_key_in(text) else text


def _line(level: str, event: str, now: float, fields: dict[str, Any]) -> bytes:
    moment = datetime.fromtimestamp(now, tz=UTC).isoformat(timespec="milliseconds")
    return orjson.dumps({"time": moment, "level": level, "event": event, **_clean(fields)}) + b"\n"


def _clean(fields: dict[str, Any]) -> dict[str, Any]:
    """Return fields with texts that can be written: a client may send invalid Unicode."""
    return {
        name: value.encode("utf-8", "replace").decode() if isinstance(value, str) else value
        for name, value in fields.items()
    }


CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0)
_TOKENS = {
    "input": "input_tokens",
    "output": "output_tokens",
    "cache_read": "cache_read_tokens",
    "cache_write": "cache_write_tokens",
}


class _Histogram:
    def __init__(self) -> None:
        self.counts = [0] * (len(_BUCKETS) + 1)
        self.sum = 0.0

    def add(self, value: float) -> None:
        self.counts[bisect_left(_BUCKETS, value)] += 1
        self.sum += value


class Metrics:
    """The counters of a gateway; they run in the event loop."""

    def __init__(self) -> None:
        self.in_flight = 0
        self._requests: defaultdict[tuple[str, int], int] = defaultdict(int)
        self._seconds: defaultdict[str, _Histogram] = defaultdict(_Histogram)
        self._received = 0
        self._sent = 0
        self._compactions: defaultdict[tuple[str, str], int] = defaultdict(int)
        self._tokens: defaultdict[str, int] = defaultdict(int)
        self._misses: defaultdict[str, int] = defaultdict(int)
        self._dollars = 0.0
        self._gauges: list[tuple[str, str, Callable[[], float]]] = []

    def gauge(self, name: str, about: str, read: Callable[[], float]) -> None:
        """Show a number that is kept elsewhere."""
        self._gauges.append((name, about, read))

    def finished(self, account: RequestAccount) -> None:
        """Count a request that is over."""
        self._requests[account.route, account.status] += 1
        self._seconds[account.route].add(account.seconds)
        self._received += account.received
        self._sent += account.sent
        self._dollars += account.cost
        if account.usage is not None:
            for name, attribute in _TOKENS.items():
                self._tokens[name] += getattr(account.usage, attribute)
        if account.miss is not None:
            self._misses[account.miss.reason] += account.miss.tokens

    def paid(self, dollars: float) -> None:
        """Count the cost of summaries, which no request includes."""
        self._dollars += dollars

    def compacted(self, reason: str, outcome: str) -> None:
        """Count a compaction."""
        self._compactions[reason, outcome] += 1

    def text(self) -> str:
        """Return all numbers as text."""
        return "\n".join(self._lines()) + "\n"

    def _lines(self) -> Iterator[str]:
        yield from _head("everlong_requests_total", "counter", "Requests by endpoint and status.")
        for (route, status), count in sorted(self._requests.items()):
            yield _metrics_line("everlong_requests_total", count, {"route": route, "status": str(status)})
        yield from self._histograms()
        yield from _single("everlong_requests_in_flight", "gauge", "Requests under way.", self.in_flight)
        yield from _single("everlong_received_bytes_total", "counter", "Bytes of requests.", self._received)
        yield from _single("everlong_sent_bytes_total", "counter", "Bytes of answers.", self._sent)
        yield from _head("everlong_compactions_total", "counter", "Compactions by reason and outcome.")
        for (reason, outcome), count in sorted(self._compactions.items()):
            yield _metrics_line("everlong_compactions_total", count, {"reason": reason, "outcome": outcome})
        yield from _head("everlong_tokens_total", "counter", "Tokens that upstreams reported, by kind.")
        for kind in _TOKENS:
            yield _metrics_line("everlong_tokens_total", self._tokens[kind], {"kind": kind})
        yield from _head("everlong_cache_missed_tokens_total", "counter", "Tokens paid for again, by the reason.")
        for reason, tokens in sorted(self._misses.items()):
            yield _metrics_line("everlong_cache_missed_tokens_total", tokens, {"reason": reason})
        yield from _single("everlong_dollars_total", "counter", "US dollars by known prices.", self._dollars)
        for name, about, read in self._gauges:
            yield from _single(name, "gauge", about, read())

    def _histograms(self) -> Iterator[str]:
        name = "everlong_request_seconds"
        yield from _head(name, "histogram", "How long requests take, to the last byte.")
        for route, histogram in sorted(self._seconds.items()):
            total = 0
            for bound, count in zip((*map(_number, _BUCKETS), "+Inf"), histogram.counts, strict=True):
                total += count
                yield _metrics_line(f"{name}_bucket", total, {"route": route, "le": bound})
            yield _metrics_line(f"{name}_sum", histogram.sum, {"route": route})
            yield _metrics_line(f"{name}_count", total, {"route": route})


def _head(name: str, kind: str, about: str) -> Iterator[str]:
    yield f"# HELP {name} {about}"
    yield f"# TYPE {name} {kind}"


def _single(name: str, kind: str, about: str, value: float) -> Iterator[str]:
    yield from _head(name, kind, about)
    yield _metrics_line(name, value, {})


def _metrics_line(name: str, value: float, labels: Mapping[str, str]) -> str:
    inside = ",".join(f'{label}="{text}"' for label, text in labels.items())
    return f"{name}{{{inside}}} {_number(value)}" if inside else f"{name} {_number(value)}"


def _number(value: float) -> str:
    return repr(value) if isinstance(value, int) else f"{value:.9g}"
