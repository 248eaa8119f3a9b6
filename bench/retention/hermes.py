"""The compressor of hermes-agent, where that package is installed: another engine in the same table.

Its model is replaced by one that returns the best extract of what it is asked to summarize: the lines with the most
entities for their length, newest first where they are equal, as many as there is room for. The window is the largest
one with which the result fits, so that it keeps as much of the newest messages as the room allows.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import logging
import re
from collections.abc import Iterator, Sequence
from types import SimpleNamespace
from typing import Any

from bench.retention.entities import entities
from everlong.model import Message, leading_system_count
from everlong.tokens import MessageCounter

PACKAGE = "agent.context_compressor"
_WINDOWS = (8.0, 6.0, 5.0, 4.0, 3.0, 2.5, 2.0, 1.5)
"""Windows that are tried, as multiples of the room."""
_LEAST_WINDOW = 4_096
_SPARE = 1.02
_LINE = re.compile(r"[^\n]{4,400}")
_counter = MessageCounter()


def is_installed() -> bool:
    """Return whether the package is there."""
    try:
        return importlib.util.find_spec(PACKAGE) is not None
    except (ImportError, ValueError):
        return False


def compact(messages: list[Message], room: int) -> list[Message] | None:
    """Compact a list with hermes-agent to fit a room; return None if it does not get so small."""
    logging.disable(logging.CRITICAL)
    for factor in _WINDOWS:
        window = max(_LEAST_WINDOW, int(room * factor))
        bare = _compressed(messages, window, 0)
        left = room - _body_tokens(bare)
        if left > 0:
            while left > 0:
                made = _compressed(messages, window, left)
                over = _body_tokens(made) - room
                if over <= 0:
                    return made
                left -= max(over, 8)
            return bare
    return None


def _compressed(messages: list[Message], window: int, summary_tokens: int) -> list[Message]:
    module = importlib.import_module(PACKAGE)
    with _stubbed(module, summary_tokens):
        engine = module.ContextCompressor(model="stub", quiet_mode=True, config_context_length=window)
        made: list[Message] = engine.compress([dict(message) for message in messages], force=True)
    return [{key: value for key, value in message.items() if not key.startswith("_")} for message in made]


@contextlib.contextmanager
def _stubbed(module: Any, room: int) -> Iterator[None]:
    """Replace the module's model."""
    real = module.call_llm
    module.call_llm = lambda **asked: _answer(asked, room)
    try:
        yield
    finally:
        module.call_llm = real


def _answer(asked: dict[str, Any], room: int) -> Any:
    prompt = "\n".join(str(message.get("content") or "") for message in asked.get("messages", ()))
    message = SimpleNamespace(content=_extract(prompt, room) or "Nothing.", tool_calls=None, reasoning=None)
    return SimpleNamespace(choices=[SimpleNamespace(message=message, finish_reason="stop")], usage=None)


def _extract(text: str, room: int) -> str:
    """Return the lines of a text that name most for their length, in their order."""
    lines = list(dict.fromkeys(line.strip() for line in _LINE.findall(text)))
    named = [
        (len({entity.text for entity in entities(line)}) / (len(line) + 40), place) for place, line in enumerate(lines)
    ]
    chosen: list[int] = []
    known: set[str] = set()
    for _, place in sorted(named, reverse=True):
        names = {entity.text for entity in entities(lines[place])}
        if not names - known:
            continue
        tokens = _counter.count_text(lines[place]) + 1
        if tokens * _SPARE <= room:
            room -= int(tokens * _SPARE)
            chosen.append(place)
            known |= names
    return "\n".join(lines[place] for place in sorted(chosen))


def _body_tokens(messages: Sequence[Message]) -> int:
    return sum(_counter.counts(messages[leading_system_count(messages) :]))
