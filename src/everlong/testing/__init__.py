"""Tools for testing what is built on Everlong: a model server, the engine contract, conversation strategies.

Nothing is imported until it is used. The server needs the standard library only; `EngineContract`, `check_engine` and
`everlong.testing.strategies` need Hypothesis: install ``everlong[testing]``.
"""

from typing import TYPE_CHECKING

from everlong.exports import export_lazily

if TYPE_CHECKING:
    from everlong.testing.engine_contract import EngineContract as EngineContract, check_engine as check_engine
    from everlong.testing.server import (
        Answer as Answer,
        Ask as Ask,
        Call as Call,
        Fault as Fault,
        ModelServer as ModelServer,
        Record as Record,
        ScriptedModel as ScriptedModel,
        ScriptedTurn as ScriptedTurn,
    )

__all__, __getattr__, __dir__ = export_lazily(
    __name__,
    {
        "engine_contract": "EngineContract check_engine",
        "server": "Answer Ask Call Fault ModelServer Record ScriptedModel ScriptedTurn",
    },
)
