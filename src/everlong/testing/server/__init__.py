"""A model server on loopback that speaks all wire formats and answers from a script.

Written from the APIs' documentation, apart from the rest of the package: its counting and its cache are second
opinions, so it imports nothing that it is there to test.
"""

from __future__ import annotations

from everlong.testing.server.exchange import Fault, Record
from everlong.testing.server.http import ModelServer
from everlong.testing.server.script import Answer, Ask, Call, ScriptedModel, ScriptedTurn

__all__ = [
    "Answer",
    "Ask",
    "Call",
    "Fault",
    "ModelServer",
    "Record",
    "ScriptedModel",
    "ScriptedTurn",
]
