"""The shipped session of an agent, and the facts that it states."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import TYPE_CHECKING

import zstandard

from everlong.model import calls_of, is_system, text_of

if TYPE_CHECKING:
    from everlong.model import Message

__all__ = ["Fact", "find_in_context", "load_session"]


@dataclass(frozen=True, slots=True)
class Fact:
    """A fact of the session: the question it answers, the words that state it, and the message that said it first."""

    id: str
    question: str
    needle: tuple[str, ...]
    message: int
    kind: str


def load_session() -> tuple[list[Message], list[Fact]]:
    """Return the shipped session and the facts that it states."""
    folder = files("everlong.cli") / "demo_session"
    # Compressed by more than a wheel compresses: it is by far the largest file of the program.
    packed = (folder / "session.jsonl.zst").read_bytes()
    lines = zstandard.decompress(packed).decode().splitlines()
    facts = json.loads((folder / "facts.json").read_text(encoding="utf-8"))
    made = [Fact(one["id"], one["question"], tuple(one["needle"]), one["message"], one["kind"]) for one in facts]
    return [json.loads(line) for line in lines], made


def find_in_context(fact: Fact, context: Sequence[Message]) -> str:
    """Return the words that still state a fact in a context; empty if none do."""
    texts = [
        text for m in context if not is_system(m) for text in (text_of(m), *(call.arguments for call in calls_of(m)))
    ]
    return next((needle for needle in fact.needle if any(needle in text for text in texts)), "")
