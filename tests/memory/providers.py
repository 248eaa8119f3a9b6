"""Memory providers that behave and misbehave, and a measure of time that depends on no clock."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from everlong.memory import MemoryProvider
from everlong.model import Message
from everlong.workers import Job

if TYPE_CHECKING:
    import pytest


def tool(name: str) -> dict[str, Any]:
    parameters = {"type": "object", "properties": {"text": {"type": "string"}}}
    return {"type": "function", "function": {"name": name, "description": "A tool.", "parameters": parameters}}


class Diary(MemoryProvider):
    """Remembers every call that it gets."""

    def __init__(self, name: str = "diary") -> None:
        self._name = name
        self.calls: list[tuple[Any, ...]] = []
        self.threads: set[str] = set()

    @property
    def name(self) -> str:
        return self._name

    def _note(self, *call: Any) -> None:
        self.calls.append(call)
        self.threads.add(threading.current_thread().name)

    def initialize(self, session_id: str, **facts: Any) -> None:
        self._note("initialize", session_id, facts)

    def system_prompt_block(self) -> str:
        return f"The diary has {len(self.calls)} entries."

    def get_tool_schemas(self) -> list[dict[str, Any]]:
        return [tool(f"{self._name}_write")]

    def handle_tool_call(self, name: str, args: dict[str, Any], **kwargs: Any) -> str:
        self._note(name, args, *kwargs)
        return json.dumps({"written": args.get("text")})

    def prefetch(self, query: str) -> str:
        self._note("prefetch", query)
        return f"Of {query!r} the diary says: Tuesday."

    def sync_turn(self, user: str, assistant: str) -> None:
        self._note("sync_turn", user, assistant)

    def on_pre_compress(self, messages: list[Message]) -> str:
        self._note("on_pre_compress", len(messages))
        return "The diary wants the harbour fee of 4711 kept."

    def on_session_end(self, messages: list[Message]) -> None:
        self._note("on_session_end", len(messages))

    def on_session_switch(self, session_id: str, **facts: Any) -> None:
        self._note("on_session_switch", session_id, facts)

    def shutdown(self) -> None:
        self._note("shutdown")


class Hanging(Diary):
    """Hangs in one method until it is released."""

    def __init__(self, method: str) -> None:
        super().__init__("sleeper")
        self._method = method
        self.hangs = threading.Event()
        self.released = threading.Event()

    def _note(self, *call: Any) -> None:
        super()._note(*call)
        if call[0] == self._method:
            self.hangs.set()
            self.released.wait()


class Failing(Diary):
    """Raises in one method."""

    def __init__(self, method: str, error: BaseException) -> None:
        super().__init__("clumsy")
        self._method = method
        self._error = error

    def _note(self, *call: Any) -> None:
        super()._note(*call)
        if call[0] == self._method:
            raise self._error


@contextmanager
def out_of_patience_once_it_hangs(provider: Hanging, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The time of the call in which the provider begins to hang is over then; all other calls have all time."""
    is_over = False

    def finished(job: Job[Any], seconds: float, check: object) -> bool:
        nonlocal is_over
        del seconds, check
        while not job.done.wait(0.002):
            if provider.hangs.is_set() and not is_over:
                is_over = True
                return False
        return True

    monkeypatch.setattr("everlong.workers._finished", finished)
    try:
        yield
    finally:
        provider.released.set()
