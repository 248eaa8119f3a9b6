"""Search at several sizes of a store, a part of `bench.store.scale`: every kind of query, its times and their growth.

The messages are those of `bench.store.searching` in conversations of 500, one second apart, with calls of tools and
their answers. CPU milliseconds for one page, of several queries per kind the best of three runs each. On a PostgreSQL
server with the same store, wall time, CPU of the indexing (with that of the server), size and hits are compared.
"""

from __future__ import annotations

import itertools
import math
import random
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

from sqlalchemy import select, text as sql_text

from bench.measure import verdict
from bench.store.searching import CHINESE_QUERY, COMMON, NEEDLE, PATH, PER_SESSION, texts, word_of_rank
from bench.store.server import Meter, postgres, server_cpu
from everlong.model import Message
from everlong.store.schema import session
from everlong.store.search import Filters, Order, Page, Searcher
from everlong.store.search.query import Mode
from everlong.store.store import Store

WORST = 120.0
"""Milliseconds of CPU that a query may take."""
CPU, SIZE, SLOWER, SAME = 2.0, 2.0, 2.5, 0.98
"""The bars of PostgreSQL beside SQLite: CPU of the indexing, size, time of a query, and the share of equal pages."""

PENDING = 600
TOOL, RARE_TOOL, RARE_EVERY = "run_shell", "roll_back", 4_000
_START = 1_700_000_000.0
_RUNS = 3


class Asked(NamedTuple):
    """One query of a kind."""

    text: str
    mode: Mode = "auto"
    filters: Filters = Filters()
    order: Order = "relevance"
    pages: int = 1


class Measured(NamedTuple):
    """The milliseconds of a kind's queries, CPU and wall time, and what they found."""

    cpu: list[float]
    wall: list[float]
    hits: list[tuple[int, ...]]
    is_partial: bool

    @property
    def median(self) -> float:
        """The median of CPU time."""
        return statistics.median(self.cpu)

    @property
    def worst(self) -> float:
        """The most CPU time."""
        return max(self.cpu)


def messages(count: int) -> Iterator[list[Message]]:
    """Yield conversations: of ten messages, one calls a tool and one answers for it."""
    waiting = enumerate(texts(count))
    while chunk := list(itertools.islice(waiting, PER_SESSION)):
        yield [_message(number, place, text) for place, (number, text) in enumerate(chunk)]


def _message(number: int, place: int, text: str) -> Message:
    if place % 10 == 9:
        return {"role": "tool", "tool_call_id": f"call_{number - 1}", "content": text}
    if place % 10 == 8:
        name = RARE_TOOL if number % RARE_EVERY < 10 else TOOL
        call = {"id": f"call_{number}", "type": "function", "function": {"name": name, "arguments": "{}"}}
        return {"role": "assistant", "content": text, "tool_calls": [call]}
    return {"role": "assistant" if place % 2 else "user", "content": text}


class Filled(NamedTuple):
    """The bytes of the texts, and the CPU seconds for their index."""

    size: int
    cpu: float


def fill(store: Store, count: int, server_cpu: Callable[[], float] = lambda: 0.0) -> Filled:
    """Record so many messages and index them."""
    size = done = 0
    for talk in messages(count):
        size += sum(len(str(one["content"]).encode()) for one in talk)
        at = store.record(talk, times=[_START + done + place for place in range(len(talk))])
        store.sessions.start(at, from_depth=0)
        done += len(talk)
    start, served = time.process_time(), server_cpu()
    while store.searcher.index_pending():
        pass
    return Filled(size, time.process_time() - start + server_cpu() - served)


