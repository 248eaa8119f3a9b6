"""A conversation that all frameworks are led through: a fact at the beginning, many errands, a question."""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import pairwise
from typing import Any

from everlong import ContextCompressor
from everlong.testing import Answer, Ask, Call, ModelServer
from tests.examples import length

TURNS = length(200, 50)
WINDOW = 16_000
FACT = "7319-KILO"
FIRST = f"You keep the books of the harbour. The harbour's code is {FACT}; remember it."
QUESTION = "What is the harbour's code?"


def errand(number: int) -> str:
    return f"Look up page {number} of the ledger and tell me its total."


def page(number: int, rows: int = 40) -> str:
    """Return the tool's result: some hundred tokens, the total at the end."""
    text = "\n".join(f"row {row}: berth {row * 7 % 31}, {row * number + 3} crates" for row in range(rows))
    return f"Ledger, page {number}\n{text}\ntotal: {number * 1000 + 17}"


def clerk(ask: Ask) -> Answer:
    """Look up every requested page, knowing nothing but the request."""
    if QUESTION in ask.last_user:
        return Answer(f"The code is {FACT}." if FACT in ask.text else "I do not know.")
    if ask.results:
        return Answer(f"The {ask.results[-1][1].splitlines()[-1]}.")
    if "page" not in ask.last_user:
        return Answer("I will.")
    number = int(ask.last_user.split("page ")[1].split()[0])
    return Answer("Let me look.", [Call("look_up", {"number": number})])


def looking(tool: str) -> Callable[[Ask], Answer]:
    """Return a clerk who uses a tool to look the code up when asked for it."""

    def script(ask: Ask) -> Answer:
        if QUESTION not in ask.last_user:
            return clerk(ask)
        if ask.results:
            return Answer(f"Looked up: {FACT}." if FACT in ask.results[-1][1] else f"No: {ask.results[-1][1]}")
        return Answer("", [Call(tool, {"query": "harbour's code"})]) if tool in ask.tools else Answer(f"no tool {tool}")

    return script


class Engines:
    """Makes the engines of a test and remembers them."""

    def __init__(self, window: int = WINDOW) -> None:
        self.window = window
        self.made: list[ContextCompressor] = []

    def __call__(self) -> ContextCompressor:
        self.made.append(ContextCompressor(self.window))
        return self.made[-1]

    @property
    def compactions(self) -> int:
        return sum(engine.compression_count for engine in self.made)


def cache_share(server: ModelServer) -> float:
    """Return the share of all prompt tokens that was read from the cache."""
    read = 0
    for record in server.requests:
        usage: dict[str, Any] = record.usage or {}
        details = usage.get("prompt_tokens_details") or usage.get("input_tokens_details") or {}
        read += details.get("cached_tokens", 0) + usage.get("cache_read_input_tokens", 0)
    return read / max(1, sum(record.prompt_tokens for record in server.requests))


def figures(name: str, turns: int, server: ModelServer) -> str:
    """Return a line about a conversation, for the log of CI."""
    told = f"{turns} turns, {len(server.requests)} requests, {len(server.rejections)} refused"
    return f"\n{name}: {told}, {cache_share(server):.0%} of the prompt read from the cache"


def moved_prefixes(server: ModelServer) -> int:
    """Return how often a request did not begin with the whole request before it."""
    bodies: list[list[Any]] = [record.body["messages"] for record in server.requests]
    return sum(_text(after[: len(before)]) != _text(before) for before, after in pairwise(bodies))


def _text(messages: list[Any]) -> str:
    return json.dumps(messages, sort_keys=True)
