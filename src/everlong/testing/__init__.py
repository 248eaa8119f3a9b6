"""Help for testing what is built on Everlong: a local model server, and Hypothesis strategies for conversations.

Nothing is imported until it is used. The server needs the standard library only; `everlong.testing.strategies` needs
Hypothesis: install ``everlong[testing]``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from everlong.testing.server import (
        Answer,
        Ask,
        Call,
        Fault,
        ManualClock,
        ModelServer,
        Record,
        ScriptedModel,
        Turn,
        random_faults,
    )

__all__ = [
    "Answer",
    "Ask",
    "Call",
    "Fault",
    "ManualClock",
    "ModelServer",
    "Record",
    "ScriptedModel",
    "Turn",
    "random_faults",
]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from everlong.testing import server  # noqa: PLC0415 - only those who use it load it

    return getattr(server, name)
