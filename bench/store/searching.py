"""Search over 100,000 messages of about 1 KB, 8 % of them Chinese, in one SQLite file.

    python -m bench.store.searching [--messages 100000] [--keep FOLDER]

CPU for the first page of each kind of query (best of several), messages indexed per CPU second, and the size of the
database beside the raw text. ``--keep`` leaves the database there and uses it the next time.
"""

from __future__ import annotations

import argparse
import itertools
import random
import sys
import tempfile
import time
from collections.abc import Iterator
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple

from bench.measure import best_cpu, verdict
from everlong.store.search import Searcher
from everlong.store.search.query import Mode
from everlong.store.store import Store

CHINESE = 0.08
PER_SESSION = 500
COMMON = ("harvester", "meridian", "lanterns")
"""Three words that each stand in a tenth of the messages."""

NEEDLE = "zq81needle"
PATH = "services/billing/ledger_export.py"
CHINESE_QUERY = "数据"
INDEXED_PER_SECOND, SIZE = 1_500, 2.8

_SYLLABLES = (
    "ra",
    "ten",
    "mo",
    "li",
    "ver",
    "do",
    "sta",
    "ing",
    "con",
    "per",
    "al",
    "tri",
    "ment",
    "sol",
    "ka",
    "u",
    "ion",
    "be",
)
_FOLDERS = ("services", "billing", "core", "api", "web", "tests", "jobs", "models", "shared", "utils")


class Bar(NamedTuple):
    """One query and the CPU milliseconds that its first page may take."""

    name: str
    query: str
    mode: Mode
    allowed: float | None


BARS = (
    Bar("rare literal", NEEDLE, "auto", 2),
    Bar("three words, each in a tenth of the messages", " ".join(COMMON), "auto", 50),
    Bar("path", PATH, "auto", 20),
    Bar("path as a substring", PATH, "substring", None),
    Bar("part of an identifier", "ledger_exp", "substring", None),
    Bar("Chinese, two characters", CHINESE_QUERY, "auto", 30),
    Bar("Chinese, one character", "库", "auto", 30),
    Bar("Chinese, a sentence", "请问数据库的连接为什么会超时", "auto", 30),
    Bar("phrase", '"meridian lanterns"', "auto", None),
    Bar("question", "When did the harvester reach the meridian with its lanterns?", "auto", None),
    Bar("pattern", r"ledger_\w+\.py:\d{3}", "regex", None),
)


def _vocabulary(rng: random.Random) -> list[str]:
    return ["".join(rng.choices(_SYLLABLES, k=rng.randint(1, 4))) for _ in range(30_000)]


@cache
def _ranked_words() -> tuple[list[str], dict[str, int]]:
    """Return the vocabulary of the texts, and the first place of each word in it."""
    words = _vocabulary(random.Random(7))
    return words, {word: place for place, word in reversed(list(enumerate(words)))}


def word_of_rank(rank: int) -> str:
    """Return a long word of the texts, 0 for the most frequent; it has the frequency of that rank or the next ones."""
    words, first = _ranked_words()
    return next(word for word in words[rank:] if len(word) > 7 and first[word] >= rank)


def texts(count: int, seed: int = 7) -> Iterator[str]:
    """Yield texts of about 1 KB as in an agent's log: words, paths, numbers, names, some of them in Chinese."""
    rng = random.Random(seed)
    words = _vocabulary(rng)
    weights = list(itertools.accumulate(1 / (place + 8) for place in range(len(words))))
    signs = [chr(0x4E00 + rng.randrange(2_500)) for _ in range(2_500)] + list("数据库连接超时请问为什么的会")
    sign_weights = list(itertools.accumulate(1 / (place + 30) for place in range(len(signs))))
    for number in range(count):
        if rng.random() < CHINESE and number != count * 7 // 10:
            chosen = rng.choices(signs, cum_weights=sign_weights, k=330)
            if rng.random() < 0.3:
                chosen[rng.randrange(300)] = "数据库"
            yield "".join(sign + ("，" if place % 17 == 16 else "") for place, sign in enumerate(chosen))
            continue
        chosen = rng.choices(words, cum_weights=weights, k=rng.randint(110, 190))
        for place in range(0, len(chosen), 40):
            folder = "/".join(rng.choices(_FOLDERS, k=3))
            chosen[place] = f"{folder}/{rng.choice(words)}_{rng.choice(words)}.py:{rng.randrange(900)}"
        chosen += [word for word in COMMON if rng.random() < 0.1]
        if rng.random() < 0.002:
            chosen.append(f"{PATH}:{rng.randrange(100, 999)}")
        if number == count * 7 // 10:
            chosen.append(NEEDLE)
        rng.shuffle(chosen)
        yield " ".join(chosen)


def fill(store: Store, count: int) -> tuple[int, float]:
    """Record the messages as conversations; their bytes, and the CPU seconds that it took."""
    size, cpu = 0, 0.0
    waiting = texts(count)
    while chunk := list(itertools.islice(waiting, PER_SESSION)):
        messages: list[dict[str, Any]] = [
            {"role": "assistant" if place % 2 else "user", "content": text} for place, text in enumerate(chunk)
        ]
        size += sum(len(text.encode()) for text in chunk)
        start = time.process_time()
        store.record(messages)
        cpu += time.process_time() - start
    return size, cpu


def main(arguments: list[str] | None = None) -> int:
    """Measure, print, and say whether the bars are held."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--messages", type=int, default=100_000)
    parser.add_argument("--keep", type=Path)
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder:
        path = (options.keep or Path(folder)) / "searching.db"
        is_new = not path.exists()
        with Store.open(path) as store:
            searcher = Searcher(store.database, store.tenant)
            missed = _filled(store, searcher, options.messages, path) if is_new else 0
            missed += _searched(searcher)
    return 1 if missed else 0


def _filled(store: Store, searcher: Searcher, count: int, path: Path) -> int:
    size, stored_cpu = fill(store, count)
    start = time.process_time()
    while searcher.index_pending():
        pass
    cpu = time.process_time() - start
    with store.database.read() as connection:
        pages = connection.exec_driver_sql("PRAGMA page_count").scalar_one()
        page_size = connection.exec_driver_sql("PRAGMA page_size").scalar_one()
    speed, ratio = count / (cpu + stored_cpu), pages * page_size / size
    print(f"{count:,} messages, {size / 1e6:.0f} MB; per CPU second:", end=" ")
    print(f"stored {count / stored_cpu:,.0f}, indexed {count / cpu:,.0f}, both {speed:,.0f}", end=" ")
    print(f"({verdict(speed, INDEXED_PER_SECOND, at_least=True)}, bar {INDEXED_PER_SECOND:,})")
    print(f"database {ratio:.2f} times the raw text ({verdict(ratio, SIZE)}, bar {SIZE})", end="; ")
    print(f"{path.stat().st_size / 1e6:.0f} MB")
    return int(speed < INDEXED_PER_SECOND) + int(ratio > SIZE)


def _searched(searcher: Searcher) -> int:
    missed = 0
    for bar in BARS:
        page = searcher.search(bar.query, mode=bar.mode)
        cpu = 1_000 * best_cpu(partial(searcher.search, bar.query, mode=bar.mode), 7)
        word = f"{verdict(cpu, bar.allowed)}, bar {bar.allowed:g} ms" if bar.allowed else "no bar"
        missed += bool(bar.allowed and cpu > bar.allowed)
        print(f"{bar.name:<46} {cpu:7.2f} ms  {len(page.hits):>2} hits ({word})")
    return missed


if __name__ == "__main__":
    sys.exit(main())
