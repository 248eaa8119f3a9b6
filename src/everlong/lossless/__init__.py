"""The lossless engine ``lcm``: a graph of summaries over a conversation of which every message stays in reach.

Loads the engine only where it is used: the store and its commands read graphs without it.
"""

from typing import TYPE_CHECKING

from everlong.exports import export_lazily

if TYPE_CHECKING:
    from everlong.lossless.engine import LosslessEngine as LosslessEngine
    from everlong.lossless.graph import (
        MemoryGraph as MemoryGraph,
        NewSummary as NewSummary,
        SummaryGraph as SummaryGraph,
        SummaryNode as SummaryNode,
    )

__all__, __getattr__, __dir__ = export_lazily(
    __name__,
    {
        "engine": "LosslessEngine",
        "graph": "MemoryGraph NewSummary SummaryGraph SummaryNode",
    },
)
