"""Sizing of stores up to a billion messages: the tables of `docs/scale.md`, with the arithmetic in sight.

Measures nothing. The figures for one message come from `bench.store.scale` and can be given for other messages.

    python -m bench.store.sizing [--text 870] [--sqlite 2.0] [--postgres 8.8]
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import NamedTuple

SIZES = (100_000, 1_000_000, 10_000_000, 100_000_000, 1_000_000_000)

DISK_SHARE = 0.7
"""The share of a disk that a database may fill: the rest is for its log, a rewrite and growth."""

SECONDS_OF_A_DAY = 86_400


class Message(NamedTuple):
    """What one message takes on average."""

    text: float
    """Bytes of its words."""
    sqlite: float
    """Bytes of a SQLite file for each byte of words: rows, search index, free room."""
    postgres: float
    """The same on PostgreSQL."""


MEASURED = Message(text=870, sqlite=2.0, postgres=8.8)
"""The messages of `bench.store.scale` (SQLite, 100,000 of them; PostgreSQL, 7,200 of them)."""


class Sizing(NamedTuple):
    """A store of so many messages."""

    messages: int
    words: float
    sqlite: float
    postgres: float
    disk: float
    per_day: float
    """Messages in a day if they are those of a year."""


def size(messages: int, one: Message) -> Sizing:
    """Return what a store of so many messages takes."""
    words = messages * one.text
    postgres = words * one.postgres
    return Sizing(
        messages,
        words,
        words * one.sqlite,
        postgres,
        postgres / DISK_SHARE,
        messages / 365,
    )


def in_bytes(count: float) -> str:
    """Return a number of bytes with three digits."""
    for unit in ("B", "KB", "MB", "GB", "TB"):
        if count < 999.5 or unit == "TB":
            return f"{count:.3g} {unit}" if count < 1_000 else f"{count:,.0f} {unit}"
        count /= 1_000
    raise AssertionError


def rows(one: Message = MEASURED, sizes: Sequence[int] = SIZES) -> list[list[str]]:
    """Return the table, its head first."""
    head = [
        "messages",
        "words",
        "SQLite file",
        "PostgreSQL",
        "disk for it",
        "a day",
    ]
    table = [head]
    for found in (size(count, one) for count in sizes):
        amounts = (found.words, found.sqlite, found.postgres, found.disk)
        per_day = f"{found.per_day:,.0f} ({found.per_day / SECONDS_OF_A_DAY:.2g}/s)"
        table.append(
            [
                f"{found.messages:,}",
                *(in_bytes(amount) for amount in amounts),
                per_day,
            ]
        )
    return table


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--text", type=float, default=MEASURED.text, help="bytes of words in a message")
    parser.add_argument(
        "--sqlite", type=float, default=MEASURED.sqlite, help="bytes of a SQLite file for each byte of words"
    )
    parser.add_argument("--postgres", type=float, default=MEASURED.postgres, help="the same of a PostgreSQL database")
    asked = parser.parse_args()
    one = Message(asked.text, asked.sqlite, asked.postgres)
    print(f"words       = messages × {one.text:g} bytes")
    print(f"SQLite file = words × {one.sqlite:g}")
    print(f"PostgreSQL  = words × {one.postgres:g}")
    print(f"disk for it = PostgreSQL / {DISK_SHARE:g}")
    print("a day       = messages / 365\n")
    for number, row in enumerate(rows(one)):
        print("| " + " | ".join(row) + " |")
        if not number:
            print("|" + "---:|" * len(row))


if __name__ == "__main__":
    main()
