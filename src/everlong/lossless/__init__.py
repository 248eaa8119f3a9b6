"""The lossless engine ``lcm``: a graph of summaries over a conversation of which every message stays in reach."""

from everlong.lossless.engine import LosslessEngine
from everlong.lossless.graph import MemoryGraph, NewSummary, SummaryGraph, SummaryNode

__all__ = ["LosslessEngine", "MemoryGraph", "NewSummary", "SummaryGraph", "SummaryNode"]
