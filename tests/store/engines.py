"""Engines that do to a list whatever an engine could do, for the tests of views."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any

from hypothesis import strategies as st

from everlong.context.engine import ContextEngine
from everlong.model import Message

Change = Callable[[list[Message]], list[Message]]


class ScriptedEngine(ContextEngine):
    """Applies a function to the list."""

    def __init__(self, change: Change) -> None:
        self.change = change

    @property
    def name(self) -> str:
        return "scripted"

    def update_from_response(self, usage: dict[str, Any]) -> None:
        del usage

    def should_compress(self, prompt_tokens: int | None = None) -> bool:
        del prompt_tokens
        return True

    def compress(
        self, messages: list[Message], current_tokens: int | None = None, focus_topic: str | None = None
    ) -> list[Message]:
        del current_tokens, focus_topic
        return self.change(messages)


def summary(text: str) -> Message:
    return {"role": "user", "content": f"[CONTEXT SUMMARY]: {text}"}


def summarizing(first: int, last: int, text: str = "so far") -> Change:
    """Replace a stretch of the list by a summary."""
    return lambda messages: [*messages[:first], summary(text), *messages[last:]]


Step = tuple[str, int, int]


def _merge(messages: list[Message], first: int, last: int) -> None:
    text = "\n".join(str(message.get("content")) for message in messages[first : last + 1])
    messages[first : last + 1] = [{"role": messages[first]["role"], "content": text}]


def _mutate(messages: list[Message], first: int, _last: int) -> None:
    messages[first]["content"] = "[Old tool output cleared to save context space]"


def _untag(messages: list[Message], _first: int, _last: int) -> None:
    messages[:] = [{key: value for key, value in message.items() if key != "_node"} for message in messages]


def _resystem(messages: list[Message], _first: int, _last: int) -> None:
    if messages[0]["role"] == "system":
        messages[0] = {**messages[0], "content": "Another prompt."}


_STEPS: dict[str, Callable[[list[Message], int, int], object]] = {
    "drop": lambda messages, first, last: messages.__delitem__(slice(first, last)),
    "summarize": lambda messages, first, last: messages.__setitem__(
        slice(first, last), [summary(f"of {last - first}")]
    ),
    "merge": _merge,
    "copy": lambda messages, first, last: messages.insert(last, copy.deepcopy(messages[first])),
    "append": lambda messages, _first, _last: messages.append(summary("appended")),
    "mutate": _mutate,
    "edit": lambda messages, _first, last: messages.__setitem__(last, {**messages[last], "content": "shortened"}),
    "move": lambda messages, first, last: messages.insert(first, messages.pop(last)),
    "untag": _untag,
    "insert": lambda messages, _first, last: messages.insert(last, {"role": "assistant", "content": "Understood."}),
    "resystem": _resystem,
}


def _apply(messages: list[Message], step: Step) -> list[Message]:
    kind, a, b = step
    if not messages:
        return [summary("nothing left")]
    first, last = sorted((a % len(messages), b % len(messages)))
    result = list(messages)
    _STEPS[kind](result, first, last)
    return result


def _change(steps: Sequence[Step]) -> Change:
    def change(messages: list[Message]) -> list[Message]:
        for step in steps:
            messages = _apply(messages, step)
        return messages

    return change


def step_lists() -> st.SearchStrategy[list[Step]]:
    """What an engine does, as data that shrinks and prints well."""
    step = st.tuples(st.sampled_from(sorted(_STEPS)), st.integers(0, 30), st.integers(0, 30))
    return st.lists(step, min_size=1, max_size=4)


def engine_of(steps: Sequence[Step]) -> ScriptedEngine:
    return ScriptedEngine(_change(steps))
