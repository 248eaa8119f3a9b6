"""The state of a conversation's graph of summaries: its roots, its figures, and whether every message is in reach."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from everlong.lossless.graph import ROOT, SummaryNode, highest_spans
from everlong.store.summaries import StoredGraph, shown_ids

if TYPE_CHECKING:
    from everlong.store.store import Store
    from everlong.store.tree import Branch


@dataclass(frozen=True, slots=True)
class GraphStatus:
    """The graph of one conversation as it stands now."""

    graph: StoredGraph
    shown: list[SummaryNode]
    """The summaries that the context stands on, oldest first; none if another engine made the context."""
    lost: list[str]
    """The ids of summaries in the context that are not there any more."""
    ahead: list[SummaryNode]
    """The highest summaries after those in the context, oldest first."""
    messages: int
    """The number of all messages."""
    covered: int
    """The number of messages under a summary."""
    newer: int
    """The number of messages after the summaries in the context."""

    @property
    def roots(self) -> list[SummaryNode]:
        """The highest summaries of the graph, oldest first."""
        return [*self.shown, *self.ahead]


def read_status(store: Store, at: Branch) -> GraphStatus:
    """Return the state of the graph of a conversation."""
    graph = store.graph(at)
    items, _ = store.view_items(at)
    ids = shown_ids(items)
    found = graph.newest(ids)
    shown = [node for node in found if node is not None]
    lost = [ident for ident, node in zip(ids, found, strict=True) if node is None]
    end = shown[-1].made.last if shown else ROOT
    spans = highest_spans(graph.outline(), end)
    ahead = [node for node in graph.newest([span.id for span in spans]) if node is not None]
    total = graph.message_count(ROOT, _head(at))
    last = ahead[-1].made.last if ahead else end
    newer = total - graph.message_count(ROOT, end)
    return GraphStatus(graph, shown, lost, ahead, total, graph.message_count(ROOT, last), newer)


def _head(at: Branch) -> str:
    return at.head.hex() if at.depth else ROOT


def read_figures(status: GraphStatus) -> dict[str, Any]:
    """Return the figures of a graph as plain values."""
    by_level: dict[int, Counter[str]] = {}
    tokens: Counter[int] = Counter()
    models: Counter[str] = Counter()
    leaves: dict[str, int] = {}
    for node in status.graph.all(("good", "degraded", "replaced", "void")):
        by_level.setdefault(node.made.level, Counter())[node.state] += 1
        if node.state in {"good", "degraded"}:
            tokens[node.made.level] += node.made.tokens
            models[node.made.model] += 1
            if not node.made.children:
                leaves[node.id] = node.made.source_tokens
    chain = highest_spans([span for span in status.graph.outline() if span.id in leaves])
    source, highest = sum(leaves[span.id] for span in chain), sum(node.made.tokens for node in status.roots)
    return {
        "messages": status.messages,
        "messages_under_summaries": status.covered,
        "summaries_in_context": len(status.shown),
        "levels": [
            {"level": level, "tokens": tokens[level], **by_level[level]} for level in sorted(by_level, reverse=True)
        ],
        "source_tokens": source,
        "tokens": highest,
        "ratio": round(source / highest, 1) if highest else None,
        "models": dict(models.most_common()),
    }
