"""Summaries spoilt by hand, one by one: the second half of ``--damage``.

Ten sessions (five of coding agents, one of them in Chinese; five chats and calls of customer service), each with its
summary, and 220 ways to spoil them, written down in ``damaged/*.toml`` without a look at the checks. What is spoilt and
what is put there is different each time, so that no rule can be made for the damage.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from everlong.context.frontier import place_frontier, read_frontier
from everlong.context.verify import Yardstick

from bench.retention.damage import Outcome, called, outcomes as made_up_outcomes, planned, report, spoken
from everlong.model import Message

FOLDER = Path(__file__).with_name("damaged")
_STATES = {"x": "completed", ">": "in_progress", " ": "pending"}
NAMED_BY: dict[str, tuple[str, ...]] = {
    "wrapper": ("goal",),
    "rule dropped": ("rules",),
    "open item done": ("frontier", "contradiction", "newest request", "invented"),
    "number": ("invented", "contradiction", "frontier"),
    "name": ("invented",),
    "negation": ("contradiction", "rules"),
    "stale plan": ("frontier",),
    "older request": ("newest request",),
    "request cut": ("newest request",),
    "error changed": ("frontier", "invented"),
    "outcome turned": ("contradiction", "frontier", "invented"),
    "old value": ("contradiction",),
    "turned round": ("contradiction",),
    "code heap": ("code",),
}
"""Each kind of damage, and the checks of which one must name it."""


def outcomes() -> tuple[list[float], list[Outcome]]:
    """Return the scores of the originals, and what became of every damaged summary."""
    originals: list[float] = []
    found: list[Outcome] = []
    for written in _sessions():
        summary, yardstick = read_session(written)
        original = yardstick.grade(summary)
        originals.append(original)
        for kind, words, put in written["damage"]:
            spoilt = spoil(summary, words, put, written["name"])
            faults = yardstick.faults(spoilt)
            named = any(fault.check in NAMED_BY[kind] for fault in faults)
            where = f"{written['name']}: {words!r} → {put!r}"
            found.append(Outcome(kind, original, yardstick.grade(spoilt), (where, *map(str, faults)), named))
    return originals, found


def _sessions() -> Iterator[dict[str, Any]]:
    for path in sorted(FOLDER.glob("*.toml")):
        yield from tomllib.loads(path.read_text("utf-8"))["session"]


def read_session(written: dict[str, Any]) -> tuple[str, Yardstick]:
    """Return the summary of a session as the engine would keep it, and what measures it."""
    messages: list[Message] = []
    for number, (what, *rest) in enumerate(written["turns"]):
        if what == "call":
            name, arguments, result = rest
            messages += called(number, name, result, **arguments)
        elif what == "plan":
            messages += planned(number, [(_STATES[state], text) for state, text in rest[0]])
        else:
            messages.append({"role": "user", "content": rest[0]} if what == "user" else spoken(rest[0]))
    frontier = read_frontier(messages)
    summary = place_frontier(written["summary"].strip(), frontier, 4_000, len)
    rules = tuple(written["rules"])
    return summary, Yardstick(messages, (), messages, newest=written["newest"], frontier=frontier, rules=rules)


def spoil(summary: str, words: str, put: str, name: str) -> str:
    """Return a summary with some words replaced where they first stand."""
    if words not in summary:
        raise ValueError(f"{name}: the summary does not say {words!r}")
    return summary.replace(words, put, 1)


def run(misses: int, seed: int = 1) -> int:
    """Measure both sets of damaged summaries, print, and return 0 where every bar holds."""
    made_up = report("damage by rule", *made_up_outcomes(seed=seed), misses)
    return 0 if report("damage by hand", *outcomes(), misses) and made_up else 1