def queries(store: Store, count: int) -> dict[str, list[Asked]]:
    """Return the queries of every kind for a store of that size."""
    sample = next(messages(PER_SESSION))
    plain = [str(one["content"]).split() for one in sample if str(one["content"]).isascii()]
    pairs = [words[place : place + 2] for words in plain[:4] for place in (7, 21)]
    paths = [word.partition(":")[0] for words in plain[4:8] for word in words if "/" in word][:4]
    middle = [word_of_rank(rank) for rank in (20, 60, 200, 600, 2_000, 6_000)]
    asked = [
        f"When did the {one} reach the {other} with its {third}?"
        for one, other, third in (COMMON, middle[:3], middle[1:4], middle[2:5], middle[3:], (COMMON[0], *middle[4:]))
    ]
    with store.database.read() as connection:
        sessions = list(connection.execute(select(session.c.id).order_by(session.c.branch)).scalars())
    chosen = [sessions[len(sessions) * part // 8] for part in range(1, 7)]
    late, early = _START + 0.98 * count, _START + 0.3 * count
    words = [" ".join(COMMON), NEEDLE, " ".join(middle[:2]), " ".join(middle[2:4]), middle[0], middle[4]]
    return {
        "words": [Asked(text) for text in words],
        "question": [Asked(text) for text in asked],
        "phrase": [Asked('"meridian lanterns"'), *(Asked(f'"{one} {other}"') for one, other in pairs)],
        "path or identifier": [Asked(text) for text in (PATH, "ledger_export", *paths)],
        "substring": [
            Asked(text, "substring") for text in ("ledger_exp", PATH, "eridian lan", *(m[1:7] for m in middle))
        ],
        "pattern with a literal": [Asked(r"ledger_\w+\.py:\d{3}", "regex"), Asked(r"zq\d+needle", "regex")],
        "Chinese sentence": [Asked("请问数据库的连接为什么会超时"), Asked("数据库连接超时"), Asked(CHINESE_QUERY)],
        "two characters": [Asked(text, "substring") for text in ("er", "zq", "q8", ":7", "xj")],
        "in one conversation": [
            Asked(text, filters=Filters(session=name)) for text, name in zip(asked, chosen, strict=True)
        ],
        "by role": [Asked(text, filters=Filters(role=role)) for text in asked[:3] for role in ("user", "tool")],
        "by tool": [Asked(text, filters=Filters(tool=tool)) for text in asked[:2] for tool in (TOOL, RARE_TOOL)],
        "since a time": [Asked(text, filters=Filters(since=late)) for text in asked],
        "before a time": [Asked(text, filters=Filters(before=early)) for text in asked],
        "ordered by time": [Asked(text, order="time") for text in (*words, '"meridian lanterns"')],
        "any words": [Asked(text) for text in _any_words(120)],
        "second page": [Asked(text, pages=2) for text in (*asked[:3], *words[:3])],
    }


def _any_words(count: int) -> Iterator[str]:
    rng = random.Random(5)
    forms = ("When did the {} reach the {} with its {}?", "{} {}", "Where is the {} that {} keeps?", "{}")
    for number in range(count):
        yield forms[number % len(forms)].format(*(word_of_rank(int(10 ** rng.uniform(0.7, 4.4))) for _ in range(3)))


def measure(searcher: Searcher, asked: Sequence[Asked], meter: Meter) -> Measured:
    """Return the times of some queries, each the best of three."""
    found = Measured([], [], [], is_partial=False)
    for one in asked:
        cpu = wall = math.inf
        for _ in range(_RUNS):
            page, spent, taken = _timed(searcher, one, meter)
            cpu, wall = min(cpu, spent), min(wall, taken)
            if spent > 2 * WORST / 1e3 or taken > 1:  # once is enough
                break
        found.cpu.append(1e3 * cpu)
        found.wall.append(1e3 * wall)
        found.hits.append(tuple(hit.seq for hit in page.hits))
        found = found._replace(is_partial=found.is_partial or page.is_partial)
    return found


def _timed(searcher: Searcher, asked: Asked, meter: Meter) -> tuple[Page, float, float]:
    search = partial(searcher.search, asked.text, mode=asked.mode, filters=asked.filters, order=asked.order)
    page = search() if asked.pages > 1 else None
    clock = time.perf_counter()
    with meter:
        page = search(cursor=page.cursor if page else None)
    return page, meter.spent, time.perf_counter() - clock


def add_pending(store: Store) -> None:
    """Store messages that are not indexed."""
    talk: list[Message] = [
        {"role": "assistant" if place % 2 else "user", "content": text}
        for place, text in enumerate(texts(PENDING, seed=11))
    ]
    store.record(talk)


def measure_all(store: Store, count: int, meter: Meter | None = None) -> dict[str, Measured]:
    """Return the times of every kind, at last those with pending messages."""
    kinds, meter = queries(store, count), meter or Meter()
    found = {kind: measure(store.searcher, asked, meter) for kind, asked in kinds.items()}
    add_pending(store)
    _, cpu, wall = _timed(store.searcher, kinds["question"][0], meter)
    first = Measured([1e3 * cpu], [1e3 * wall], [()], is_partial=False)
    found[f"first with {PENDING} pending"] = first
    for kind in ("question", "phrase", "substring"):
        found[f"{kind}, {PENDING} pending"] = measure(store.searcher, kinds[kind], meter)
    while store.searcher.index_pending():
        pass
    return found


def size_of(store: Store) -> int:
    """Return the bytes of a database."""
    with store.database.read() as connection:
        if store.database.backend.name == "sqlite":
            pages = connection.exec_driver_sql("PRAGMA page_count").scalar_one()
            return int(pages * connection.exec_driver_sql("PRAGMA page_size").scalar_one())
        return int(connection.execute(sql_text("SELECT pg_database_size(current_database())")).scalar_one())


def check_postgres(count: int) -> int:
    """Print PostgreSQL beside SQLite; return the number of missed bars."""
    with tempfile.TemporaryDirectory() as name, Store.open(Path(name) / "store.db") as store:
        own, own_size = fill(store, count), size_of(store)
        here = measure_all(store, count)
    with postgres() as url, Store.open(url) as store:
        empty = size_of(store)
        other = fill(store, count, partial(server_cpu, url))
        with store.database.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            connection.execute(sql_text("VACUUM ANALYZE"))
        other_size = size_of(store) - empty
        there = measure_all(store, count)
    times, ratio = other.cpu / own.cpu, other_size / own_size
    print(f"{count:,} messages, {own.size / 1e6:.0f} MB of text")
    print(f"indexing: {own.cpu:.1f} s CPU, PostgreSQL {other.cpu:.1f} s with its server: {times:.2f} times", end=" ")
    print(f"({verdict(times, CPU)}, bar {CPU})")
    print(
        f"size: {own_size / own.size:.2f} times the text, PostgreSQL {ratio:.2f} times that ({verdict(ratio, SIZE)}, "
        f"bar {SIZE})"
    )
    pairs = [pair for kind in here for pair in zip(here[kind].hits, there[kind].hits, strict=True)]
    equal = sum(one == other for one, other in pairs) / len(pairs)
    print(f"equal pages: {equal:.3f} of {len(pairs)} ({verdict(equal, SAME, at_least=True)}, bar {SAME})")
    missed = int(times > CPU) + int(ratio > SIZE) + int(equal < SAME)
    print(f"{'wall ms: median / worst':<28}{'SQLite':>18}{'PostgreSQL':>18}   times   same hits")
    for kind, one in here.items():
        two = there[kind]
        slower = max(there_ms / max(here_ms, 2.0) for here_ms, there_ms in zip(one.wall, two.wall, strict=True))
        median = statistics.median(two.wall) / max(2.0, statistics.median(one.wall))
        same = sum(left == right for left, right in zip(one.hits, two.hits, strict=True))
        sets = sum(set(left) == set(right) for left, right in zip(one.hits, two.hits, strict=True))
        is_ok = median <= SLOWER and not two.is_partial
        missed += not is_ok
        print(
            f"{kind:<28}{statistics.median(one.wall):>10.1f} /{max(one.wall):>6.1f}"
            f"{statistics.median(two.wall):>10.1f} /{max(two.wall):>6.1f}{median:>8.2f} (most {slower:.1f})"
            f"   {same}/{len(one.hits)} (any order {sets})   {'ok' if is_ok else 'MISSED'}"
            f"{' partial' if two.is_partial else ''}"
        )
    return missed
