"""The tools that adapters offer to the model: those of the engine and, over a store, those that look things up.

An engine's own tools are always offered. The two of recall (`everlong_recall`, `everlong_read_turn`) are offered on
request, if the engine brings none itself.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from everlong.errors import ConfigError
from everlong.tokens import counter_for

if TYPE_CHECKING:
    from everlong.agent.tools.hidden_tools import HiddenTool, RecallLookup
    from everlong.context import ContextEngine
    from everlong.integrations.history import Fitted
    from everlong.store import Store

__all__ = ["OfferedTools"]

_log = logging.getLogger(__name__)


class OfferedTools:
    """The tools of an adapter's conversations, and the answers to their calls.

    Args:
        store: the store of the conversations, if there is one.
        recall: offer the tools that look things up in the store.

    Raises:
        ConfigError: recall is asked for without a store.
    """

    def __init__(self, store: Store | None, *, recall: bool = False) -> None:
        if recall and store is None:
            raise ConfigError("recall reads from a store, and none is given; pass store=Store.open(PATH)", key="recall")
        self._store = store
        self._recall = recall
        self._counter = counter_for()

    def of(self, engine: ContextEngine) -> tuple[HiddenTool, ...]:
        """Return the tools to offer beside an engine; always the same, because a changed prompt is not cached."""
        from everlong.agent.tools.hidden_tools import TOOLS, engine_tools  # noqa: PLC0415 - only requests load the agent's

        return engine_tools(engine, _log.warning) or (TOOLS if self._recall else ())

    def answer(self, fitted: Fitted, lookups: Sequence[RecallLookup]) -> dict[str, str]:
        """Return the answers to calls of these tools, in what room the window has left; blocks."""
        from everlong.agent.tools.hidden_tools import look_up_all  # noqa: PLC0415 - as above

        engine = fitted.engine

        def call(name: str, arguments: Mapping[str, Any]) -> str:
            return engine.handle_tool_call(name, dict(arguments), messages=fitted.messages)

        room, window = fitted.room, engine.context_length
        return look_up_all(self._store, fitted.at, list(lookups), room, self._counter, call, window)

    def call(self, fitted: Fitted | None, name: str, arguments: Mapping[str, Any]) -> str:
        """Return the answer to one call, for frameworks that run tools themselves."""
        from everlong.agent.tools.hidden_tools import RecallLookup  # noqa: PLC0415 - as above

        if fitted is None:
            return "[nothing of this conversation is known yet; all of it is in sight]"
        return self.answer(fitted, [RecallLookup("call", name, arguments)])["call"]
