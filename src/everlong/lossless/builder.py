"""The builder of a graph for a conversation that is stored already: summaries over all of its messages.

The context that is sent does not change. The builder reads the messages piece by piece and keeps what it has written,
so it needs little memory, and a build that was interrupted goes on where it stopped.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from everlong.lossless.frontier import GraphBroken, cut_runs, full_run
from everlong.lossless.graph import ROOT, SummaryNode, SummarySpan, highest_spans
from everlong.lossless.run import LosslessRun
from everlong.model import Message

_PIECE = 64
"""Messages that are read at once."""


@dataclass
class GraphBuilder:
    """Builds the graph of one conversation with the leaves and condensed summaries of a run."""

    run: LosslessRun
    on_leaf: Callable[[SummaryNode], None] = lambda _: None
    """Called with each leaf once it is in the graph."""
    frontier: list[SummaryNode] = field(default_factory=list)

    def build(self, spans: Sequence[SummarySpan], last: str) -> list[SummaryNode]:
        """Summarize every message up to ``last`` that no summary covers; return the highest summaries, oldest first.

        Args:
            spans: the summaries that are there, ordered by their depths.
            last: the newest message of the conversation.
        """
        place, depth = ROOT, 0
        while place != last:
            there = highest_spans(spans, place)
            for node in self.run.graph.newest([span.id for span in there]):
                if node is None:
                    raise GraphBroken("a summary was forgotten while the graph was built; build it again")
                self._append(node)
            if there:
                place, depth = there[-1].last, there[-1].to_depth
            if place != last:
                following = next((span for span in spans if span.from_depth > depth), None)
                end = last if following is None else following.after
                self._add_leaves(place, end)
                place, depth = end, depth if following is None else following.from_depth
        return self.frontier

    def _add_leaves(self, after: str, last: str) -> None:
        """Write leaves over the messages of a range, and condense them where there are many."""
        graph, counter, leaf = self.run.graph, self.run.request.counter, self.run.sizes.leaf
        waiting: list[tuple[str, Message]] = []
        read = start = after
        while ids := graph.message_ids(read, last, 0, _PIECE):
            waiting += graph.messages(read, ids[-1])
            read = ids[-1]
            messages = [message for _, message in waiting]
            runs = cut_runs(messages, counter.counts(messages), leaf)
            whole = runs if read == last else runs[:-1]  # the last run may still grow
            for first, end in whole:
                start = self._add_leaf(waiting[first:end], start)
            waiting = waiting[whole[-1][1] :] if whole else waiting

    def _add_leaf(self, said: Sequence[tuple[str, Message]], after: str) -> str:
        messages, last = [message for _, message in said], said[-1][0]
        node = self.run.leaf(messages, sum(self.run.request.counter.counts(messages)), after, last)
        self.on_leaf(node)
        self._append(node)
        return last

    def _append(self, node: SummaryNode) -> None:
        self.frontier.append(node)
        while (full := full_run(self.frontier)) is not None:
            self.frontier[slice(*full)] = [self.run.condense(self.frontier[slice(*full)])]
