"""What the gateway does, in numbers, in the text format that Prometheus reads.

Written by hand, because the usual client library takes longer to load than the rest of the gateway's start may take.
Labels come from lists of ours, never from a client, so that nobody can make the numbers grow without end.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from everlong.gateway.account import Account

__all__ = ["CONTENT_TYPE", "Metrics"]

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
    """Counts; everything here runs in the event loop."""

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
        """Show a number that somebody else keeps."""
        self._gauges.append((name, about, read))

    def finished(self, account: Account) -> None:
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

    def compacted(self, reason: str, outcome: str) -> None:
        """Count a compaction."""
        self._compactions[reason, outcome] += 1

    def text(self) -> str:
        """All numbers."""
        return "\n".join(self._lines()) + "\n"

    def _lines(self) -> Iterator[str]:
        yield from _head("everlong_requests_total", "counter", "Requests by endpoint and status.")
        for (route, status), count in sorted(self._requests.items()):
            yield _line("everlong_requests_total", count, {"route": route, "status": str(status)})
        yield from self._histograms()
        yield from _single("everlong_requests_in_flight", "gauge", "Requests under way.", self.in_flight)
        yield from _single("everlong_received_bytes_total", "counter", "Bytes of requests.", self._received)
        yield from _single("everlong_sent_bytes_total", "counter", "Bytes of answers.", self._sent)
        yield from _head("everlong_compactions_total", "counter", "Compactions by reason and outcome.")
        for (reason, outcome), count in sorted(self._compactions.items()):
            yield _line("everlong_compactions_total", count, {"reason": reason, "outcome": outcome})
        yield from _head("everlong_tokens_total", "counter", "Tokens that upstreams reported, by kind.")
        for kind in _TOKENS:
            yield _line("everlong_tokens_total", self._tokens[kind], {"kind": kind})
        yield from _head("everlong_cache_missed_tokens_total", "counter", "Tokens paid for again, by the reason.")
        for reason, tokens in sorted(self._misses.items()):
            yield _line("everlong_cache_missed_tokens_total", tokens, {"reason": reason})
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
                yield _line(f"{name}_bucket", total, {"route": route, "le": bound})
            yield _line(f"{name}_sum", histogram.sum, {"route": route})
            yield _line(f"{name}_count", total, {"route": route})


def _head(name: str, kind: str, about: str) -> Iterator[str]:
    yield f"# HELP {name} {about}"
    yield f"# TYPE {name} {kind}"


def _single(name: str, kind: str, about: str, value: float) -> Iterator[str]:
    yield from _head(name, kind, about)
    yield _line(name, value, {})


def _line(name: str, value: float, labels: Mapping[str, str]) -> str:
    inside = ",".join(f'{label}="{text}"' for label, text in labels.items())
    return f"{name}{{{inside}}} {_number(value)}" if inside else f"{name} {_number(value)}"


def _number(value: float) -> str:
    return repr(value) if isinstance(value, int) else f"{value:.9g}"
