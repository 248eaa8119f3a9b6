"""Hooks: functions of plugins that are called on events of a conversation.

A hook that raises is warned about once and never breaks a turn.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from everlong.memory.provider import describe_error
from everlong.plugins.checking import wanted_arguments

__all__ = ["EVENTS", "Hooks", "run_awaitable"]

EVENTS: Mapping[str, str] = {
    "on_session_start": "a session begins or is resumed",
    "on_session_end": "a session has ended for good",
    "on_session_reset": "the user began anew; the next session starts with nothing said",
    "pre_llm_call": "a prompt is about to be worked on; text that is returned is added to it",
    "post_llm_call": "a prompt has its answer",
    "pre_api_request": "a request is about to be sent to the model",
    "post_api_request": "the model has answered a request",
    "pre_tool_call": 'a tool is about to be called; {"action": "block", "message": …} stops that',
    "post_tool_call": "a tool has answered",
    "pre_compress": "the conversation is about to be compacted",
    "post_compress": "a compaction is done",
}
"""Events that a hook can be registered for, and when they happen."""


class Hooks:
    """The hooks of all plugins, by event.

    Args:
        warn: told of a hook that failed, once each.
        around: makes the context manager in which hooks are called.
    """

    def __init__(
        self,
        warn: Callable[[str], None] = lambda _: None,
        around: Callable[[], AbstractContextManager[None]] = nullcontext,
    ) -> None:
        self._warn = warn
        self._around = around
        self._by_event: dict[str, list[tuple[str, Callable[..., Any]]]] = {}
        self._failed: set[tuple[str, int]] = set()

    def add(self, event: str, callback: Callable[..., Any], plugin: str) -> None:
        """Register a function of a plugin for an event."""
        self._by_event.setdefault(event, []).append((plugin, callback))

    def take(self, left: Mapping[str, list[Callable[..., Any]]]) -> None:
        """Register hooks that plugins left with the manager of another host."""
        for event, callbacks in left.items():
            for callback in callbacks if event in EVENTS else ():
                self.add(event, callback, callback.__module__.partition(".")[0])

    def forget(self, plugin: str) -> None:
        """Remove the hooks of a plugin."""
        for event, hooks in self._by_event.items():
            self._by_event[event] = [one for one in hooks if one[0] != plugin]

    def __contains__(self, event: str) -> bool:
        return bool(self._by_event.get(event))

    def fire(self, event: str, **facts: Any) -> list[Any]:
        """Call every hook of an event with the facts that it takes, and return their answers without the Nones."""
        answers = []
        for plugin, callback in self._by_event.get(event, ()):
            try:
                with self._around():
                    answer = callback(**wanted_arguments(callback, facts))
                    if inspect.isawaitable(answer):
                        answer = run_awaitable(answer)
            except (Exception, SystemExit) as error:  # noqa: BLE001 - foreign code; warned about, and the turn goes on
                if (event, id(callback)) not in self._failed:
                    self._failed.add((event, id(callback)))
                    self._warn(f"plugin {plugin!r}: its hook for {event} failed: {describe_error(error)}")
                continue
            if answer is not None:
                answers.append(answer)
        return answers


def run_awaitable(answer: Any) -> Any:
    """Wait for an awaitable, and return its value."""
    import asyncio  # noqa: PLC0415 - hooks are seldom asynchronous

    async def wait() -> Any:
        return await answer

    return asyncio.run(wait())
