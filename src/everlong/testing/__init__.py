"""Help for testing what is built on Everlong: a model server, the contract of engines, strategies for conversations.

Nothing is imported until it is used. The server needs the standard library only; `EngineContract`, `check_engine` and
`everlong.testing.strategies` need Hypothesis: install ``everlong[testing]``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from everlong.testing.engine_contract import EngineContract, check_engine
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
    "EngineContract",
    "Fault",
    "ManualClock",
    "ModelServer",
    "Record",
    "ScriptedModel",
    "Turn",
    "check_engine",
    "random_faults",
]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if name in ("EngineContract", "check_engine"):
        from everlong.testing import engine_contract  # noqa: PLC0415 - only those who use it load it

        return getattr(engine_contract, name)
    from everlong.testing import server  # noqa: PLC0415 - as above

    return getattr(server, name)
