"""Messages of about 1 KB to search in, 8 % of them Chinese, and words of known frequency in them."""

from __future__ import annotations

import itertools
import random
import time
from collections.abc import Iterator
from functools import cache
from typing import Any

from everlong.store.store import Store

CHINESE = 0.08
PER_SESSION = 500
COMMON = ("harvester", "meridian", "lanterns")
"""Three words that each stand in a tenth of the messages."""

NEEDLE = "zq81needle"
PATH = "services/billing/ledger_export.py"
CHINESE_QUERY = "数据"

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
